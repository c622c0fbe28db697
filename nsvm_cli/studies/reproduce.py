"""Reproduction of the paper's experiments over many seeds, together with baselines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nsvm_cli.config.settings import Section, Settings, plain
from nsvm_cli.datasets import load_data
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.parallel.workers import Workers, outcome
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage.files import locked, write_atomically, write_csv
from nsvm_cli.storage.run_directory import RunDirectory, has_run, is_finished, read_config
from nsvm_cli.studies.baselines import Figures, bayes, svc_on_features, svc_on_inputs


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


@dataclass(frozen=True, kw_only=True)
class Row:
    """The result of one method with one seed.

    ``cell`` is the name of the data set for methods that need no network. ``overlap`` is the ratio of test to
    training samples if each seed has its own split of the data, else 0. ``trained`` is False for a network
    that is near chance on its own training samples: there is no point in being better than that.
    """

    cell: str
    dataset: str
    method: str
    seed: int
    accuracy: float
    errors: int
    samples: int
    overlap: float
    seconds: float | None
    support_vectors: int | None
    theta_steps: int | None
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
        total = 3 * seeds * len(cells) + sum(1 + is_ringnorm(name) for name in shared) * seeds
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


TRAINED = 0.75
"""The training accuracy from which on a network has learnt something: halfway between chance and perfect."""

METHODS = {
    "nsvm": "neural SVM",
    "svc_on_features": "SVC on its features",
    "network": "same network, no SVM",
    "svc": "SVC on the inputs",
    "bayes": "Bayes rule",
}
"""The methods with their names in tables, in the order of the columns."""


def _cell(cell: Cell, seed: int, directory: Path) -> list[Row]:
    at = directory / f"seed_{seed}"
    nsvm = _run(replace(cell.nsvm, seed=seed), at / "nsvm")
    model = at / "nsvm" / "final.safetensors"
    machine = _kept(at / "nsvm" / "svc_on_features.json", {}, lambda: svc_on_features(model))
    network = {**_run(replace(cell.network, seed=seed), at / "network"), "support_vectors": None}
    return [
        Row(cell=cell.name, dataset=cell.dataset, method=method, seed=seed, **figures)
        for method, figures in (("nsvm", nsvm), ("svc_on_features", machine), ("network", network))
    ]


def _shared(name: str, dataset: Mapping[str, Any], seed: int, directory: Path) -> list[Row]:
    """Return the rows that all cells of a data set share."""
    section = dict(dataset)
    figures = {"svc": _kept(directory / f"svc_{seed}.json", section, lambda: svc_on_inputs(section, seed))}
    if is_ringnorm(name):
        figures["bayes"] = _kept(directory / f"bayes_{seed}.json", section, lambda: bayes(section, seed))
    return [Row(cell=name, dataset=name, method=method, seed=seed, **f) for method, f in figures.items()]


def is_ringnorm(dataset: str) -> bool:
    """Return whether a data set is Ringnorm, whose Bayes rule is known."""
    return dataset.startswith("ringnorm")


def _run(settings: Settings, directory: Path) -> Figures:
    """Return the figures of a run like that of ``nsvm train``; start or resume it if it is not finished."""
    if has_run(directory) and read_config(directory) != plain(settings):
        raise _other(directory)
    if not is_finished(directory):
        with RunDirectory(directory, plain(settings), "resume") as run:
            train_run(prepare(settings), run)
    result = json.loads((directory / "result.json").read_text())
    return {
        "accuracy": result["test_accuracy"],
        "errors": result["test_errors"],
        "samples": (samples := result["data"]["samples"])["test"],
        "overlap": 0.0 if result["data"]["official_split"] else samples["test"] / samples["train"],
        "seconds": result["train_seconds"],
        "support_vectors": result["support_vectors"],
        "theta_steps": result["theta_steps"],
        "trained": result["train_accuracy"] >= TRAINED,
    }


def _kept(file: Path, settings: Section, compute: Callable[[], Figures]) -> Figures:
    """Return figures from a file, computing and writing them if it does not exist."""
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps({"settings": settings, "figures": compute()}, indent=2).encode())
    content = json.loads(file.read_text())
    if content["settings"] != settings:
        raise _other(file)
    figures: Figures = content["figures"]
    return figures


def _other(path: Path) -> InputError:
    return InputError(
        f"{path} was made with other settings: expected a new folder in directory=, or the same settings"
    )
