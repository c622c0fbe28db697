"""The results of a reproduction, summarised over the seeds, and the tables of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from nsvm_cli.datasets.ringnorm import bayes_accuracy
from nsvm_cli.studies.intervals import FEWEST_SEEDS, Estimate, estimate, estimate_difference
from nsvm_cli.studies.reproduce import METHODS, Row, is_ringnorm

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

NOTES = """\
SVC on its features: scikit-learn's SVC on the trained features, with the cell's kernel and C = 1/(λm). Same
network, no SVM: a linear head and cross-entropy, trained for as many gradient steps, with as many samples a
step as the algorithm draws. SVC on the inputs: scikit-learn's SVC with its default C and gamma, not tuned.
"""
FROZEN = """
Frozen features: the same network with its initial, random θ, and the cell's SVM on top: what training θ adds.
"""
UNTRAINED = "not trained"


@dataclass(frozen=True)
class Summary:
    """One method in one cell. ``scores``, one per seed, are in ``unit``; ``gain`` is the neural SVM's score
    minus this method's, seed by seed. ``trained`` says whether it has trained with every seed. The remaining
    figures are means.
    """

    cell: str
    method: str
    seeds: int
    unit: str
    overlap: float
    generated: bool
    scores: list[float]
    score: Estimate
    gain: Estimate
    seconds: float | None
    support_vectors: float | None
    trained: bool = True


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
    ours, theirs = ([row.errors for row in rows] for rows in (nsvm, chosen))
    first, overlap = chosen[0], max(row.overlap for row in (*nsvm, *chosen))
    score, gain = estimate(theirs, first.samples, overlap), estimate_difference(ours, theirs, overlap)
    if is_ringnorm(first.dataset):
        percent = 100 / first.samples
        score, gain = score.times(-percent, plus=100.0), gain.times(-percent)
    return Summary(
        cell,
        first.method,
        len(chosen),
        _unit(first),
        overlap,
        first.generated,
        [_score(row) for row in chosen],
        score,
        gain,
        _mean([row.seconds for row in chosen]),
        _mean([row.support_vectors for row in chosen]),
        all(row.trained for row in chosen),
    )


def _unit(row: Row) -> str:
    return "accuracy, %" if is_ringnorm(row.dataset) else f"errors of {row.samples}"


def _score(row: Row) -> float:
    """Return accuracy for Ringnorm and the number of errors for images, as the paper does."""
    return 100 * row.accuracy if is_ringnorm(row.dataset) else float(row.errors)


def _mean(values: Sequence[float | int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


Cells = dict[str, dict[str, Summary]]
"""Summaries by cell, then by method; every cell has the same methods."""


def by_unit(summaries: Sequence[Summary]) -> dict[str, Cells]:
    """Group the summaries by unit: one table each."""
    units: dict[str, Cells] = {}
    for s in summaries:
        units.setdefault(s.unit, {}).setdefault(s.cell, {})[s.method] = s
    return units


def baselines_of(cells: Cells) -> list[str]:
    """Return the methods that the neural SVMs are compared with."""
    return [method for method in next(iter(cells.values())) if method != "nsvm"]


def markdown(summaries: Sequence[Summary], full: bool) -> str:
    """Return the Markdown tables: the scores of each cell, and its differences to the baselines.

    Args:
        summaries: what ``summarise`` returns.
        full: whether to compare with the figures that the paper reports for these experiments.
    """
    parts = []
    for unit, cells in by_unit(summaries).items():
        parts += [_scores(cells, unit, full), _gains(cells, unit)]
    notes = NOTES + FROZEN if any(s.method == "frozen" for s in summaries) else NOTES
    return "\n".join([*parts, notes])


def _scores(cells: Cells, unit: str, full: bool) -> str:
    baselines = baselines_of(cells)
    head = ["", "neural SVM", "95 % interval", *(["paper, one run"] if full else []), "training, s"]
    head += ["support vectors", *(METHODS[b] for b in baselines)]
    rows = []
    for cell, by_method in cells.items():
        nsvm = by_method["nsvm"]
        row = [f"`{cell}`", spread(nsvm.score), _interval(nsvm.score)]
        row += [f"{PAPER[cell]:g}" if cell in PAPER else ""] if full else []
        row += [f"{nsvm.seconds:.1f}", f"{nsvm.support_vectors:.0f}"]
        rows.append(row + [score_of(by_method[b]) for b in baselines])
    title = f"{unit[0].upper()}{unit[1:]}: mean ± standard deviation of {nsvm.seeds} seeds"
    if "bayes" in baselines:
        title += f"; the best possible, averaged over all draws, is {100 * bayes_accuracy():.2f}"
    return f"{title}. {_interval_means(nsvm)}\n\n{_table(head, rows)}"


def _interval_means(s: Summary) -> str:
    if s.seeds < FEWEST_SEEDS:
        return f"Intervals need {FEWEST_SEEDS} seeds."
    if s.overlap:
        return "Each seed has its own split; the intervals allow for their overlap (Nadeau & Bengio, 2003)."
    if s.generated:
        return (
            "Each seed has samples of its own: the intervals cover initialisation, sampling and their choice."
        )
    return "All seeds share one test set: the intervals cover initialisation and sampling, not its choice."


def _gains(cells: Cells, unit: str) -> str:
    baselines = baselines_of(cells)
    head = ["", *(f"minus {METHODS[b]}" for b in baselines)]
    rows = []
    for cell, by_method in cells.items():
        rows.append([f"`{cell}`", *(_gain_over(by_method[b]) for b in baselines)])
    better = "below 0 is better" if unit.startswith("errors") else "above 0 is better"
    title = f"The neural SVM minus each baseline, seed by seed ({better}): mean and 95 % interval."
    return f"{title}\n\n{_table(head, rows)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def spread(e: Estimate) -> str:
    """Format mean and standard deviation."""
    return f"{e.mean:.2f}" if math.isnan(e.std) else f"{e.mean:.2f} ± {e.std:.2f}"


def score_of(s: Summary) -> str:
    """Format the score of a method."""
    return spread(s.score) if s.trained else f"{spread(s.score)}, {UNTRAINED}"


def _gain_over(s: Summary) -> str:
    """Format the gain over a method; a network that has not learnt anything is no baseline."""
    return f"{_signed(s.gain)} {_interval(s.gain, '+')}" if s.trained else UNTRAINED


def _signed(e: Estimate) -> str:
    return f"{e.mean:+.2f}"


def _interval(e: Estimate, sign: str = "") -> str:
    return "" if math.isnan(e.low) else f"[{e.low:{sign}.2f}, {e.high:{sign}.2f}]"
