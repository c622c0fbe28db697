"""Reproduction of the paper's experiments over many seeds, together with baselines."""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pydantic
from pydantic import Field, NonNegativeInt, PositiveInt

from nsvm_cli.config.registry import STRICT, NonNegative
from nsvm_cli.config.settings import Section, Settings, is_record_of, plain
from nsvm_cli.datasets import load_data
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.parallel.workers import Workers, outcome
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage.files import locked, write_atomically, write_csv
from nsvm_cli.storage.run_directory import RunDirectory, has_run, is_finished, read_config
from nsvm_cli.studies.baselines import Figures, bayes, svc_on_features, svc_on_inputs
from nsvm_cli.trainers import build_trainer
from nsvm_cli.trainers.alg4 import Alg4


@dataclass(frozen=True)
class Cell:
    """The settings of one of the paper's experiments, and of the same network without an SVM.

    The network runs with the steps in its settings, since it was tuned for that number of steps.
    """

    name: str
    nsvm: Settings
    network: Settings

    @property
    def dataset(self) -> str:
        """The name of the data set. Cells with the same data set share the methods that need no network."""
        return str(self.nsvm.dataset["name"])


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STRICT)
class Row:
    """The result of one method with one seed.

    ``cell`` is the name of the data set for methods that need no network. ``overlap`` is the ratio of test to
    training samples if each seed has its own split of the same samples, else 0; ``generated`` says whether
    each seed has samples of its own. ``trained`` is False for a network that is near chance on its own
    training samples: there is no point in being better than that. Frozen features are not meant to train.
    """

    cell: str
    dataset: str
    method: str
    seed: int
    accuracy: Annotated[float, Field(ge=0, le=1)]
    errors: NonNegativeInt
    samples: PositiveInt
    overlap: NonNegative
    seconds: NonNegative | None
    support_vectors: NonNegativeInt | None
    theta_steps: NonNegativeInt | None
    generated: bool = False
    trained: bool = True


def reproduce(
    cells: Iterable[Cell],
    seeds: int,
    directory: Path,
    jobs: int,
    observe: Callable[[Row, int, int], None],
) -> list[Row]:
    """Run every cell and its baselines with the seeds 0, 1, ..., except for runs that are already finished.

    Args:
        cells: the experiments.
        seeds: the number of seeds.
        directory: holds the runs, and their results as ``runs.csv``.
        jobs: the number of worker processes.
        observe: called with each new row, the number of rows so far, and the total.

    Raises:
        InputError: data or settings are wrong, or the directory is in use or holds runs with other settings.
        RunError: a run failed; the others were completed nevertheless.
    """
    with locked(directory):
        return _reproduce(list(cells), seeds, directory, jobs, observe)


def _reproduce(
    cells: list[Cell], seeds: int, directory: Path, jobs: int, observe: Callable[[Row, int, int], None]
) -> list[Row]:
    shared = {cell.dataset: cell.nsvm.dataset for cell in cells}
    for dataset in shared.values():  # a download happens here, before several processes need it
        load_data(dataset, 0)
    rows: list[Row] = []
    failures: list[RunError] = []
    with Workers(jobs) as workers:
        futures = {
            workers.submit(_cell, c, seed, directory / c.name): (c.name, seed)
            for seed in range(seeds)
            for c in cells
        }
        futures |= {
            workers.submit(_shared, name, dataset, seed, directory / name): (name, seed)
            for seed in range(seeds)
            for name, dataset in shared.items()
        }
        total = 4 * seeds * len(cells) + sum(1 + is_ringnorm(name) for name in shared) * seeds
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
    order = [c.name for c in cells] + list(shared)
    rows.sort(key=lambda row: (order.index(row.cell), [*METHODS].index(row.method), row.seed))
    write_csv(directory / "runs.csv", [asdict(row) for row in rows])
    return rows


def read_rows(file: Path) -> list[Row]:
    """Return the rows of ``runs.csv``."""
    with file.open(newline="") as lines:
        cells = [{key: text or None for key, text in line.items()} for line in csv.DictReader(lines)]
    return pydantic.TypeAdapter(list[Row]).validate_python(cells)


TRAINED = 0.75
"""The training accuracy from which on a network has learnt something: halfway between chance and perfect."""

METHODS = {
    "nsvm": "neural SVM",
    "svc_on_features": "SVC on its features",
    "frozen": "frozen features",
    "network": "same network, no SVM",
    "svc": "SVC on the inputs",
    "bayes": "Bayes rule",
}
"""The methods with their names in tables, in the order of the columns."""


def _cell(cell: Cell, seed: int, directory: Path) -> list[Row]:
    at, about = directory / f"seed_{seed}", {"cell": cell.name, "dataset": cell.dataset, "seed": seed}
    nsvm = _run(replace(cell.nsvm, seed=seed), at / "nsvm", method="nsvm", **about)
    model, kept = at / "nsvm" / "final.safetensors", at / "nsvm" / "svc_on_features.json"
    machine = _kept(kept, {}, lambda: svc_on_features(model), method="svc_on_features", **about)
    still = _run(frozen(replace(cell.nsvm, seed=seed)), at / "frozen", method="frozen", **about)
    network = _run(replace(cell.network, seed=seed), at / "network", method="network", **about)
    return [nsvm, machine, replace(still, trained=True), replace(network, support_vectors=None)]


def frozen(settings: Settings) -> Settings:
    """Return the settings of the same run with theta kept at its initial values: an SVM on random features.

    Part 1 of Algorithm 4 would do nothing then, and takes a single step. Part 2 draws the same samples.
    """
    still = replace(settings, optimizer={**settings.optimizer, "lr": 0.0})
    trainer = build_trainer(settings.algorithm)
    if isinstance(trainer, Alg4):
        part_2 = trainer.part_steps[1] or None  # a solver without steps takes none
        still = replace(still, algorithm={**settings.algorithm, "steps": 1, "solver_steps": part_2})
    return still


def _shared(name: str, dataset: Mapping[str, Any], seed: int, directory: Path) -> list[Row]:
    """Return the rows that all cells of a data set share."""
    section, about = dict(dataset), {"cell": name, "dataset": name, "seed": seed}
    methods = {"svc": svc_on_inputs} | ({"bayes": bayes} if is_ringnorm(name) else {})
    return [
        _kept(
            directory / f"{method}_{seed}.json", section, partial(run, section, seed), method=method, **about
        )
        for method, run in methods.items()
    ]


def is_ringnorm(dataset: str) -> bool:
    """Return whether a data set is Ringnorm, whose Bayes rule is known."""
    return dataset.startswith("ringnorm")


def _run(settings: Settings, directory: Path, **about: Any) -> Row:
    """Return the row of a run like that of ``nsvm train``; start or resume it if it is not finished."""
    if has_run(directory) and not is_record_of(read_config(directory), settings):
        raise _other(directory)
    if not is_finished(directory):
        with RunDirectory(directory, plain(settings), "resume") as run:
            train_run(prepare(settings), run)
    with _readable(file := directory / "result.json"):
        result = json.loads(file.read_bytes())
        data, sizes = result["data"], result["data"]["samples"]
        generated = data.get("generated", False)  # earlier versions did not say
        return Row(
            accuracy=result["test_accuracy"],
            errors=result["test_errors"],
            samples=sizes["test"],
            overlap=0.0 if data["official_split"] or generated else sizes["test"] / sizes["train"],
            generated=generated,
            seconds=result["train_seconds"],
            support_vectors=result["support_vectors"],
            theta_steps=result["theta_steps"],
            trained=result["train_accuracy"] >= TRAINED,
            **about,
        )


def _kept(file: Path, settings: Section, compute: Callable[[], Figures], **about: Any) -> Row:
    """Return the row with the figures in a file, computing and writing them if it does not exist."""
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps({"settings": settings, "figures": compute()}, indent=2).encode())
    with _readable(file):
        content = json.loads(file.read_bytes())
        made_with, row = content["settings"], Row(**content["figures"], **about)
    if made_with != settings:
        raise _other(file)
    return row


@contextlib.contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Raise an InputError if the file does not hold what an earlier command wrote to it."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
        raise InputError(
            f"{file} is damaged: remove it, and the same command computes its figures again"
        ) from None


def _other(path: Path) -> InputError:
    return InputError(
        f"{path} was made with other settings: expected a new folder in directory=, or the same settings"
    )
