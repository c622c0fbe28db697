"""The results of a reproduction: each experiment's neural SVM, compared with the other methods."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from nsvm_cli.comparison.cells import Cell
from nsvm_cli.comparison.compare import Comparison, compare
from nsvm_cli.comparison.records import RunRecord
from nsvm_cli.comparison.table import SENTENCES, notes, to_markdown
from nsvm_cli.datasets.ringnorm import bayes_accuracy
from nsvm_cli.page.plotting import BLUE, GRAY, new_figure, style_axis, write_figure
from nsvm_cli.paper.reproduce import METHODS, Row

PAPER = {
    "ringnorm_alg1": 98.1,
    "ringnorm_alg2": 97.6,
    "ringnorm_alg3": 97.0,
    "ringnorm_alg4": 98.2,
    "mnist_alg1": 2.0,
    "mnist_alg2": 2.0,
    "mnist_alg3": 0.0,
    "mnist_alg4": 0.0,
}
"""The results that the paper reports (Section 5), for one run each: % on Ringnorm, errors on MNIST."""

NSVM, FROZEN = METHODS["nsvm"], METHODS["frozen"]
CHOSEN = "from cross-validation on training samples"
NOTES = {
    "SVC on its features": "scikit-learn's SVC (for real targets SVR) on the trained features, with the "
    "experiment's kernel and C = 1/(λm)",
    FROZEN: "the same network with its initial, random θ, and the experiment's SVM on top: what training θ "
    "adds",
    "same network, no SVM": "a linear head and cross-entropy (for real targets squared errors), trained for "
    "as many gradient steps, with as many samples a step as the algorithm draws",
    "SVC on the inputs": "scikit-learn's SVC with its default C and gamma, not tuned",
    "SVC on the inputs, tuned": f"scikit-learn's SVC or SVR with C, gamma and epsilon {CHOSEN}",
    "boosted trees, tuned": "scikit-learn's HistGradientBoosting with learning rate and leaves of a tree "
    f"{CHOSEN}",
    "Bayes rule": "knows the two distributions; the best possible, averaged over all draws, is "
    f"{100 * bayes_accuracy():.2f} %",
}
"""What stands below the tables about a method in them, by its name."""

IN_ERRORS = ("mnist", "digits")
"""The data sets whose scores are numbers of errors, as the paper's are for images."""


def compared(rows: Sequence[Row], full: bool) -> list[Comparison]:
    """Compare the methods with the neural SVM of each experiment, seed by seed, the best first.

    Methods that need no network are repeated in each experiment on the data set. A network that has not
    trained with every seed is named as such.

    Args:
        full: whether the titles name the figures that the paper reports for these experiments.
    """
    return compare([*_cells(rows, full)], NSVM)


def _cells(rows: Sequence[Row], full: bool) -> Iterator[Cell]:
    for cell, dataset in dict.fromkeys((row.cell, row.dataset) for row in rows if row.method == "nsvm"):
        title = f"{cell} ({PAPER[cell]:g} in the paper)" if full and cell in PAPER else cell
        of_cell = [row for row in rows if row.cell in (cell, dataset)]
        for method in dict.fromkeys(row.method for row in of_cell):
            found = [row for row in of_cell if row.method == method]
            name = METHODS[method] + ("" if all(row.trained for row in found) else " (not trained)")
            runs = {row.seed: _record(row) for row in found}
            yield Cell(title, name, "test", runs, counts=dataset in IN_ERRORS)


def _record(row: Row) -> RunRecord:
    """Return a row as a comparison expects it, with the figures of a ``result.json``."""
    train = round(row.samples / row.overlap) if row.overlap else 0
    data: dict[str, Any] = {
        "samples": {"test": row.samples, "train": train},
        "sha256": row.dataset,
        "origins": [],
    }
    data |= {"generated": row.generated, "official_split": not (row.generated or row.overlap)}
    score = {"test_r2": row.r2} if row.errors is None else {"test_errors": row.errors}
    figures = {**score, "data": data, "support_vectors": row.support_vectors, "train_seconds": row.seconds}
    return RunRecord(Path(), "finished", figures=figures)


def markdown(rows: Sequence[Comparison]) -> str:
    """Return a Markdown table for each experiment, and what the columns and methods are."""
    sentences = [s for s in notes(rows, None) if s not in (SENTENCES["test"], SENTENCES["shared"])]
    names = {row.cell.candidate for row in rows}
    sentences += [f"{name[0].upper()}{name[1:]}: {NOTES[name]}." for name in NOTES if name in names]
    below = textwrap.fill(" ".join(sentences), 110, break_on_hyphens=False)
    return f"{to_markdown(rows).strip()}\n\n{below}\n"


def draw_results(rows: Sequence[Comparison], file: Path) -> None:
    """Draw every seed as a dot, and the means with their intervals; a panel for each experiment."""
    groups = [(title, [*group]) for title, group in groupby(rows, lambda row: row.cell.title)]
    lines = math.ceil(len(groups) / 2)
    with new_figure(12.0, 1.9 * lines) as figure:
        axes = figure.subplots(lines, 2, squeeze=False).flat
        for (title, group), axis in zip(groups, axes, strict=False):
            style_axis(axis, "")
            axis.set_title(title, loc="right", fontsize=9)
            for place, row in enumerate(group):
                score, colour = row.cell.score, BLUE if row.cell.candidate == NSVM else GRAY
                axis.plot([*row.cell.scores.values()], [place] * score.seeds, ".", color=colour, alpha=0.35)
                ends = [[score.mean - score.low], [score.high - score.mean]]  # NaN of few seeds is not drawn
                axis.errorbar(score.mean, place, xerr=ends, fmt="o", color=colour, capsize=3, markersize=5)
            names = [f"{row.cell.candidate}  {row.cell.score.spread}" for row in group]
            axis.set_yticks(range(len(names)), names, fontsize=8)
            # frozen features may be so much worse that nothing could be told of the others
            each = [s for row in group if row.cell.candidate != FROZEN for s in row.cell.scores.values()]
            room = 0.2 * (max(each) - min(each)) or 1.0
            axis.set(xlim=(min(each) - room, max(each) + room), ylim=(len(names) - 0.5, -0.5))
        for axis in axes:  # what is left of the grid
            axis.set_axis_off()
    write_figure(file, figure)
