"""Reproduction of the paper's experiments over many seeds, together with baselines."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pydantic
from pydantic import Field, NonNegativeInt, PositiveInt

from nsvm_cli.comparison.cells import Cell
from nsvm_cli.comparison.records import read_run
from nsvm_cli.config.registry import STRICT, NonNegative
from nsvm_cli.config.settings import Section, Settings, is_record_of, plain
from nsvm_cli.datasets import Data, load_data
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.paper.baselines import bayes, svc_on_features, svc_on_inputs, tuned_boosting, tuned_svc
from nsvm_cli.parallel.workers import Workers, outcome
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage.files import locked, write_atomically, write_csv
from nsvm_cli.storage.run_directory import RunDirectory, has_run, is_finished, read_config, reading
from nsvm_cli.trainers import build_trainer
from nsvm_cli.trainers.direct import DirectSolver
from nsvm_cli.trainers.svc import SVC


@dataclass(frozen=True)
class Entry:
    """The settings of a neural SVM, and what it is compared with.

    Entries with the same name of the data set share the methods that need no network, ``baselines``: names in
    ``BASELINES``. ``network`` are the settings of the same network without an SVM, None if there is none. It
    runs with the steps in its settings, since it was tuned for that number of steps.
    """

    name: str
    dataset: str
    nsvm: Settings
    network: Settings | None
    baselines: Sequence[str]


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
"""The methods with their names in tables, in the order of the rows."""

BASELINES: dict[str, Callable[[Data], dict[str, Any]]] = {
    "svc": svc_on_inputs,
    "svc_tuned": tuned_svc,
    "boosting": tuned_boosting,
    "bayes": bayes,
}
"""The methods that need no network."""


def reproduce(
    entries: Sequence[Entry],
    seeds: int,
    directory: Path,
    jobs: int,
    observe: Callable[[Sequence[Row], int, int], None],
) -> list[Row]:
    """Run every entry and its baselines with the seeds 0, 1, ..., except for runs that are already finished.

    Args:
        directory: holds the runs, and their results as ``runs.csv``.
        observe: called with the rows of each task, the number of tasks that are done, and of all.

    Raises:
        InputError: data or settings are wrong, or the directory is in use or holds runs with other settings.
        RunError: a run failed; the others were completed nevertheless.
    """
    with locked(directory):
        shared = {entry.dataset: entry for entry in entries}
        tasks: list[tuple[Any, ...]] = [
            (_rows, entry, seed, directory / entry.name) for seed in range(seeds) for entry in entries
        ]
        tasks += [
            (_baseline, entry, alike, method, directory / name)
            for name, entry in shared.items()
            for alike in _seeds_alike(entry, seeds)
            for method in entry.baselines
        ]
        rows: list[Row] = []
        failures: list[RunError] = []
        with Workers(jobs) as workers:
            futures = {workers.submit(*task): f"{task[1].name}, seed {task[2]}" for task in tasks}
            for done, future in enumerate(as_completed(futures), 1):
                try:
                    rows += (found := outcome(future))
                    observe(found, done, len(futures))
                except RunError as error:  # the other runs may still succeed
                    failures.append(RunError(f"{futures[future]}: {error}"))
        if failures:
            raise failures[0]
        order = [entry.name for entry in entries] + list(shared)
        rows.sort(key=lambda row: (order.index(row.cell), [*METHODS].index(row.method), row.seed))
        write_csv(directory / "runs.csv", [asdict(row) for row in rows])
        return rows


def _seeds_alike(entry: Entry, seeds: int) -> list[Sequence[int]]:
    """Return groups of seeds that have the same training samples: all of them if the split is official.

    A download happens here, before several processes need it.
    """
    official = load_data(entry.nsvm.dataset, 0, entry.nsvm.task).official_split
    return [range(seeds)] if official else [[seed] for seed in range(seeds)]


def read_rows(file: Path) -> list[Row]:
    """Return the rows of ``runs.csv``."""
    with file.open(newline="") as lines:
        cells = [{key: text or None for key, text in line.items()} for line in csv.DictReader(lines)]
    return pydantic.TypeAdapter(list[Row]).validate_python(cells)


def _rows(entry: Entry, seed: int, directory: Path) -> list[Row]:
    """Return the rows of the methods that take the network of an entry."""
    at, about = directory / f"seed_{seed}", {"cell": entry.name, "dataset": entry.dataset, "seed": seed}
    rows = [_run(replace(entry.nsvm, seed=seed), at / "nsvm", method="nsvm", **about)]
    if not isinstance(build_trainer(entry.nsvm.algorithm).parts[-1], SVC):  # else it would be the same
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


def _baseline(entry: Entry, seeds: Sequence[int], method: str, directory: Path) -> list[Row]:
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
    with reading(directory / "result.json", REMOVE_IT):
        result = (record := read_run(directory)).figures
        scores: dict[str, Any] = {name: result.get(f"test_{name}") for kind in SCORES for name in kind}
        return Row(
            **scores,
            samples=result["data"]["samples"]["test"],
            overlap=Cell("", "", "test", {0: record}).overlap,
            generated=result["data"]["generated"],
            seconds=result["train_seconds"],
            support_vectors=result["support_vectors"],
            theta_steps=result["theta_steps"],
            trained=has_trained(result),
            **about,
        )


def has_trained(result: Mapping[str, Any]) -> bool:
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
