"""Cells of a comparison: settings that were tried on a data set, with their runs, and the scores of these."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any, TypeVar

from nsvm_cli.comparison.intervals import Estimate, Scores, recorded_overlap
from nsvm_cli.comparison.records import RunRecord, differing, telling
from nsvm_cli.config.settings import flat
from nsvm_cli.errors import InputError
from nsvm_cli.output import printable
from nsvm_cli.storage.run_directory import RESULT, reading

ONLY_HOW = (
    "seed",
    "curves",
    "log_every",
    "plugins",
    "memory_budget",
    "device",
    "threads",
    "engine",
    "dataset.root",
)
"""Settings that do not tell candidates apart: repetitions, and how or where a run was computed."""

REPEATED = (
    *("test_errors", "test_r2", "validation_errors", "validation_r2"),
    *("support_vectors", "data"),
)
"""Figures that are the same if a run is repeated."""

K = TypeVar("K")

CAUTION = "These are test scores: to choose settings, hold out samples with dataset.validation=N."


@dataclass(frozen=True)
class Cell:
    """One candidate on one data set: the runs that differ in nothing but the seed.

    Attributes:
        dataset: the name of the data set, with the settings that tell it from others of that name.
        candidate: the settings that tell the candidate from others, in words.
        split: the held-out data that the scores are from, ``test`` or ``validation``.
        runs: those that have finished, by their seeds.
        repeats: the number of runs that are left out, as they repeat one of these.
        failed: the seeds whose runs failed, each with the errors or R^2 that guessing has; None if they are
            left out, or it is not known.
        like: the figures of a finished run, on the same data set if there is one; for a cell without runs.
    """

    dataset: str
    candidate: str
    split: str
    runs: Mapping[int, RunRecord]
    repeats: int = 0
    failed: Mapping[int, int | None] = field(default_factory=dict)
    like: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def scores(self) -> Scores:
        """The scores of all seeds that have one."""
        data, errors = self.first["data"], f"{self.split}_errors"
        overlap = recorded_overlap(data, self.split)
        guesses = {seed: guess for seed, guess in self.failed.items() if guess is not None}
        if errors in self.first:
            values = {seed: int(run.figures[errors]) for seed, run in self.runs.items()}
            return Scores(values | guesses, int(data["samples"][self.split]), overlap)
        r2 = {seed: float(run.figures[f"{self.split}_r2"]) for seed, run in self.runs.items()}
        return Scores(r2 | guesses, None, overlap)

    @property
    def seeds(self) -> str:
        """How many seeds have a score, and how many of the runs failed."""
        if not self.failed:
            return str(len(self.runs))
        tried = len(self.runs) + len(self.failed)
        if len(self.scores) == tried:
            return f"{tried} ({len(self.failed)} guessed)"
        return f"{len(self.runs)} of {tried} ({len(self.failed)} failed)"

    @property
    def title(self) -> str:
        """What the scores are, and on which data set."""
        return f"{self.dataset}: {self.split} {self.scores.unit}"

    @property
    def score(self) -> Estimate:
        """The mean score over the seeds; NaN if all runs failed."""
        return self.scores.estimate

    @property
    def first(self) -> Mapping[str, Any]:
        """The figures of one of the runs, for what all of them share."""
        return next((run.figures for run in self.runs.values()), self.like)

    @property
    def official_split(self) -> bool:
        """Whether all seeds are scored on the same samples, those of an official test set."""
        return not self.scores.overlap and not self.first["data"]["generated"]

    def mean(self, figure: str) -> float:
        """Return the mean of a figure over the finished runs; NaN if one has none, or none has finished."""
        values: list[Any] = [run.figures.get(figure) for run in self.runs.values()]
        return math.nan if None in values or not values else fmean(values)

    @property
    def origins(self) -> set[tuple[str, int | None]]:
        """What the samples were chosen from, with the seed of those that were generated for it."""
        return {
            (name, seed if data["generated"] else None)
            for seed, data in ((seed, run.figures["data"]) for seed, run in self.runs.items())
            for name in (data["sha256"], *data["origins"])
        }


def cells(records: Sequence[RunRecord], guess: bool = False) -> list[Cell]:
    """Return the cells of the finished and failed runs among these, those of a data set together.

    Of runs with the same settings, seed and figures, the first is taken. A run that failed does not count if
    another with its settings and seed has finished.

    Args:
        guess: whether to score failed runs as guessing does: with the errors of the most frequent class of
            the training set, as a finished run on the same data set records them, or an R^2 of 0.

    Raises:
        InputError: no run has finished, a result is damaged, or they differ in what must be the same to be
            compared.
    """
    finished = [record for record in records if record.status == "finished"]
    if not finished:
        got = _counts(Counter(record.status for record in records)) or "no run"
        raise InputError(f"expected finished runs to compare, got {got}; see nsvm runs")
    tried = [*finished, *(record for record in records if _has_failed(record))]
    _expect_one_task(tried)
    split = _split(finished)
    for record in finished:
        _expect_figures(record, split)
    groups = _grouped(tried, _places(tried))
    found = {place: _by_seed(group) for place, group in groups.items()}
    _expect_the_same_data(found)
    like = {dataset: run.figures for (dataset, _), runs in found.items() for run in runs.values()}
    guesses = _guesses(found, split) if guess else {}
    result = []
    for (dataset, candidate), runs in sorted(found.items(), key=lambda item: item[0][0]):
        lost = [r.settings["seed"] for r in groups[dataset, candidate] if r.status == "failed"]
        repeats = len(groups[dataset, candidate]) - len(lost) - len(runs)
        others = guesses.get((dataset, None))
        failed = {seed: guesses.get((dataset, seed), others) for seed in sorted({*lost} - runs.keys())}
        about = like.get(dataset, finished[0].figures)
        result.append(Cell(dataset, candidate, split, runs, repeats, failed, about))
    return result


def _has_failed(record: RunRecord) -> bool:
    """Return whether a run failed and its settings, which may come from someone else, say what it was."""
    parts = [record.settings.get(part) for part in ("algorithm", "dataset")]
    named = all(isinstance(part, dict) and "name" in part for part in parts)
    return record.status == "failed" and named and isinstance(record.settings.get("seed"), int)


def not_counted(records: Sequence[RunRecord]) -> str:
    """Return a sentence on the runs that no cell counts; nothing if there are none."""
    became = Counter(
        "failed before settings were recorded" if record.status == "failed" else record.status
        for record in records
        if record.status != "finished" and not _has_failed(record)
    )
    return f"Left out: {_counts(became)}." if became else ""


def _counts(statuses: Counter[str]) -> str:
    return ", ".join(f"{number} {status}" for status, number in statuses.items())


def _guesses(
    found: Mapping[tuple[str, str], Mapping[int, RunRecord]], split: str
) -> dict[tuple[str, int | None], int]:
    """Return the errors or R^2 of guessing on each data set for each seed, and for None: any other seed."""
    guesses: dict[tuple[str, int | None], int] = {}
    for (dataset, _), runs in found.items():
        for seed, run in runs.items():
            guess = run.figures.get("guess_errors") if f"{split}_errors" in run.figures else 0
            if guess is not None:  # earlier versions did not record it
                guesses[dataset, seed] = guesses[dataset, None] = int(guess)
    return guesses


def _by_seed(group: Sequence[RunRecord]) -> dict[int, RunRecord]:
    """Return the first finished run of each seed.

    Expect that others with it repeat its figures, and that the code of plugins was the same for all.
    """
    runs: dict[int, RunRecord] = {}
    finished = [record for record in group if record.status == "finished"]
    for record in finished:
        if (code := record.figures.get("plugins_sha256")) != finished[0].figures.get("plugins_sha256"):
            raise InputError(
                f"{finished[0].path} and {record.path} have the same settings, but other code of plugins: "
                f"leave out either, as --filter 'plugins_sha256!={code or 'null'}' does"
            )
        first = runs.setdefault(int(record.figures["seed"]), record)
        same = (first.figures.get(name) == record.figures.get(name) for name in REPEATED)
        if first is not record and not all(same):
            raise InputError(
                f"{first.path} and {record.path} have the same settings and seed, but different results: "
                f"leave out either, as --filter 'path!={first.path}' does"
            )
    return dict(sorted(runs.items()))


def _expect_one_task(records: Sequence[RunRecord]) -> None:
    """Expect that all runs learn the same task with the same loss for several classes."""
    first = records[0]
    for record in records:
        for what in ("task", "multiclass"):
            ours, theirs = (r.settings.get(what) for r in (first, record))
            if ours != theirs:
                raise InputError(
                    f"{first.path} has {what}={ours} and {record.path} has {what}={theirs}, which cannot be "
                    f"compared: --filter {what}={ours} takes those"
                )


def _split(records: Sequence[RunRecord]) -> str:
    """Return the held-out data that all runs were evaluated on."""
    for split in ("test", "validation"):
        if all(_has_scores(record, split) for record in records):
            return split
    other = next(record for record in records if not _has_scores(record, "test"))
    if not _has_scores(other, "validation"):
        raise InputError(f"{other.path} has no score to compare: R² is undefined, or its result is damaged")
    raise InputError(
        f"{other.path} was evaluated on validation data, others on test data: compare either alone"
    )


def _has_scores(record: RunRecord, split: str) -> bool:
    return any(record.figures.get(f"{split}_{name}") is not None for name in ("errors", "r2"))


def _expect_figures(record: RunRecord, split: str) -> None:
    """Validate the result of a run, which may come from someone else."""
    cell = Cell("", "", split, {0: record})
    with reading(record.path / RESULT):
        names = [record.settings[part]["name"] for part in ("algorithm", "dataset")]
        numbers = [int(record.figures["seed"]), cell.scores[0], cell.scores.overlap]
        numbers += [cell.mean("train_seconds"), record.figures["support_vectors"] or 0]
        numbers += [int(record.figures.get("guess_errors") or 0)]
        described = [*names, cell.origins, record.figures["data"]["samples"]]
        if not all(described) or not all(map(math.isfinite, numbers)):
            raise ValueError("expected names, samples and finite numbers")


def _places(records: Sequence[RunRecord]) -> list[tuple[str, str]]:
    """Return the names of the data set and of the candidate of each run."""
    datasets, places = _datasets(records), []
    for differ in (telling(records), differing(records)):
        keys = [key for key in differ if _is_of_candidate(key)]
        names = [_in_words(r, keys) or str(r.settings["algorithm"]["name"]) for r in records]
        places = [*zip(datasets, names, strict=True)]
        groups = _grouped(records, places).values()
        # settings that were not overridden may differ too, as between two versions of nsvm
        if not any(_is_of_candidate(key) for group in groups for key in differing(group)):
            break
    return places


def _datasets(records: Sequence[RunRecord]) -> list[str]:
    names = [str(record.settings["dataset"]["name"]) for record in records]
    groups = _grouped(records, names)
    keys = {name: [key for key in differing(group) if _is_of_data(key)] for name, group in groups.items()}
    return [
        _in_words(record, ["dataset.name", *keys[name]]) for record, name in zip(records, names, strict=True)
    ]


def _grouped(records: Sequence[RunRecord], by: Sequence[K]) -> dict[K, list[RunRecord]]:
    groups: dict[K, list[RunRecord]] = {}
    for record, key in zip(records, by, strict=True):
        groups.setdefault(key, []).append(record)
    return groups


def _is_of_data(key: str) -> bool:
    return key.startswith("dataset.") and key not in ONLY_HOW


def _is_of_candidate(key: str) -> bool:
    return not key.startswith(("dataset.", "checkpoint.", "logger.", "validation.")) and key not in ONLY_HOW


def _in_words(record: RunRecord, keys: Sequence[str]) -> str:
    """Return those of these settings that the run has in words, the names of parts first.

    It is the value alone for the name of a part, and for others with the last part of the key, unless
    another of the ``keys`` has the same.
    """
    values, last = flat(record.settings), Counter(key.rpartition(".")[2] for key in keys)
    words = []
    for key in sorted(keys, key=lambda key: not key.endswith(".name")):
        short = key.rpartition(".")[2]
        if (value := values.get(key)) is not None:
            words.append(str(value) if short == "name" else f"{key if last[short] > 1 else short}={value}")
    return printable(" ".join(words))


def _expect_the_same_data(found: Mapping[tuple[str, str], Mapping[int, RunRecord]]) -> None:
    """Expect that the runs of a data set with the same seed were trained on the same data."""
    first: dict[tuple[str, int], RunRecord] = {}
    for (dataset, _), runs in found.items():
        for seed, run in runs.items():
            other = first.setdefault((dataset, seed), run)
            ours, theirs = (r.figures["data"] for r in (other, run))
            if any(ours[about] != theirs[about] for about in ("sha256", "samples")):
                raise InputError(
                    f"{other.path} and {run.path} were trained on different data, though both have "
                    f"dataset={dataset} and seed={seed}"
                )


def chooses_by_test(found: Sequence[Cell]) -> bool:
    """Return whether these are several candidates with test scores, so that ``CAUTION`` is due."""
    return any(cell.split == "test" for cell in found) and len({cell.candidate for cell in found}) > 1
