"""The results of a reproduction, summarised over the seeds, and the tables of them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from nsvm_cli.comparison.intervals import FEWEST_SEEDS, R2, Estimate, Scores
from nsvm_cli.comparison.table import markdown_table
from nsvm_cli.datasets.ringnorm import bayes_accuracy
from nsvm_cli.paper.reproduce import BASELINES, METHODS, Row

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

OF_TARGETS = {
    "svc_on_features": "SVR on its features",
    "network": "same network, squared error",
    "svc_tuned": "SVR on the inputs, tuned",
}
"""The names of methods for real targets, where they have others there."""

FEATURES = "on the trained features, with the cell's kernel and C = 1/(λm)"
STEPS = "trained for as many gradient steps, with as many samples a step as the algorithm draws"
CHOSEN = "from cross-validation on training samples"
NOTES = {
    "SVC on its features": f"scikit-learn's SVC {FEATURES}",
    "SVR on its features": f"scikit-learn's SVR {FEATURES}",
    "frozen features": "the same network with its initial, random θ, and the cell's SVM on top: what "
    "training θ adds",
    "same network, no SVM": f"a linear head and cross-entropy, {STEPS}",
    "same network, squared error": f"a linear head and squared errors, {STEPS}",
    "SVC on the inputs": "scikit-learn's SVC with its default C and gamma, not tuned",
    "SVC on the inputs, tuned": f"scikit-learn's SVC with C and gamma {CHOSEN}",
    "SVR on the inputs, tuned": f"scikit-learn's SVR with C, gamma and epsilon {CHOSEN}",
    "boosted trees, tuned": "scikit-learn's HistGradientBoosting with learning rate and leaves of a tree "
    f"{CHOSEN}",
}
"""What stands below the tables about a method in them, by its name."""

UNTRAINED = "not trained"

IN_ERRORS = ("mnist", "digits")
"""The data sets whose scores are numbers of errors, as the paper's are for images."""


@dataclass(frozen=True)
class Summary:
    """One method in one cell. ``gain`` is the neural SVM's score minus this method's, seed by seed.
    ``trained`` says whether it has trained with every seed. The remaining figures are means.
    """

    cell: str
    dataset: str
    method: str
    generated: bool
    scores: Scores
    gain: Estimate
    seconds: float | None
    support_vectors: float | None
    trained: bool = True

    @property
    def score(self) -> Estimate:
        """The mean score."""
        return self.scores.estimate

    @property
    def unit(self) -> str:
        """The unit of the scores."""
        return self.scores.unit


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """Summarise each method in each cell, in the order of the rows.

    Methods that need no network are computed once for a data set and repeated in each of its cells.
    """
    cells = dict.fromkeys((row.cell, row.dataset) for row in rows if row.method == "nsvm")
    summaries = []
    for cell, dataset in cells:
        of_cell = [row for row in rows if row.cell in (cell, dataset)]
        nsvm = {row.seed: row for row in of_cell if row.method == "nsvm"}
        by_method = [[row for row in of_cell if row.method == method] for method in METHODS]
        summaries += [
            _summary(cell, [nsvm[row.seed] for row in found], found) for found in by_method if found
        ]
    return summaries


def _summary(cell: str, nsvm: Sequence[Row], chosen: Sequence[Row]) -> Summary:
    """Summarise the rows of a method, next to the neural SVM's with the same seeds."""
    first, overlap = chosen[0], max(row.overlap for row in (*nsvm, *chosen))
    scores = _scores_of(chosen, overlap)
    return Summary(
        cell,
        first.dataset,
        first.method,
        first.generated,
        scores,
        _scores_of(nsvm, overlap).minus(scores),
        _mean([row.seconds for row in chosen]),
        _mean([row.support_vectors for row in chosen]),
        all(row.trained for row in chosen),
    )


def _scores_of(rows: Sequence[Row], overlap: float) -> Scores:
    """Return R^2 for real targets; numbers of errors for the paper's images, as it does; else accuracies."""
    first = rows[0]
    if first.r2 is not None:
        return Scores({row.seed: row.r2 for row in rows}, None, overlap)
    errors = {row.seed: row.errors for row in rows}
    return Scores(errors, first.samples, overlap, first.dataset in IN_ERRORS)


def _mean(values: Sequence[float | int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


@dataclass(frozen=True)
class Group:
    """Cells that one table compares, with the summaries of their methods."""

    unit: str
    cells: dict[str, dict[str, Summary]]

    @property
    def baselines(self) -> dict[str, str]:
        """The methods that the neural SVMs are compared with, and their names; a cell may lack some."""
        found = {method for by_method in self.cells.values() for method in by_method} - {"nsvm"}
        return {method: self.name(method) for method in METHODS if method in found}

    def name(self, method: str) -> str:
        """Return what a method is called here."""
        return OF_TARGETS.get(method, METHODS[method]) if self.unit == R2 else METHODS[method]


def groups(summaries: Sequence[Summary]) -> list[Group]:
    """Group the cells with the same unit, methods that need no network, and kind of split: one table each."""
    found: dict[Any, Group] = {}
    for cell in dict.fromkeys(s.cell for s in summaries):
        by_method = {s.method: s for s in summaries if s.cell == cell}
        s, shared = by_method["nsvm"], tuple(method for method in BASELINES if method in by_method)
        key = (s.unit, shared, s.scores.overlap > 0, s.generated)
        found.setdefault(key, Group(s.unit, {})).cells[cell] = by_method
    return [*found.values()]


def markdown(summaries: Sequence[Summary], full: bool) -> str:
    """Return the Markdown tables: the scores of each cell, and its differences to the baselines.

    Args:
        full: whether to compare with the figures that the paper reports for these experiments.
    """
    tables = groups(summaries)
    parts = [part for group in tables for part in (_scores(group, full), _gains(group))]
    names = {name for group in tables for name in group.baselines.values()}
    notes = [f"{name[0].upper()}{name[1:]}: {NOTES[name]}." for name in NOTES if name in names]
    return "\n".join([*parts, textwrap.fill(" ".join(notes), 110, break_on_hyphens=False), ""])


def _scores(group: Group, full: bool) -> str:
    baselines = group.baselines
    papers = PAPER if full and PAPER.keys() & group.cells.keys() else {}
    head = ["", "neural SVM", "95 % interval", *(["paper, one run"] if papers else []), "training, s"]
    head += ["support vectors", *baselines.values()]
    rows = []
    for cell, by_method in group.cells.items():
        nsvm = by_method["nsvm"]
        row = [f"`{cell}`", nsvm.score.spread, nsvm.score.interval()]
        row += [f"{papers[cell]:g}" if cell in papers else ""] if papers else []
        row += [f"{nsvm.seconds:.1f}", f"{nsvm.support_vectors:.0f}"]
        rows.append(row + [score_of(by_method.get(b)) for b in baselines])
    unit, seeds = group.unit, len(nsvm.scores.values)
    title = f"{unit[0].upper()}{unit[1:]}: mean ± standard deviation of {seeds} seeds"
    if "bayes" in baselines:
        title += f"; the best possible, averaged over all draws, is {100 * bayes_accuracy():.2f}"
    return f"{title}. {_interval_means(nsvm)}\n\n{markdown_table(head, rows)}"


def _interval_means(s: Summary) -> str:
    if len(s.scores.values) < FEWEST_SEEDS:
        return f"Intervals need {FEWEST_SEEDS} seeds."
    if s.scores.overlap:
        return "Each seed has its own split; the intervals allow for their overlap (Nadeau & Bengio, 2003)."
    if s.generated:
        return (
            "Each seed has samples of its own: the intervals cover initialisation, sampling and their choice."
        )
    return "All seeds share one test set: the intervals cover initialisation and sampling, not its choice."


def _gains(group: Group) -> str:
    head = ["", *(f"minus {name}" for name in group.baselines.values())]
    rows = []
    for cell, by_method in group.cells.items():
        rows.append([f"`{cell}`", *(_gain_over(by_method.get(b)) for b in group.baselines)])
    better = "below 0 is better" if group.unit.startswith("errors") else "above 0 is better"
    title = f"The neural SVM minus each baseline, seed by seed ({better}): mean and 95 % interval."
    return f"{title}\n\n{markdown_table(head, rows)}"


def score_of(s: Summary | None) -> str:
    """Format the score of a method, if there is one."""
    if s is None:
        return ""
    return s.score.spread if s.trained else f"{s.score.spread}, {UNTRAINED}"


def _gain_over(s: Summary | None) -> str:
    """Format the gain over a method; a network that has not learnt anything is no baseline."""
    if s is None:
        return ""
    return s.gain.signed if s.trained else UNTRAINED
