"""``nsvm reproduce``: the paper's experiments and others, with baselines, over many seeds."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic
from pydantic import PositiveInt, ValidationError

from nsvm_cli.cli.parser import CommandParser, described, keys_of, split_words
from nsvm_cli.compose.composition import compose_settings, conf_folder, quoted
from nsvm_cli.config.registry import STRICT, one_line
from nsvm_cli.config.settings import parse_settings
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.output import answer, answer_lines, printable, say

if TYPE_CHECKING:
    from nsvm_cli.paper.reproduce import Entry, Row

DESCRIPTION = """\
Run the experiments of the paper over many seeds, and baselines on the same
splits: scikit-learn's SVC on the inputs and on the trained features, the same
SVM on the features of the untrained network, and the network without an SVM.
By name, cells= adds experiments with ten classes, tables and real targets, and
for these SVC or SVR and boosted trees, tuned by cross-validation.
Writes runs.csv, table.md and figure.png. To resume after an interruption, run
the same command again.
"""
EPILOG = """\
examples:
  nsvm reproduce quick=true
  nsvm reproduce seeds=3 cells=ringnorm_alg4,mnist_alg4 mnist=data
  nsvm reproduce seeds=3 cells=letter_alg4,houses_alg4 pmlb=pmlb
"""

ALGORITHMS = ("alg1", "alg2", "alg3", "alg4")
CELLS = [f"{family}_{algorithm}" for family in ("ringnorm", "mnist") for algorithm in ALGORITHMS]
WIDE = "_wide"
BEYOND = [f"ringnorm_alg4{WIDE}"]
"""Not in the paper: how far its algorithms go with another network."""
MORE = [f"{family}_{algorithm}" for family in ("mnist10", "optdigits") for algorithm in ALGORITHMS]
MORE += [f"{family}_alg4" for family in ("letter", "pendigits", "houses", "cpu_act")]
"""Not in the paper either: several classes and real targets. They are run by name only."""
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
        "which experiments (default: ringnorm_alg1 to ringnorm_alg4, mnist_alg1 to mnist_alg4, and "
        "ringnorm_alg4_wide, which is not in the paper; with quick=true, ringnorm_alg1 to ringnorm_alg4 and "
        "digits_alg1 to digits_alg4). Only by name: "
        "mnist10_alg1 to mnist10_alg4, optdigits_alg1 to optdigits_alg4, letter_alg4, pendigits_alg4, "
        "houses_alg4, cpu_act_alg4",
        values=[*dict.fromkeys(CELLS + BEYOND + QUICK_CELLS + MORE)],
    )
    ringnorm: str | None = described("FILE", "the published data as a CSV file (default: from OpenML)")
    mnist: str | None = described(
        "FOLDER", "folder that holds MNIST/raw (default: the cache, downloaded if missing)"
    )
    pmlb: str | None = described(
        "FOLDER", "folder that holds the tables of PMLB (default: the cache, downloaded if missing)"
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
    parser.add_keys("settings", keys_of(Request))


def reproduce(options: argparse.Namespace) -> None:
    """Run whatever is missing, and print the table."""
    request = _parse(options.words)
    usual, more = (QUICK_CELLS, []) if request.quick else (CELLS + BEYOND, MORE)
    for name in (chosen := dict.fromkeys(request.cells or usual)):
        if name not in (names := usual + more):
            raise InputError(f"cells={name}: there is no such experiment here; {did_you_mean(name, names)}")
    # torch takes seconds to import
    from nsvm_cli.paper.reproduce import reproduce as run
    from nsvm_cli.parallel.workers import cores
    from nsvm_cli.runs.experiment import versions

    entries = [entry_of(name, request) for name in chosen]
    directory = request.directory or Path("outputs/reproduce_quick" if request.quick else "outputs/reproduce")
    seeds = request.seeds or (2 if request.quick else 10)
    rows = run(entries, seeds, directory, jobs := request.jobs or cores(), _progress)
    description = f"`{printable(shlex.join(['nsvm', 'reproduce', *options.words]))}` with "
    description += ", ".join(f"{package} {version}" for package, version in versions().items())
    description += f"; threads of a run: {entries[0].nsvm.threads or 'all'}; runs at a time: {jobs}."
    _show(rows, directory, not request.quick, description)


@dataclass(frozen=True)
class Family:
    """The experiments on one data set.

    Attributes:
        dataset: its name among the results.
        words: choose it for ``nsvm train``.
        baselines: the methods to compare with that need no network.
        files: the key for the path of the data in this command, and that in ``nsvm train``.
        network: the beginning of the names of its files in ``conf/experiment/baseline/``, if it is another.
    """

    dataset: str
    words: tuple[str, ...]
    baselines: tuple[str, ...]
    files: tuple[str, str] | None = None
    network: str | None = None


def _table(name: str, *words: str) -> Family:
    """Return the experiments on a table of PMLB."""
    words = ("dataset=pmlb", f"dataset.table={name}", *words)
    return Family(name, words, ("svc_tuned", "boosting"), ("pmlb", "dataset.root"), network="pmlb")


OPENML, MNIST = ("ringnorm", "dataset.path"), ("mnist", "dataset.root")
FAMILIES = {
    "ringnorm": Family("ringnorm_openml", ("dataset=ringnorm_openml",), ("svc", "bayes"), OPENML),
    "mnist": Family("mnist", ("dataset=mnist",), ("svc",), MNIST),
    "mnist10": Family("mnist10", ("dataset=mnist10",), ("svc_tuned",), MNIST),
    "letter": _table("letter"),
    "pendigits": _table("pendigits"),
    "optdigits": _table("optdigits"),
    "houses": _table("537_houses", "task=regression"),
    "cpu_act": _table("197_cpu_act", "task=regression"),
}
"""By the beginning of the names of their experiments."""
QUICK_FAMILIES = {
    "ringnorm": Family("ringnorm", ("dataset=ringnorm",), ("svc", "bayes")),
    "digits": Family("digits", ("dataset=digits",), ("svc",)),
}


def entry_of(name: str, request: Request) -> Entry:
    """Compose an experiment, and the same network without an SVM if conf/ has it."""
    from nsvm_cli.paper.reproduce import Entry

    start, _, algorithm = name.removesuffix(WIDE).rpartition("_")
    family = (QUICK_FAMILIES if request.quick else FAMILIES)[start]
    words = [*family.words]
    if family.files and (files := getattr(request, family.files[0])):
        words.append(f"{family.files[1]}={quoted(files)}")
    own = [f"experiment={name}"] if name.endswith(WIDE) else []
    nsvm = parse_settings(compose_settings([*words, f"algorithm={algorithm}", *own]))
    baseline, network = f"baseline/{name.replace(start, family.network or start, 1)}", None
    if (conf_folder() / "experiment" / f"{baseline}.yaml").is_file():
        words += ["algorithm=cross_entropy", f"experiment={baseline}"]
        network = parse_settings(compose_settings(words))
    return Entry(name, family.dataset, nsvm, network, family.baselines)


def _parse(words: Sequence[str]) -> Request:
    values: dict[str, Any] = {**split_words(words, (key.name for key in keys_of(Request)))}
    if "cells" in values:
        values["cells"] = values["cells"].strip("[]").split(",")
    try:
        return Request(**values)
    except ValidationError as error:
        raise InputError(one_line(error)) from None


def _progress(rows: Sequence[Row], done: int, total: int) -> None:
    """Print a line for each row of a task, whether it has just been run or was there already; on stderr."""
    for row in rows:
        line = f"{done:3d} of {total}  {row.cell}  {row.method}  seed {row.seed}: "
        if row.accuracy is None:
            line += f"R² {row.r2:.4f}, RMSE {row.rmse:.4g}, MAE {row.mae:.4g}"
        else:
            line += f"{100 * row.accuracy:.2f} %, {row.errors} of {row.samples} wrong"
        say(line)


def _show(rows: Sequence[Row], directory: Path, full: bool, description: str) -> None:
    """Write the tables and the figure, and print the tables."""
    from nsvm_cli.paper.results import compared, draw_results, markdown
    from nsvm_cli.storage.files import write_atomically

    found = compared(rows, full)
    tables = markdown(found)
    write_atomically(directory / "table.md", f"{tables}\n{description}\n".encode())
    draw_results(found, directory / "figure.png")
    answer_lines(tables)
    answer(f"Written to {directory}: runs.csv, table.md, figure.png")
