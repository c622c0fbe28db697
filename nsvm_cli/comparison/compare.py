"""Comparison of settings over repeated runs: mean scores, paired tests and ranks."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations, groupby, product
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from nsvm_cli.comparison import intervals
from nsvm_cli.comparison.intervals import Estimate, estimate
from nsvm_cli.comparison.records import ONLY_HOW, Repetition, RunRecord, differing, telling
from nsvm_cli.config.settings import flat
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.output import printable
from nsvm_cli.storage.run_directory import RESULT, reading
from nsvm_cli.tasks import TASKS
from nsvm_cli.words import TASK_METRICS, metric_name, sign_of


@dataclass(frozen=True)
class Cell:
    """One candidate on one data set: runs that differ only in the seed and the fold.

    Attributes:
        dataset: the name of the data set, with the settings that tell it from others of this name.
        candidate: the settings that tell the candidate from others, in words.
        split: the held-out split of the scores, ``test`` or ``validation``.
        figures: the result of one of the runs; if all failed, of another candidate's on the same data set.
        runs: the finished runs, by seed and fold.
        failed: the seeds and folds of failed runs.
        guess: whether failed runs score as guessing does.
        metric: the metric to compare by, in place of the task's.
    """

    dataset: str
    candidate: str
    split: str
    figures: Mapping[str, Any]
    runs: Mapping[Repetition, RunRecord]
    failed: Sequence[Repetition] = ()
    guess: bool = False
    metric: str | None = None

    @property
    def figure(self) -> str:
        """The metric of the scores."""
        return self.metric or ("accuracy" if f"{self.split}_accuracy" in self.figures else "r2")

    @property
    def samples(self) -> int | None:
        """The number of samples that errors are counted on; None for metrics other than the accuracy."""
        samples = self.figures["data"]["samples"]
        return int(samples[self.split]) if self.figure == "accuracy" else None

    @cached_property
    def scores(self) -> dict[Repetition, float]:
        """The accuracy in percent, or the other metric, by seed and fold; without runs that have none."""
        scores = {seed: run.figures[f"{self.split}_{self.figure}"] for seed, run in self.runs.items()}
        if self.guess:
            majority = self.figures.get(f"{self.split}_majority_accuracy")
            scores |= dict.fromkeys(self.failed, majority if self.samples else 0.0)
        unit = 100 if self.samples else 1
        return {seed: unit * float(score) for seed, score in scores.items() if score is not None}

    @property
    def overlap(self) -> float:
        """The ratio of held-out to training samples if seeds split the same samples differently, else 0."""
        data = self.figures["data"]
        own = "official_split" if self.split == "test" else "official_validation"
        alone = data["generated"] or data.get(own, False)
        return 0.0 if alone else float(data["samples"][self.split] / data["samples"]["train"])

    @property
    def unit(self) -> str:
        name = metric_name(self.figure, self.figures["data"].get("classes", ())).replace("^2", "²")
        return name if self.samples is None else f"{name}, %"

    @cached_property
    def score(self) -> Estimate:
        """The mean score over the seeds; NaN if all runs failed."""

        def interval(scores: intervals.Values) -> intervals.Inferred:
            if self.samples is None:
                low, high, _ = intervals.mean_test(scores, self.overlap)
                ends = (0.0, None) if sign_of(self.figure) < 0 else (None, 1.0)
                return np.stack([low, high]).clip(*ends)
            return 100 * intervals.proportion_interval(scores / 100, self.samples, self.overlap)

        return estimate([*self.scores.values()], self.digits, interval)

    @property
    def digits(self) -> int:
        """The number of decimals of a score."""
        return 4 if self.samples is None else 2

    def minus(self, other: Cell) -> Estimate:
        """Estimate the mean difference to the other's scores, over the seeds that both have."""
        shared = [seed for seed in self.scores if seed in other.scores]
        # rounded, so that differences of the same number of errors are equal
        more = [round(self.scores[seed] - other.scores[seed], 10) for seed in shared]
        if self.samples is None and len({*more}) == 1 and more[0]:  # the seeds say nothing about the spread
            return estimate(more, self.digits, lambda differences: np.full(3, math.nan))
        overlap, error = max(self.overlap, other.overlap), 0.0 if self.samples is None else 100 / self.samples
        return estimate(more, self.digits, partial(intervals.mean_test, overlap=overlap, error=error))

    @property
    def seeds(self) -> str:
        """The number of seeds with a score, and of failed runs, as text."""
        lost, tried = len(self.failed), len(self.runs) + len(self.failed)
        if not lost:
            return str(tried)
        if len(self.scores) == tried:
            return f"{tried} ({lost} guessed)"
        return f"{len(self.runs)} of {tried} ({lost} failed)"

    @property
    def title(self) -> str:
        """The data set, the split and the metric of the scores."""
        return f"{self.dataset}: {self.split} {self.unit}"

    @property
    def sources(self) -> set[str]:
        """Checksums and names of the data that the samples were chosen from."""
        data = [run.figures["data"] for run in self.runs.values()]
        return {name for entry in data for name in (entry["sha256"], *entry["origins"])}

    @property
    def part_steps(self) -> str:
        """The mean steps of each part of the algorithm, such as ``6000+10000``."""
        parts = zip(*(run.figures.get("part_steps") or [] for run in self.runs.values()), strict=False)
        return "+".join(f"{fmean(steps):.0f}" for steps in parts)

    def mean(self, figure: str) -> float:
        """Return the mean of a figure over the finished runs; NaN if one has none, or none has finished."""
        values: list[Any] = [run.figures.get(figure) for run in self.runs.values()]
        return math.nan if None in values or not values else fmean(values)


def cells(records: Sequence[RunRecord], guess: bool = False, split: str | None = None) -> list[Cell]:
    """Return the cells of the finished and failed runs among the records, grouped by data set.

    Of runs with the same settings and seed, the first finished one counts. A ``guess`` for failed runs is the
    most frequent class of the training set, whose accuracy a finished run on the same data set has recorded,
    or an R^2 of 0. Scores are on a ``split``, by default the validation set if all runs have one, or else the
    test set, by the metric that all runs name, or else their task's.

    Raises:
        InputError: no run has finished, a result is damaged, or runs were not evaluated on the same data.
    """
    finished = [record for record in records if record.status == "finished"]
    if not finished:
        raise InputError("expected finished runs to compare, got none; see nsvm runs")
    metric = names.pop() if len(names := named_metrics(finished)) == 1 else None
    if guess and metric:
        raise InputError(f"--failed guess: expected runs that go by the accuracy or R^2, not metric={metric}")
    split = _split(finished, split, metric)
    for record in finished:
        _expect_figures(record, split, metric)
    tried = [*finished, *filter(_has_failed, records)]
    places = _places(tried)
    _expect_the_same_data(finished, places)
    like = {dataset: run for (dataset, _), run in zip(places, finished, strict=False)}
    groups = defaultdict[tuple[str, str], list[RunRecord]](list)
    for place, run in zip(places, tried, strict=True):
        groups[place].append(run)
    result = []
    for (dataset, candidate), group in sorted(groups.items(), key=lambda item: item[0][0]):
        done = [run for run in group if run.status == "finished"]
        runs = dict(sorted({run.repetition: run for run in reversed(done)}.items()))
        failed = sorted({run.repetition for run in group if run.status == "failed"} - runs.keys())
        figures = next(iter(runs.values()), like.get(dataset, finished[0])).figures
        result.append(Cell(dataset, candidate, split, figures, runs, failed, guess, metric))
    return result


def named_metrics(records: Iterable[RunRecord]) -> set[str | None]:
    """Return the metrics that runs name; None stands for the metric of their task."""
    others = TASK_METRICS.keys() - {task.metric for task in TASKS.values()}
    names = {str(record.settings.get("metric")) for record in records}
    return {name if name in others else None for name in names}


def _has_failed(record: RunRecord) -> bool:
    """Return whether a run failed with settings that name its algorithm, data set and seed."""
    parts = [record.settings.get(part) for part in ("algorithm", "dataset")]
    named = all(isinstance(part, dict) and "name" in part for part in parts)
    return record.status == "failed" and named and isinstance(record.settings.get("seed"), int)


def _split(records: Sequence[RunRecord], asked: str | None, metric: str | None) -> str:
    """Return the held-out split that all runs were evaluated on, or the one asked for."""
    lacking = {}
    for split in ("validation", "test") if asked is None else (asked,):
        names = [f"{split}_{name}" for name in ([metric] if metric else ["accuracy", "r2"])]
        lacking[split] = [r.path for r in records if all(r.figures.get(name) is None for name in names)]
        if not lacking[split]:
            return split
    without = ", and ".join(f"{paths[0]} has no score on {split} data" for split, paths in lacking.items())
    raise InputError(f"{without}: compare runs that were evaluated on the same")


def _expect_figures(record: RunRecord, split: str, metric: str | None) -> None:
    """Validate the result of a run, which may come from someone else."""
    cell = Cell("", "", split, record.figures, {(0, ""): record}, metric=metric)
    with reading(record.path / RESULT):
        names = [record.settings[part]["name"] for part in ("algorithm", "dataset")]
        numbers = [record.repetition[0], cell.scores[0, ""], cell.overlap]
        numbers += [cell.mean("train_seconds"), record.figures["support_vectors"] or 0]
        numbers += [float(record.figures.get(f"{split}_majority_accuracy") or 0)]
        numbers += [record.figures.get("theta_steps") or 0, *(record.figures.get("part_steps") or [])]
        if not all([*names, cell.sources]) or not all(map(math.isfinite, numbers)):
            raise ValueError("expected names, samples and finite numbers")


def _places(records: Sequence[RunRecord]) -> list[tuple[str, str]]:
    """Return the names of the data set and the candidate of each run.

    A candidate is named after its algorithm if there are several. Both names include the settings that tell
    them from others: a data set from all others, a candidate from others on the same data set.
    """
    sets = [str(run.settings["dataset"]["name"]) for run in records]
    algorithms = [str(run.settings["algorithm"]["name"]) for run in records]
    words = _distinctions(records, sets, of_data=True)
    datasets = [printable(f"{name} {more}".strip()) for name, more in zip(sets, words, strict=True)]
    words = _distinctions(records, [*zip(datasets, algorithms, strict=True)], of_data=False)
    several = len({*algorithms}) > 1
    return [
        (dataset, printable(f"{name} {more}".strip() if several else more or name))
        for dataset, name, more in zip(datasets, algorithms, words, strict=True)
    ]


def _distinctions(records: Sequence[RunRecord], groups: Sequence[Any], of_data: bool) -> list[str]:
    """Return, in words, the fewest settings that tell each run from others of its group.

    The settings are of the data set, or else of the candidate. They include ones that nobody overrode where
    that is necessary, as between two versions of nsvm.
    """
    words, chosen, neither = [""] * len(records), telling(records), ("checkpoint.", "logger.", "validation.")
    for group in dict.fromkeys(groups):
        rows = [row for row, other in enumerate(groups) if other == group]
        runs = [records[row] for row in rows]
        differ = [
            key
            for key in differing(runs)
            if key.startswith(("dataset.", "task")) == of_data
            and key not in ONLY_HOW
            and not key.startswith(neither)
        ]
        overridden, full = [key for key in differ if key in chosen], {_in_words(run, differ) for run in runs}
        for keys, brief in product((overridden, differ), (True, False)):
            texts = [_in_words(run, keys, brief) for run in runs]
            if len({*texts}) == len(full):
                break
        for row, text in zip(rows, texts, strict=True):
            words[row] = text
    return words


def _in_words(record: RunRecord, keys: Sequence[str], brief: bool = False) -> str:
    """Return the settings of a run in words, names of components first.

    A name stands alone, any other value behind its key, shortened to the last part unless another of the
    ``keys`` ends alike.
    """
    values, last = flat(record.settings), Counter(key.rpartition(".")[2] for key in keys)
    words = []
    for key in sorted(keys, key=lambda key: not key.endswith(".name")):
        short = key.rpartition(".")[2]
        named = "" if short == "name" else f"{key if last[short] > 1 else short}="
        if (value := values.get(key)) is not None:
            words.append(f"{named}{value:.4g}" if brief and isinstance(value, float) else f"{named}{value}")
    return " ".join(words)


def _expect_the_same_data(records: Sequence[RunRecord], places: Sequence[tuple[str, str]]) -> None:
    """Raise an error unless runs with the same data set and seed were trained on the same data."""
    first: dict[tuple[str, Repetition], RunRecord] = {}
    for (dataset, _), run in zip(places, records, strict=False):
        other = first.setdefault((dataset, run.repetition), run)
        ours, theirs = (r.figures["data"] for r in (other, run))
        if any(ours[key] != theirs[key] for key in ("sha256", "samples")):
            same = f"dataset={dataset} and seed={run.repetition[0]}"
            raise InputError(
                f"{other.path} and {run.path} were trained on different data, though both have {same}"
            )


@dataclass(frozen=True)
class Comparison:
    """One candidate on one data set, compared with the others.

    Attributes:
        minus: the mean score minus the reference's, over the seeds that both have; None for the reference.
        p: the p-value of the paired t-test with the reference, adjusted for the tests of all pairs on the
            data set, or for the tests with the reference if the user named it; NaN without a test.
        rank: the rank of the mean score on the data set, 1 for the best; ties share the mean of their ranks;
            NaN without a score.
    """

    cell: Cell
    minus: Estimate | None
    p: float
    rank: float


def compare(candidates: Sequence[Cell], against: str | None = None) -> list[Comparison]:
    """Compare the candidates of each data set, the best first, with the best or the one named ``against``.

    Chance favours the best. If only the k - 1 tests with it counted, some of k equal candidates would seem
    worse far too often; so unless the reference was named, p-values are adjusted for all k (k - 1) / 2
    pairs. They then hold for whichever pairs the scores choose.

    Raises:
        InputError: ``against`` names no candidate.
    """
    names = sorted({cell.candidate for cell in candidates})
    if against is not None and against not in names:
        raise InputError(f"--against {against}: there is no such candidate; {did_you_mean(against, names)}")
    rows = []
    for _, group in groupby(candidates, lambda cell: cell.dataset):
        ordered = [*group]
        ranks = rankdata([-sign_of(cell.figure) * cell.score.mean for cell in ordered], nan_policy="omit")
        order = np.argsort(ranks, kind="stable")  # cells without a score, whose rank is NaN, last
        ordered = [ordered[n] for n in order]
        minus, p = dict[str, Estimate](), dict[str, float]()
        reference = next((cell for cell in ordered if against in (None, cell.candidate)), None)
        if reference is not None:
            others = [cell for cell in ordered if cell is not reference]
            minus = {cell.candidate: cell.minus(reference) for cell in others}
            pairs = product([reference], others) if against else combinations([reference, *others], 2)
            adjusted = intervals.holm([one.minus(other).p for one, other in pairs])
            p = {cell.candidate: value for cell, value in zip(others, adjusted, strict=False)}
        rows += [
            Comparison(cell, minus.get(cell.candidate), p.get(cell.candidate, math.nan), float(rank))
            for cell, rank in zip(ordered, ranks[order], strict=True)
        ]
    return rows


FEWEST_BLOCKS = 3
"""Candidates, and data sets or seeds, that Friedman's test needs."""


@dataclass(frozen=True)
class Ranking:
    """The mean ranks of the candidates over several data sets, or over the seeds of one.

    Attributes:
        ranks: the mean rank of each candidate, the best first.
        over: the number and kind of blocks, such as ``5 data sets``.
        p: the p-value of Friedman's test that all candidates have the same mean rank.
        critical: the smallest difference of mean ranks that is significant at the 5 % level (Nemenyi's test;
            Demsar, Statistical comparisons of classifiers over multiple data sets, 2006).
    """

    ranks: Mapping[str, float]
    over: str
    p: float
    critical: float

    @property
    def test(self) -> str:
        """The outcome of Friedman's test."""
        p = "undefined, as all are equal" if math.isnan(self.p) else f"p = {self.p:.3g}"
        return f"Friedman's test of equal mean ranks: {p}"


def ranking(candidates: Sequence[Cell]) -> Ranking | None:
    """Rank the candidates over the data sets that all have scores on, or over the seeds of a single data set.

    Candidates with scores on fewer than three are not ranked. Return None for fewer than three candidates, or
    fewer than three common data sets or seeds, or if these are not independent (see ``shared_samples``).
    """
    import pandas as pd  # slow to import, and needed only here

    candidates = [cell for cell in candidates if cell.scores]
    if shared_samples(candidates):
        return None
    over_seeds = len({cell.dataset for cell in candidates}) == 1
    scores = defaultdict[str, dict[Any, float]](dict)
    for cell in candidates:
        scores[cell.candidate] |= cell.scores if over_seeds else {cell.dataset: cell.score.mean}
    table = pd.DataFrame(scores).dropna(axis="columns", thresh=FEWEST_BLOCKS).dropna()
    n, k = table.shape
    if k < FEWEST_BLOCKS or n < FEWEST_BLOCKS:
        return None
    ranks = table.rank(axis=1, ascending=sign_of(candidates[0].figure) < 0).mean().sort_values(kind="stable")
    with np.errstate(invalid="ignore"):  # NaN if all are equal
        p = float(friedmanchisquare(*table.to_numpy().T).pvalue)
    q = float(studentized_range.ppf(intervals.LEVEL, k, np.inf)) / math.sqrt(2)
    critical = q * math.sqrt(k * (k + 1) / (6 * n))
    over = f"{n} {'seeds' if over_seeds else 'data sets'}"
    return Ranking({str(name): rank for name, rank in ranks.items()}, over, p, critical)


def shared_samples(candidates: Sequence[Cell]) -> bool:
    """Return whether there are ranks whose blocks share samples, where Friedman's test assumes independence.

    Seeds that split the same samples are not independent: a candidate that these samples happen to suit ranks
    high with every seed. Nor are data sets with a source in common, such as one data set with validation sets
    of several sizes, or with several choices of its classes.
    """
    if len({cell.candidate for cell in candidates}) < FEWEST_BLOCKS:
        return False
    sources: dict[str, set[str]] = {}
    for cell in candidates:
        sources.setdefault(cell.dataset, set()).update(cell.sources)
    if len(sources) == 1:
        return any(cell.overlap for cell in candidates)
    return sum(map(len, sources.values())) > len(set().union(*sources.values()))
