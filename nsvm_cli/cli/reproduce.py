"""``nsvm reproduce``: the paper's experiments and baselines over many seeds, next to the paper's figures."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic
from pydantic import PositiveInt, ValidationError
from rich.box import SIMPLE_HEAD
from rich.table import Table

from nsvm_cli.cli.hydra_app import compose_settings
from nsvm_cli.cli.parser import CommandParser, described, keys_of, split_words
from nsvm_cli.config.registry import STRICT, one_line
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.output import answer, printable, say
from nsvm_cli.report.console import Console

if TYPE_CHECKING:
    from nsvm_cli.studies.reproduce import Row

DESCRIPTION = """\
Run the experiments of the paper over many seeds, and baselines on the same
splits: scikit-learn's SVC on the inputs and on the trained features, the same
SVM on the features of the untrained network, and the network without an SVM.
Writes runs.csv, table.md and figure.png. To resume after an interruption, run
the same command again.
"""
EPILOG = """\
examples:
  nsvm reproduce quick=true
  nsvm reproduce seeds=3 cells=ringnorm_alg4,mnist_alg4 mnist=data
"""

ALGORITHMS = ("alg1", "alg2", "alg3", "alg4")
CELLS = [f"{family}_{algorithm}" for family in ("ringnorm", "mnist") for algorithm in ALGORITHMS]
BEYOND = ["ringnorm_alg4_wide"]
"""Not in the paper: how far its algorithms go with another network."""
QUICK_CELLS = [f"{family}_{algorithm}" for family in ("ringnorm", "digits") for algorithm in ALGORITHMS]


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STRICT)
class Request:
    """The words of the command line. ``seeds`` None stands for 10, or 2 with ``quick``."""

    seeds: PositiveInt | None = described(
        "N",
        "number of seeds, from 0 on (default: 10, or 2 with quick=true); each has its own split of Ringnorm, "
        "initialization and order of samples",
    )
    cells: list[str] | None = described(
        "A,B",
        "which experiments (default: all): ringnorm_alg1 to ringnorm_alg4, mnist_alg1 to mnist_alg4 "
        "(digits_alg1 to digits_alg4 with quick=true), and ringnorm_alg4_wide, which is not in the paper",
        values=[*dict.fromkeys(CELLS + BEYOND + QUICK_CELLS)],
    )
    ringnorm: str | None = described("FILE", "the published data as a CSV file (default: from OpenML)")
    mnist: str | None = described(
        "FOLDER", "folder that holds MNIST/raw (default: the cache, downloaded if need be)"
    )
    directory: Path | None = described(
        "FOLDER", "where results go (default: outputs/reproduce, or outputs/reproduce_quick)"
    )
    jobs: PositiveInt | None = described("N", "number of runs at a time (default: one per core)")
    quick: bool = described(
        "true",
        "take a minute or two of processor time instead of twenty: two seeds of generated Ringnorm, and few "
        "steps on scikit-learn's digits; needs no network",
        default=False,
        values=["true"],
    )


def configure(parser: CommandParser) -> None:
    """Add the arguments of the command."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_keys("settings", keys_of(Request))
    parser.set_defaults(run=reproduce)


def reproduce(options: argparse.Namespace) -> None:
    """Run what is not there yet, and print the table."""
    request = _parse(options.words)
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
    about = f"`{printable(shlex.join(['nsvm', 'reproduce', *options.words]))}` with "
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
            ["algorithm=cross_entropy", f"experiment=baseline/{name}"],
        )
    )
    return nsvm, network


def _quoted(path: str) -> str:
    """As Hydra's grammar wants text with special characters."""
    return "'" + path.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _parse(words: Sequence[str]) -> Request:
    values: dict[str, Any] = {**split_words(words, (key.name for key in keys_of(Request)))}
    if "cells" in values:
        values["cells"] = values["cells"].strip("[]").split(",")
    try:
        return Request(**values)
    except ValidationError as error:
        raise InputError(one_line(error)) from None


def _progress(row: Row, done: int, total: int) -> None:
    """Print a line for a row, whether it has just been run or was there already; on stderr."""
    line = f"{done:3d} of {total}  {row.cell}  {row.method}  seed {row.seed}: {100 * row.accuracy:.2f} %"
    line += f", {row.errors} of {row.samples} wrong"
    say(line)


def _show(rows: Sequence[Row], directory: Path, full: bool, about: str) -> None:
    """Write the tables and the figure, and print what a screen has room for."""
    from nsvm_cli.storage.files import write_atomically
    from nsvm_cli.studies.figure import draw_results  # takes a while to import
    from nsvm_cli.studies.reproduce import METHODS
    from nsvm_cli.studies.statistics import baselines_of, by_unit, markdown, score_of, summarise

    summaries = summarise(rows)
    write_atomically(directory / "table.md", f"{markdown(summaries, full)}\n{about}\n".encode())
    draw_results(summaries, full, directory / "figure.png")
    console = Console()
    for unit, cells in by_unit(summaries).items():
        console.print(f"{unit}: mean ± standard deviation")
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
        table.add_column("", min_width=max(map(len, cells)))
        methods = ["nsvm", *baselines_of(cells)]
        for method in methods:
            table.add_column(METHODS[method])
        for cell, by_method in cells.items():
            table.add_row(cell, *(score_of(by_method[method]) for method in methods))
        console.print(table)
    answer(f"Written to {directory}: runs.csv, table.md, figure.png")
