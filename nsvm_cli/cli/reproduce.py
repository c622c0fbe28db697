"""``nsvm reproduce``: the paper's experiments over many seeds, beside its figures and beside peers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic
from pydantic import PositiveInt, ValidationError
from rich.console import Console
from rich.table import Table

from nsvm_cli.cli.hydra_app import compose_settings
from nsvm_cli.config.registry import STRICT, one_line
from nsvm_cli.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from nsvm_cli.studies.reproduce import Row

HELP = """\
usage: nsvm reproduce [KEY=VALUE ...]

Run the experiments of the paper over many seeds, and peers on the same splits: scikit-learn's SVC on
the inputs and on the trained features, and the same network without an SVM. Writes runs.csv, table.md
and figure.png. Interrupted, the same command goes on where it was.

  seeds=10             seeds 0 to 9: a split (of Ringnorm), an initialisation and a sampling each
  cells=A,B            some of the experiments: ringnorm_alg1 ... ringnorm_alg4, mnist_alg1 ... mnist_alg4,
                       and ringnorm_alg4_wide, which is not the paper's
  ringnorm=FILE        the published draw as a CSV file; by default from OpenML
  mnist=FOLDER         where MNIST/raw/ is; by default the cache, downloaded if need be
  directory=PATH       outputs/reproduce
  jobs=N               runs at a time; by default one a core
  quick=true           a minute instead of ten: two seeds of generated Ringnorm, and of
                       scikit-learn's digits in few steps; needs no network
  -h, --help           this text
"""

ALGORITHMS = ("alg1", "alg2", "alg3", "alg4")
CELLS = [f"{family}_{algorithm}" for family in ("ringnorm", "mnist") for algorithm in ALGORITHMS]
BEYOND = ["ringnorm_alg4_wide"]
"""Not in the paper: how far its algorithms go with another network."""
QUICK_CELLS = [f"{family}_{algorithm}" for family in ("ringnorm", "digits") for algorithm in ALGORITHMS]


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STRICT)
class Request:
    """The words of the command line. ``seeds`` None stands for 10, or 2 if it is to be quick."""

    seeds: PositiveInt | None = None
    cells: list[str] | None = None
    ringnorm: str | None = None
    mnist: str | None = None
    directory: Path | None = None
    jobs: PositiveInt | None = None
    quick: bool = False


def reproduce(arguments: list[str]) -> None:
    """Runs what is not there yet, and prints the table."""
    if "-h" in arguments or "--help" in arguments:
        print(HELP, end="")
        return
    request = _parse(arguments)
    known = QUICK_CELLS if request.quick else CELLS + BEYOND
    for name in (chosen := dict.fromkeys(request.cells or known)):
        if name not in known:
            raise InputError(f"cells={name}: there is no such experiment here; {did_you_mean(name, known)}")
    composed = [(name, *_cell(name, request)) for name in chosen]
    # torch takes seconds to import: not before the configuration is known to compose
    from nsvm_cli.config.settings import parse_settings
    from nsvm_cli.parallel.workers import cores
    from nsvm_cli.runs.experiment import versions
    from nsvm_cli.studies.reproduce import Cell
    from nsvm_cli.studies.reproduce import reproduce as run

    cells = [Cell(name, parse_settings(nsvm), parse_settings(network)) for name, nsvm, network in composed]
    directory = request.directory or Path("outputs/reproduce_quick" if request.quick else "outputs/reproduce")
    seeds = request.seeds or (2 if request.quick else 10)
    rows = run(cells, seeds, directory, jobs := request.jobs or cores(), _progress)
    about = f"`{shlex.join(['nsvm', 'reproduce', *arguments])}` with "
    about += ", ".join(f"{package} {version}" for package, version in versions().items())
    about += f"; threads of a run: {cells[0].nsvm.threads or 'all'}; runs at a time: {jobs}."
    _show(rows, directory, not request.quick, about)


def _cell(name: str, request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of an experiment, and of the same network without an SVM."""
    family, algorithm = name.split("_")[:2]
    words = {
        "digits": ["dataset=digits"],
        "mnist": ["dataset=mnist", *([f"dataset.root={_quoted(request.mnist)}"] if request.mnist else [])],
        "ringnorm": ["dataset=ringnorm"]
        if request.quick
        else [
            "dataset=ringnorm_openml",
            *([f"dataset.path={_quoted(request.ringnorm)}"] if request.ringnorm else []),
        ],
    }[family]
    nsvm, network = (
        compose_settings([*words, *more])
        for more in (
            [f"algorithm={algorithm}", f"experiment={name}"],
            ["algorithm=cross_entropy", f"experiment=baseline/{name.replace('digits', 'mnist')}"],
        )
    )
    return nsvm, network


def _quoted(path: str) -> str:
    """As Hydra's grammar wants text with special characters."""
    return "'" + path.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _parse(words: list[str]) -> Request:
    known = [*Request.__dataclass_fields__]
    values: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in known:
            raise InputError(f"reproduce takes KEY=VALUE, got {word!r}; {did_you_mean(key, known)}")
        values[key] = value.strip("[]").split(",") if key == "cells" else value
    try:
        return Request(**values)
    except ValidationError as error:
        raise InputError(one_line(error)) from None


def _progress(row: Row, done: int, total: int) -> None:
    """A line for each row, whether it has just been run or was there already; on stderr."""
    line = f"{done:3d} of {total}  {row.cell}  {row.method}  seed {row.seed}: {100 * row.accuracy:.2f} %"
    line += f", {row.errors} of {row.samples} wrong"
    print(line, file=sys.stderr, flush=True)


def _show(rows: Sequence[Row], directory: Path, full: bool, about: str) -> None:
    """Writes the tables and the figure, and prints what a screen has room for."""
    from nsvm_cli.storage.files import write_atomically
    from nsvm_cli.studies.figure import draw_results  # takes a while to import
    from nsvm_cli.studies.reproduce import METHODS
    from nsvm_cli.studies.statistics import baselines_of, by_unit, markdown, spread, summarise

    summaries = summarise(rows)
    write_atomically(directory / "table.md", f"{markdown(summaries, full)}\n{about}\n".encode())
    draw_results(summaries, full, directory / "figure.png")
    console = Console()
    for unit, cells in by_unit(summaries).items():
        table = Table(title=f"{unit}: mean ± standard deviation", title_justify="left")
        table.add_column("", min_width=max(map(len, cells)))
        methods = ["nsvm", *baselines_of(cells)]
        for method in methods:
            table.add_column(METHODS[method])
        for cell, by_method in cells.items():
            table.add_row(cell, *(spread(by_method[method].score) for method in methods))
        console.print(table)
    print(f"Written to {directory}: runs.csv, table.md, figure.png")
