"""Cells of a comparison: settings that were tried on a data set, with their runs, and the scores of these."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from nsvm_cli.comparison.intervals import Estimate, Inferred, Values, estimate, mean_test, proportion_interval
from nsvm_cli.comparison.records import ONLY_HOW, Repetition, RunRecord, differing, telling
from nsvm_cli.config.settings import flat
from nsvm_cli.errors import InputError
from nsvm_cli.output import printable
from nsvm_cli.storage.run_directory import RESULT, reading
from nsvm_cli.tasks import TASKS
from nsvm_cli.words import TASK_METRICS, metric_name, sign_of

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True)
class Cell:
    """One candidate on one data set: the runs that differ in nothing but the seed, and the fold.

    Attributes:
        dataset: the name of the data set, with the settings that tell it from others of that name.
        candidate: the settings that tell the candidate from others, in words.
        split: the held-out data that the scores are from, ``test`` or ``validation``.
        figures: those of one of the runs, or of another candidate's on the same data set, if there is one.
        runs: those that have finished, by seed and fold.
        failed: seed and fold of those that failed.
        guess: whether failed runs score as guessing does.
        metric: the figure that the runs are compared by in place of that of their task.
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
        """Of how many samples errors are counted; None for figures other than the accuracy."""
        samples = self.figures["data"]["samples"]
        return int(samples[self.split]) if self.figure == "accuracy" else None

    @cached_property
    def scores(self) -> dict[Repetition, float]:
        """The accuracy in percent, or the other figure, of each seed that has one, or fold."""
        found = {seed: run.figures[f"{self.split}_{self.figure}"] for seed, run in self.runs.items()}
        if self.guess:
            majority = self.figures.get(f"{self.split}_majority_accuracy")
            found |= dict.fromkeys(self.failed, majority if self.samples else 0.0)
        unit = 100 if self.samples else 1
        return {seed: unit * float(score) for seed, score in found.items() if score is not None}

    @property
    def overlap(self) -> float:
        """The ratio of held-out to training samples if each seed has its own split of the same, else 0."""
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

        def interval(scores: Values) -> Inferred:
            if self.samples is None:
                low, high, _ = mean_test(scores, self.overlap)
                ends = (0.0, None) if sign_of(self.figure) < 0 else (None, 1.0)
                return np.stack([low, high]).clip(*ends)
            return 100 * proportion_interval(scores / 100, self.samples, self.overlap)

        return estimate([*self.scores.values()], self.digits, interval)

    @property
    def digits(self) -> int:
        """To how many decimals the scores are shown."""
        return 4 if self.samples is None else 2

    def minus(self, other: Cell) -> Estimate:
        """Estimate the mean score minus the other's, over the seeds that both have."""
        shared = [seed for seed in self.scores if seed in other.scores]
        # rounded, for differences of the same number of errors are to be equal
        more = [round(self.scores[seed] - other.scores[seed], 10) for seed in shared]
        if self.samples is None and len({*more}) == 1 and more[0]:  # the seeds say nothing about the spread
            return estimate(more, self.digits, lambda differences: np.full(3, math.nan))
        overlap, error = max(self.overlap, other.overlap), 0.0 if self.samples is None else 100 / self.samples
        return estimate(more, self.digits, partial(mean_test, overlap=overlap, error=error))

    @property
    def seeds(self) -> str:
        """How many seeds have a score, and how many of the runs failed."""
        lost, tried = len(self.failed), len(self.runs) + len(self.failed)
        if not lost:
            return str(tried)
        if len(self.scores) == tried:
            return f"{tried} ({lost} guessed)"
        return f"{len(self.runs)} of {tried} ({lost} failed)"

    @property
    def title(self) -> str:
        """What the scores are, and on which data set."""
        return f"{self.dataset}: {self.split} {self.unit}"

    @property
    def sources(self) -> set[str]:
        """What the samples were chosen from."""
        data = [run.figures["data"] for run in self.runs.values()]
        return {name for about in data for name in (about["sha256"], *about["origins"])}

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
    """Return the cells of the finished and failed runs among these, those of a data set together.

    Of runs with the same settings and seed, the first that has finished is taken. A ``guess`` for failed runs
    is the most frequent class of the training set, whose accuracy a finished run on the same data set has
    recorded, or an R^2 of 0. Scores are those on a ``split``, by default the validation set if all runs have
    one, or else the test set, by the metric that all runs name, or else that of their task.

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
    found = []
    for (dataset, candidate), group in sorted(_grouped(tried, places).items(), key=lambda item: item[0][0]):
        done = [run for run in group if run.status == "finished"]
        runs = dict(sorted({run.repetition: run for run in reversed(done)}.items()))
        failed = sorted({run.repetition for run in group if run.status == "failed"} - runs.keys())
        figures = next(iter(runs.values()), like.get(dataset, finished[0])).figures
        found.append(Cell(dataset, candidate, split, figures, runs, failed, guess, metric))
    return found


def named_metrics(records: Iterable[RunRecord]) -> set[str | None]:
    """Return the metrics that runs name in place of that of their task, for which None stands."""
    others = TASK_METRICS.keys() - {task.metric for task in TASKS.values()}
    names = {str(record.settings.get("metric")) for record in records}
    return {name if name in others else None for name in names}


def _has_failed(record: RunRecord) -> bool:
    """Return whether a run failed and its settings, which may come from someone else, say what it was."""
    parts = [record.settings.get(part) for part in ("algorithm", "dataset")]
    named = all(isinstance(part, dict) and "name" in part for part in parts)
    return record.status == "failed" and named and isinstance(record.settings.get("seed"), int)


def _split(records: Sequence[RunRecord], asked: str | None, metric: str | None) -> str:
    """Return the held-out data that all runs were evaluated on, or those that are asked for."""
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
    """Return the names of the data set and of the candidate of each run.

    They are that of the data set and, if there are several, that of the algorithm, with the settings that
    tell them from others of this name: data sets from all, candidates from those on the same data set.
    """
    sets = [str(run.settings["dataset"]["name"]) for run in records]
    algorithms = [str(run.settings["algorithm"]["name"]) for run in records]
    words = _distinctions(records, sets, "data")
    datasets = [printable(f"{name} {more}".strip()) for name, more in zip(sets, words, strict=True)]
    words = _distinctions(records, [*zip(datasets, algorithms, strict=True)], "candidate")
    several = len({*algorithms}) > 1
    return [
        (dataset, printable(f"{name} {more}".strip() if several else more or name))
        for dataset, name, more in zip(datasets, algorithms, words, strict=True)
    ]


def _distinctions(records: Sequence[RunRecord], groups: Sequence[Any], of: str) -> list[str]:
    """Return in words the settings of each run that tell it from others of its group, as few as will do.

    Settings that were not overridden may be needed, too, as between two versions of nsvm.
    """
    words, chosen = [""] * len(records), telling(records)
    for rows in _grouped(range(len(records)), groups).values():
        runs = [records[row] for row in rows]
        differ = [key for key in differing(runs) if _belongs_to(key) == of]
        some, full = [key for key in differ if key in chosen], {_in_words(run, differ) for run in runs}
        for keys, brief in product((some, differ), (True, False)):
            texts = [_in_words(run, keys, brief) for run in runs]
            if len({*texts}) == len(full):
                break
        for row, text in zip(rows, texts, strict=True):
            words[row] = text
    return words


def _belongs_to(key: str) -> str:
    if key in ONLY_HOW or key.startswith(("checkpoint.", "logger.", "validation.")):
        return "neither"
    return "data" if key.startswith(("dataset.", "task")) else "candidate"


def _grouped(members: Iterable[T], by: Iterable[K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = {}
    for member, key in zip(members, by, strict=True):
        groups.setdefault(key, []).append(member)
    return groups


def _in_words(record: RunRecord, keys: Sequence[str], brief: bool = False) -> str:
    """Return those of these settings that the run has in words, the names of parts first.

    It is the value alone for the name of a part, and for others with the last part of the key, unless
    another of the ``keys`` has the same.
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
    """Expect that the runs of a data set with the same seed were trained on the same data."""
    first: dict[tuple[str, Repetition], RunRecord] = {}
    for (dataset, _), run in zip(places, records, strict=False):
        other = first.setdefault((dataset, run.repetition), run)
        ours, theirs = (r.figures["data"] for r in (other, run))
        if any(ours[about] != theirs[about] for about in ("sha256", "samples")):
            same = f"dataset={dataset} and seed={run.repetition[0]}"
            raise InputError(
                f"{other.path} and {run.path} were trained on different data, though both have {same}"
            )
