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
from nsvm_cli.comparison.records import Repetition, RunRecord, differing, distinguishing
from nsvm_cli.config.settings import flat, is_within
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.metrics import METRICS, recorded_signs, sign_of
from nsvm_cli.output import printable
from nsvm_cli.storage.run_directory import RESULT, damage_errors
from nsvm_cli.tasks import TASKS
from nsvm_cli.words import baseline_warning, generalisation, metric_name


@dataclass(frozen=True)
class Cell:
    """One candidate on one data set: runs that differ only in the seed and the fold.

    Attributes:
        dataset: the name of the data set, with settings that distinguish data sets of the same name.
        candidate: the settings that distinguish the candidate, as text.
        figures: the result of a run or, if all runs failed, the result of another candidate's run.
        runs: the finished runs, by seed and fold.
        failed: the seeds and folds of failed runs.
        guess: whether failed runs get the score of guessing.
        metric: the metric to compare by; None for the metric of the task.
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
    def sign(self) -> int:
        """1 if larger scores are better, otherwise -1."""
        return sign_of(self.figure, self.figures)

    @property
    def samples(self) -> int | None:
        """The number of held-out samples if the metric is the accuracy, else None."""
        samples = self.figures["data"]["samples"]
        return int(samples[self.split]) if self.figure == "accuracy" else None

    @cached_property
    def scores(self) -> dict[Repetition, float]:
        """The scores by seed and fold. Accuracies are in percent, and runs without a score are skipped."""
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
        official = "official_split" if self.split == "test" else "official_validation"
        has_no_overlap = data["generated"] or data.get(official, False)
        return 0.0 if has_no_overlap else float(data["samples"][self.split] / data["samples"]["train"])

    @property
    def unit(self) -> str:
        name = metric_name(self.figure, self.figures["data"].get("classes", ())).replace("^2", "²")
        return name if self.samples is None else f"{name}, %"

    @cached_property
    def score(self) -> Estimate:
        """The mean score over the seeds; NaN if all runs failed."""

        def interval(scores: intervals.Values) -> intervals.Inferred:
            if self.samples is None:
                bounds = (0.0, None) if self.sign < 0 else (None, 1.0)
                return intervals.mean_test(scores, self.overlap)[:2].clip(*bounds)
            return 100 * intervals.proportion_interval(scores / 100, self.samples, self.overlap)

        return estimate([*self.scores.values()], self.digits, interval)

    @property
    def digits(self) -> int:
        """The number of decimals of a score."""
        return 4 if self.samples is None else 2

    def minus(self, other: Cell) -> Estimate:
        """Estimate the mean difference from another cell's scores, over the seeds that both cells have."""
        shared = [seed for seed in self.scores if seed in other.scores]
        # rounded, so that differences of the same number of errors are equal
        gains = [round(self.scores[seed] - other.scores[seed], 10) for seed in shared]
        # equal gains do not show how much the seeds vary
        if self.samples is None and len({*gains}) == 1 and gains[0]:
            return estimate(gains, self.digits, lambda differences: np.full(3, math.nan))
        overlap, error = max(self.overlap, other.overlap), 0.0 if self.samples is None else 100 / self.samples
        return estimate(gains, self.digits, partial(intervals.mean_test, overlap=overlap, error=error))

    @property
    def seeds(self) -> str:
        """The number of seeds with a score and the number of failed runs, as text."""
        failures, total = len(self.failed), len(self.runs) + len(self.failed)
        if not failures:
            return str(total)
        if len(self.scores) == total:
            return f"{total} ({failures} guessed)"
        return f"{len(self.runs)} of {total} ({failures} failed)"

    @property
    def title(self) -> str:
        """The data set, the split and the metric of the scores."""
        return f"{self.dataset}: {self.split} {self.unit}"

    @property
    def sources(self) -> set[str]:
        """The checksums and names of the data from which the samples were chosen."""
        data = [run.figures["data"] for run in self.runs.values()]
        return {name for entry in data for name in (entry["sha256"], *entry["origins"])}

    @property
    def part_steps(self) -> str:
        """The mean number of steps of each part of the algorithm, such as ``6000+10000``."""
        parts = zip(*(run.figures.get("part_steps") or [] for run in self.runs.values()), strict=False)
        return "+".join(f"{fmean(steps):.0f}" for steps in parts)

    def mean(self, figure: str) -> float:
        """Return the mean over the finished runs; NaN if no run has finished, or if a run lacks the value."""
        values: list[Any] = [run.figures.get(figure) for run in self.runs.values()]
        return math.nan if None in values or not values else fmean(values)


def cells(records: Sequence[RunRecord], guess: bool = False, split: str | None = None) -> list[Cell]:
    """Return the cells of the finished and failed runs, grouped by data set.

    If several runs have the same settings and seed, only the first finished run counts. The scores use the
    metric that all runs set or, if the runs set different metrics, the metric of their task.

    Args:
        guess: whether failed runs get the score of a guess: the accuracy of the most frequent training class,
            as recorded by a finished run on the same data set, or an R^2 of 0.
        split: the split of the scores, by default the validation set if all runs have one, else the test set.

    Raises:
        InputError: no run has finished, a result is damaged, or runs were not evaluated on the same data.
    """
    finished = [record for record in records if record.status == "finished"]
    if not finished:
        raise InputError("there are no finished runs to compare; list the runs with nsvm runs")
    metric = metrics.pop() if len(metrics := named_metrics(finished)) == 1 else None
    if guess and metric:
        raise InputError(
            f"--failed guess requires accuracy or R^2 as the metric, but the runs set metric={metric}"
        )
    split = _split(finished, split, metric)
    for record in finished:
        _expect_figures(record, split, metric)
    ended = [*finished, *filter(_has_failed, records)]
    names = _cell_names(ended)
    _expect_the_same_data(finished, names)
    examples = {dataset: run for (dataset, _), run in zip(names, finished, strict=False)}
    groups = defaultdict[tuple[str, str], list[RunRecord]](list)
    for name, run in zip(names, ended, strict=True):
        groups[name].append(run)
    result = []
    for (dataset, candidate), group in sorted(groups.items(), key=lambda item: item[0][0]):
        successful = [run for run in group if run.status == "finished"]
        runs = dict(sorted({run.repetition: run for run in reversed(successful)}.items()))
        failed = sorted({run.repetition for run in group if run.status == "failed"} - runs.keys())
        figures = next(iter(runs.values()), examples.get(dataset, finished[0])).figures
        result.append(Cell(dataset, candidate, split, figures, runs, failed, guess, metric))
    return result


def named_metrics(records: Iterable[RunRecord]) -> set[str | None]:
    """Return the metrics that are set in the runs, with None for the metric of the task."""
    names = set[str | None]()
    for record in records:
        choices = {*METRICS, *recorded_signs(record.figures)} - {task.metric for task in TASKS.values()}
        name = str(record.settings.get("metric"))
        names.add(name if name in choices else None)
    return names


def _has_failed(record: RunRecord) -> bool:
    """Return whether a run failed and its settings contain its algorithm, data set and seed."""
    parts = [record.settings.get(part) for part in ("algorithm", "dataset")]
    have_names = all(isinstance(part, dict) and "name" in part for part in parts)
    return record.status == "failed" and have_names and isinstance(record.settings.get("seed"), int)


def _split(records: Sequence[RunRecord], requested: str | None, metric: str | None) -> str:
    """Return the ``requested`` split or, if None, the first held-out split on which all runs have a score."""
    reasons = []
    for split in ("validation", "test") if requested is None else (requested,):
        names = [f"{split}_{name}" for name in ([metric] if metric else ["accuracy", "r2"])]
        unscored = [r.path for r in records if all(r.figures.get(name) is None for name in names)]
        if not unscored:
            return split
        reasons.append(f"{unscored[0]} has no score on {split} data")
    raise InputError(f"{', and '.join(reasons)}: compare runs that were evaluated on the same split")


def _expect_figures(record: RunRecord, split: str, metric: str | None) -> None:
    """Check the result of a run, which may come from an untrusted source."""
    cell = Cell("", "", split, record.figures, {(0, ""): record}, metric=metric)
    with damage_errors(record.path / RESULT):
        names = [record.settings[part]["name"] for part in ("algorithm", "dataset")]
        numbers = [record.repetition[0], cell.scores[0, ""], cell.overlap]
        numbers += [cell.mean("train_seconds"), record.figures["support_vectors"] or 0]
        numbers += [float(record.figures.get(f"{split}_majority_accuracy") or 0)]
        numbers += [record.figures.get("theta_steps") or 0, *(record.figures.get("part_steps") or [])]
        for sentence in (baseline_warning, generalisation):
            sentence(record.figures, split)  # raises a TypeError for scores that are not numbers
        if not all([*names, cell.sources]) or not all(map(math.isfinite, numbers)):
            raise ValueError("expected names, samples and finite numbers")


def _cell_names(records: Sequence[RunRecord]) -> list[tuple[str, str]]:
    """Return the names of the data set and the candidate of each run, with settings that make them unique."""
    sets = [str(run.settings["dataset"]["name"]) for run in records]
    algorithms = [str(run.settings["algorithm"]["name"]) for run in records]
    texts = _distinctions(records, sets, of_data=True)
    datasets = [printable(f"{name} {text}".strip()) for name, text in zip(sets, texts, strict=True)]
    texts = _distinctions(records, [*zip(datasets, algorithms, strict=True)], of_data=False)
    has_several = len({*algorithms}) > 1
    return [
        (dataset, printable(f"{name} {text}".strip() if has_several else text or name))
        for dataset, name, text in zip(datasets, algorithms, texts, strict=True)
    ]


PREPROCESSING = ("dataset.scaling", "dataset.augment", "dataset.max_codes")
"""Settings of data sets that distinguish candidates, since the samples are the same."""

ONLY_HOW = (
    *("seed", "curves", "log_every", "plugins", "memory_budget", "device", "threads", "engine"),
    *("dataset.root", "dataset.fold", "checkpoint", "logger", "validation"),
)
"""Settings that do not distinguish candidates: they select a repetition, or how a run is computed."""


def _distinctions(records: Sequence[RunRecord], groups: Sequence[Any], of_data: bool) -> list[str]:
    """Return as text, for each run, a minimal set of settings that distinguishes the run within its group."""
    result, chosen = [""] * len(records), distinguishing(records)
    for group in dict.fromkeys(groups):
        rows = [row for row, other in enumerate(groups) if other == group]
        runs = [records[row] for row in rows]
        differ = [
            key
            for key in differing(runs)
            if (key.startswith(("dataset.", "task")) and key not in PREPROCESSING) == of_data
            and not is_within(key, ONLY_HOW)
        ]
        preferred = [key for key in differ if key in chosen]
        full_texts = {_settings_text(run, differ) for run in runs}
        for keys, is_brief in product((preferred, differ), (True, False)):
            texts = [_settings_text(run, keys, is_brief) for run in runs]
            if len({*texts}) == len(full_texts):
                break
        for row, text in zip(rows, texts, strict=True):
            result[row] = text
    return result


def _settings_text(record: RunRecord, keys: Sequence[str], is_brief: bool = False) -> str:
    """Return settings of a run as text: names of components, then KEY=VALUE with the shortest unique keys."""
    values, last_parts = flat(record.settings), Counter(key.rpartition(".")[2] for key in keys)
    texts = []
    for key in sorted(keys, key=lambda key: not key.endswith(".name")):
        last = key.rpartition(".")[2]
        start = "" if last == "name" else f"{key if last_parts[last] > 1 else last}="
        if (value := values.get(key)) is not None:
            text = f"{value:.4g}" if is_brief and isinstance(value, float) else str(value)
            texts.append(f"{start}{text}")
    return " ".join(texts)


def _expect_the_same_data(records: Sequence[RunRecord], names: Sequence[tuple[str, str]]) -> None:
    """Raise an InputError if runs with the same data set and seed were trained on different data."""
    first: dict[tuple[Any, ...], RunRecord] = {}
    for (dataset, _), run in zip(names, records, strict=False):
        # codes are additional features, which change the checksum
        codes = run.settings["dataset"].get("max_codes")
        for key, encoding in (("samples", None), ("sha256", codes)):
            other = first.setdefault((key, dataset, run.repetition, encoding), run)
            if run.figures["data"][key] != other.figures["data"][key]:
                settings = f"dataset={dataset} and seed={run.repetition[0]}"
                raise InputError(
                    f"{other.path} and {run.path} have {settings}, but were trained on different data: "
                    "compare runs with the same data"
                )


@dataclass(frozen=True)
class Comparison:
    """One candidate on one data set, compared with the reference.

    Attributes:
        minus: the mean score minus the reference's, over the seeds that both have; None for the reference.
        p: the adjusted p-value of the paired t-test with the reference (see ``compare``); NaN without a test.
        rank: the rank of the mean score on the data set, from 1 for the best; NaN without a score.
    """

    cell: Cell
    minus: Estimate | None
    p: float
    rank: float


def compare(candidates: Sequence[Cell], against: str | None = None) -> list[Comparison]:
    """Compare the candidates of each data set with a reference, and return them in order, the best first.

    The reference is the candidate ``against`` or, by default, the best candidate of each data set. Since the
    best candidate is partly best by chance, p-values are then adjusted for all k (k - 1) / 2 pairs of
    candidates.

    Raises:
        InputError: there is no candidate ``against``.
    """
    names = sorted({cell.candidate for cell in candidates})
    if against is not None and against not in names:
        raise InputError(f"--against {against}: there is no such candidate; {did_you_mean(against, names)}")
    rows = []
    for _, group in groupby(candidates, lambda cell: cell.dataset):
        ordered = [*group]
        ranks = rankdata([-cell.sign * cell.score.mean for cell in ordered], nan_policy="omit")
        order = np.argsort(ranks, kind="stable")  # cells without a score, whose rank is NaN, last
        ordered = [ordered[n] for n in order]
        minus, p = dict[str, Estimate](), dict[str, float]()
        reference = next((cell for cell in ordered if against in (None, cell.candidate)), None)
        if reference is not None:
            rivals = [cell for cell in ordered if cell is not reference]
            minus = {cell.candidate: cell.minus(reference) for cell in rivals}
            pairs = product([reference], rivals) if against else combinations([reference, *rivals], 2)
            adjusted = intervals.holm([cell.minus(other).p for cell, other in pairs])
            p = {cell.candidate: value for cell, value in zip(rivals, adjusted, strict=False)}
        rows += [
            Comparison(cell, minus.get(cell.candidate), p.get(cell.candidate, math.nan), float(rank))
            for cell, rank in zip(ordered, ranks[order], strict=True)
        ]
    return rows


FEWEST_BLOCKS = 3
"""Minimum number of candidates, and of data sets or seeds, for Friedman's test."""


@dataclass(frozen=True)
class Ranking:
    """The mean ranks of the candidates over several data sets, or over the seeds of a single data set.

    Attributes:
        ranks: the mean rank of each candidate, the best first.
        over: the number and kind of ranked blocks, such as ``5 data sets``.
        p: the p-value of Friedman's test that all mean ranks are equal.
        critical: the smallest difference of mean ranks that is significant at the 5 % level (Nemenyi's test;
            Demsar, Statistical comparisons of classifiers over multiple data sets, 2006).
    """

    ranks: Mapping[str, float]
    over: str
    p: float
    critical: float

    @property
    def test(self) -> str:
        """The outcome of Friedman's test as text."""
        p = "undefined, because all scores are equal" if math.isnan(self.p) else f"p = {self.p:.3g}"
        return f"Friedman's test of equal mean ranks: {p}"


def ranking(candidates: Sequence[Cell]) -> Ranking | None:
    """Rank the candidates over several data sets, or over the seeds of a single data set.

    Candidates with scores on fewer than three data sets (or seeds) are skipped, and then data sets on which a
    remaining candidate has no score. Return None if fewer than three candidates or data sets remain, or if
    the data sets are not independent.
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
    ranks = table.rank(axis=1, ascending=candidates[0].sign < 0).mean().sort_values(kind="stable")
    with np.errstate(invalid="ignore"):  # NaN if all are equal
        p = float(friedmanchisquare(*table.to_numpy().T).pvalue)
    q = float(studentized_range.ppf(intervals.LEVEL, k, np.inf)) / math.sqrt(2)
    critical = q * math.sqrt(k * (k + 1) / (6 * n))
    over = f"{n} {'seeds' if over_seeds else 'data sets'}"
    return Ranking({str(name): rank for name, rank in ranks.items()}, over, p, critical)


def shared_samples(candidates: Sequence[Cell]) -> bool:
    """Return whether seeds or data sets share samples, so that ranks over them are not independent."""
    if len({cell.candidate for cell in candidates}) < FEWEST_BLOCKS:
        return False
    sources: dict[str, set[str]] = {}
    for cell in candidates:
        sources.setdefault(cell.dataset, set()).update(cell.sources)
    if len(sources) == 1:
        return any(cell.overlap for cell in candidates)
    return sum(map(len, sources.values())) > len(set().union(*sources.values()))
