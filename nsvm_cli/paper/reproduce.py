"""Reproduction of the paper's experiments over many seeds, together with baselines."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import pydantic
from pydantic import Field, NonNegativeInt, PositiveInt

from nsvm_cli.comparison.intervals import recorded_overlap
from nsvm_cli.config.registry import STRICT, NonNegative
from nsvm_cli.config.settings import Section, Settings, is_record_of, plain
from nsvm_cli.datasets import Data, load_data
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.paper.baselines import bayes, svc_on_features, svc_on_inputs, tuned_boosting, tuned_svc
from nsvm_cli.paper.entries import Entry
from nsvm_cli.parallel.workers import Workers, outcome
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage.files import locked, write_atomically, write_csv
from nsvm_cli.storage.run_directory import RunDirectory, has_run, is_finished, read_config, reading
from nsvm_cli.trainers import build_trainer
from nsvm_cli.trainers.svc import SVC, DirectSolver

SCORES = (("accuracy", "errors"), ("r2", "rmse", "mae"))
"""Of classes, and of real targets."""


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STRICT)
class Row:
    """The result of one method with one seed.

    ``cell`` is the name of the data set for methods that need no network. ``overlap`` is the ratio of test to
    training samples if each seed has its own split of the same samples, else 0; ``generated`` says whether
    each seed has samples of its own. ``trained`` is False for a network that is near chance on its own
    training samples: there is no point in being better than that. Frozen features are not meant to train.

    Classes have ``accuracy`` and ``errors``; real targets ``r2``, and ``rmse`` and ``mae`` in their units.
    """

    cell: str
    dataset: str
    method: str
    seed: int
    accuracy: Annotated[float, Field(ge=0, le=1)] | None = None
    errors: NonNegativeInt | None = None
    samples: PositiveInt
    overlap: NonNegative
    seconds: NonNegative | None
    support_vectors: NonNegativeInt | None
    theta_steps: NonNegativeInt | None
    generated: bool = False
    trained: bool = True
    r2: Annotated[float, Field(le=1)] | None = None
    rmse: NonNegative | None = None
    mae: NonNegative | None = None

    def __post_init__(self) -> None:
        if not any(all(getattr(self, name) is not None for name in scores) for scores in SCORES):
            raise ValueError(f"expected the scores {' or '.join(map(str, SCORES))}")


def reproduce(
    entries: Iterable[Entry],
    seeds: int,
    directory: Path,
    jobs: int,
    observe: Callable[[Row, int, int], None],
) -> list[Row]:
    """Run every entry and its baselines with the seeds 0, 1, ..., except for runs that are already finished.

    Args:
        directory: holds the runs, and their results as ``runs.csv``.
        observe: called with each new row, the number of rows so far, and the total.

    Raises:
        InputError: data or settings are wrong, or the directory is in use or holds runs with other settings.
        RunError: a run failed; the others were completed nevertheless.
    """
    with locked(directory):
        return _reproduce(list(entries), seeds, directory, jobs, observe)


def _reproduce(
    entries: list[Entry], seeds: int, directory: Path, jobs: int, observe: Callable[[Row, int, int], None]
) -> list[Row]:
    shared = {entry.dataset: entry for entry in entries}
    every = range(seeds)
    alike = {
        name: [every] if _has_official_split(entry) else [[seed] for seed in every]
        for name, entry in shared.items()
    }
    rows: list[Row] = []
    failures: list[RunError] = []
    with Workers(jobs) as workers:
        futures = {
            workers.submit(_rows, entry, seed, directory / entry.name): (entry.name, seed)
            for seed in every
            for entry in entries
        }
        futures |= {
            workers.submit(_baseline, entry, method, same, directory / name): (name, same[0])
            for name, entry in shared.items()
            for same in alike[name]
            for method in entry.baselines
        }
        total = seeds * sum(len(methods_of(entry)) for entry in entries)
        total += seeds * sum(len(entry.baselines) for entry in shared.values())
        for future in as_completed(futures):
            try:
                for row in outcome(future):
                    rows.append(row)
                    observe(row, len(rows), total)
            except RunError as error:  # the other runs may still succeed
                name, seed = futures[future]
                failures.append(RunError(f"{name}, seed {seed}: {error}"))
    if failures:
        raise failures[0]
    order = [entry.name for entry in entries] + list(shared)
    rows.sort(key=lambda row: (order.index(row.cell), [*METHODS].index(row.method), row.seed))
    write_csv(directory / "runs.csv", [asdict(row) for row in rows])
    return rows


def methods_of(entry: Entry) -> list[str]:
    """Return the methods that take its network. SVC on its features may be the neural SVM itself."""
    itself = isinstance(build_trainer(entry.nsvm.algorithm).parts[-1], SVC)
    others = {"svc_on_features": not itself, "frozen": True, "network": entry.network is not None}
    return ["nsvm", *(method for method, there in others.items() if there)]


def _has_official_split(entry: Entry) -> bool:
    """Return whether its data have an official split, such that every seed has the same training samples.

    A download happens here, before several processes need it.
    """
    return load_data(entry.nsvm.dataset, 0, entry.nsvm.task).official_split


def read_rows(file: Path) -> list[Row]:
    """Return the rows of ``runs.csv``."""
    with file.open(newline="") as lines:
        cells = [{key: text or None for key, text in line.items()} for line in csv.DictReader(lines)]
    return pydantic.TypeAdapter(list[Row]).validate_python(cells)


METHODS = {
    "nsvm": "neural SVM",
    "svc_on_features": "SVC on its features",
    "frozen": "frozen features",
    "network": "same network, no SVM",
    "svc": "SVC on the inputs",
    "svc_tuned": "SVC on the inputs, tuned",
    "boosting": "boosted trees, tuned",
    "bayes": "Bayes rule",
}
"""The methods with their names in tables, in the order of the columns."""

BASELINES: dict[str, Callable[[Data], dict[str, Any]]] = {
    "svc": svc_on_inputs,
    "svc_tuned": tuned_svc,
    "boosting": tuned_boosting,
    "bayes": bayes,
}
"""The methods that need no network."""


def _rows(entry: Entry, seed: int, directory: Path) -> list[Row]:
    at, about = directory / f"seed_{seed}", {"cell": entry.name, "dataset": entry.dataset, "seed": seed}
    rows = [_run(replace(entry.nsvm, seed=seed), at / "nsvm", method="nsvm", **about)]
    if "svc_on_features" in methods_of(entry):
        model, kept = at / "nsvm" / "final.safetensors", at / "nsvm" / "svc_on_features.json"
        rows.append(_kept(kept, {}, lambda: svc_on_features(model), method="svc_on_features", **about))
    still = _run(frozen(replace(entry.nsvm, seed=seed)), at / "frozen", method="frozen", **about)
    rows.append(replace(still, trained=True))
    if entry.network is not None:
        network = _run(replace(entry.network, seed=seed), at / "network", method="network", **about)
        rows.append(replace(network, support_vectors=None))
    return rows


def frozen(settings: Settings) -> Settings:
    """Return the settings of the same run with theta kept at its initial values: an SVM on random features.

    It is Algorithm 0, to which Algorithms 1 to 3 reduce then, or Part 2 of Algorithm 4 alone: with the same
    steps, on the same samples. Other solvers follow a single step of Part 1, with a learning rate of 0.
    """
    trainer = build_trainer(settings.algorithm)
    svm = trainer.parts[-1]
    if isinstance(svm, DirectSolver):
        still = {**settings.algorithm, "steps": 1, "solver_steps": None}
        return replace(settings, algorithm=still, optimizer={**settings.optimizer, "lr": 0.0})
    lam: float = svm.lam  # as all that entries are made of
    return replace(
        settings, algorithm={"name": "pegasos", "steps": svm.total, "lam": lam, "batch_size": svm.k}
    )


def _baseline(entry: Entry, method: str, seeds: Sequence[int], directory: Path) -> list[Row]:
    """Return the rows of a method that needs no network, with seeds whose data are the same."""
    section, seed, name = dict(entry.nsvm.dataset), seeds[0], entry.dataset

    def compute() -> dict[str, Any]:
        return BASELINES[method](load_data(section, seed, entry.nsvm.task))

    file = directory / f"{method}_{seed}.json"
    row = _kept(file, section, compute, cell=name, dataset=name, method=method, seed=seed)
    return [replace(row, seed=seed) for seed in seeds]


def _run(settings: Settings, directory: Path, **about: Any) -> Row:
    """Return the row of a run like that of ``nsvm train``; start or resume it if it is not finished."""
    if has_run(directory) and not is_record_of(read_config(directory), settings):
        raise _other(directory)
    if not is_finished(directory):
        with RunDirectory(directory, plain(settings), "resume") as run:
            train_run(prepare(settings), run)
    with reading(file := directory / "result.json", REMOVE_IT):
        result = json.loads(file.read_bytes())
        data, sizes = result["data"], result["data"]["samples"]
        return Row(
            **{name: result.get(f"test_{name}") for scores in SCORES for name in scores},
            samples=sizes["test"],
            overlap=recorded_overlap(data, "test"),
            generated=data["generated"],
            seconds=result["train_seconds"],
            support_vectors=result["support_vectors"],
            theta_steps=result["theta_steps"],
            trained=_has_trained(result),
            **about,
        )


def _has_trained(result: Mapping[str, Any]) -> bool:
    """Return whether a run is at least halfway from chance to perfect on its own training samples.

    For real targets that is between predicting their mean, with R^2 = 0, and 1.
    """
    if "train_r2" in result:
        return bool(result["train_r2"] >= 1 / 2)
    chance = 1 / len(result["data"]["classes"])
    return bool(result["train_accuracy"] >= (chance + 1) / 2)


def _kept(file: Path, settings: Section, compute: Callable[[], dict[str, Any]], **about: Any) -> Row:
    """Return the row with the figures in a file, computing and writing them if it does not exist.

    ``chosen``, the values of a tuned method, stay in the file.
    """
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps({"settings": settings, "figures": compute()}, indent=2).encode())
    with reading(file, REMOVE_IT):
        content = json.loads(file.read_bytes())
        made_with, figures = content["settings"], content["figures"]
        row = Row(**{key: value for key, value in figures.items() if key != "chosen"}, **about)
    if made_with != settings:
        raise _other(file)
    return row


REMOVE_IT = ": remove it, and the same command computes its figures again"


def _other(path: Path) -> InputError:
    return InputError(
        f"{path} was made with other settings: expected a new folder in directory=, or the same settings"
    )
