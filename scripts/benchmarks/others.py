"""Other kernel machines on the same data: TorchKM's SVM, and xRFM, a kernel machine that learns its metric.

Neither is a dependency: pip install torchkm xrfm. What is not installed is left out.
"""

from __future__ import annotations

import argparse
import resource
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from sklearn.svm import SVC

from benchmarks.baselines import GAMMA, accuracy, alone, fit_pegasos, fit_svc, peak, samples
from benchmarks.report import Report, spread
from benchmarks.trainers import clocked, train
from nsvm_cli.cli.hydra_app import compose, plain_values
from nsvm_cli.config.settings import parse_settings
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.runs.experiment import Experiment, model_of, prepare


def fit_torchkm(m: int, seed: int) -> dict[str, float]:
    """The SVM of ``fit_svc`` by TorchKM, which cross-validates in any case: here one C in two folds.

    Its kernel is exp(-2 sigma ||x - x'||^2).
    """
    from torchkm.estimators import TorchKMSVC

    z, y, z_test, y_test = samples(m, seed)
    svc = TorchKMSVC(kernel="rbf", Cs=[1.0], cv=2, rbf_sigma=GAMMA / 2, device="cpu", random_state=0)
    time, _ = clocked(svc.fit, z.numpy(), y.numpy())
    reached = accuracy(torch.from_numpy(np.asarray(svc.decision_function(z_test.numpy()))), y_test)
    return {"s": time, "accuracy": reached, "MiB": peak()}


def svms(report: Report, arguments: argparse.Namespace) -> None:
    """An SVM on fixed features, by three programs."""
    if find_spec("torchkm") is None:
        print("torchkm is not installed", flush=True)
        return
    rows = []
    for m in (1_000, 3_000):
        theirs = [alone(fit_torchkm, m, seed) for seed in range(min(3, arguments.pairs))]
        exact = [alone(fit_svc, m, seed) for seed in range(len(theirs))]
        ours = [alone(fit_pegasos, m, seed, run["accuracy"] - 0.3) for seed, run in enumerate(exact)]
        for name, runs in (("TorchKM", theirs), ("SVC", exact), ("Algorithm 0", ours)):
            figures = {key: spread([run[key] for run in runs]) for key in ("s", "accuracy", "MiB")}
            rows.append({"m": m, "by": name, **figures})
            print(rows[-1], flush=True)
    report.table("torchkm", f"SVM on Ringnorm, gamma={GAMMA}, C=1, one thread", rows)


def words(table: str, folder: str, seed: int) -> list[str]:
    """The command line of Algorithm 4 on a table."""
    return [
        *f"dataset=pmlb dataset.table={table} algorithm=alg4 seed={seed}".split(),
        f"dataset.root={folder}",
    ]


MEMORY = 16 * 2**30
"""Bytes of addresses that another machine may take: without a limit, xRFM takes all that there is."""


def _trained(experiment: Experiment) -> NSVM:
    return model_of(experiment, experiment.trainer.finish(experiment.problem, train(experiment)))


def fit_alg4(table: str, folder: str, seed: int) -> dict[str, float]:
    """Algorithm 4 with its own settings."""
    experiment = prepare(parse_settings(plain_values(compose(words(table, folder, seed)))))
    time, model = clocked(_trained, experiment)
    test = experiment.data.splits["test"]
    return {"s": time, "accuracy": 100 * model.score(test.x, test.y)["accuracy"], "MiB": peak()}


def fit_other(name: str, table: str, folder: str, seed: int) -> dict[str, float]:
    """xRFM or SVC with their default settings, on the same split; xRFM validates on a fifth of it."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    experiment = prepare(parse_settings(plain_values(compose(words(table, folder, seed)))))
    splits, scaling = experiment.data.splits, experiment.scaling
    (x, y), (x_test, y_test) = (
        (scaling(part.x, torch.float32), part.y.numpy().astype(np.int64))
        for part in (splits["train"], splits["test"])
    )
    if name == "SVC":
        machine: Any = SVC()
        time, _ = clocked(machine.fit, x.numpy(), y)
        predicted = machine.predict(x_test.numpy())
    else:
        from xrfm import xRFM

        machine = xRFM(device=torch.device("cpu"), random_state=seed, verbose=False, n_threads=1)
        held_out = np.arange(len(y)) % 5 == 0
        parts = x[~held_out], torch.from_numpy(y[~held_out]), x[held_out], torch.from_numpy(y[held_out])
        time, _ = clocked(machine.fit, *parts)
        predicted = np.asarray(machine.predict(x_test)).ravel()
    return {"s": time, "accuracy": 100 * float((predicted == y_test).mean()), "MiB": peak()}


def tables(report: Report, arguments: argparse.Namespace) -> None:
    """Machines that learn features, or a metric, on tables of two and of 26 classes."""
    if arguments.pmlb is None:
        return
    folder, rows = str(arguments.pmlb.resolve()), []
    for table in ("letter", "adult"):
        by = {"Algorithm 4": lambda seed: alone(fit_alg4, table, folder, seed)}  # noqa: B023
        for name in ("SVC", *(["xRFM"] if find_spec("xrfm") else [])):
            by[name] = lambda seed, name=name: alone(fit_other, name, table, folder, seed)  # noqa: B023
        for name, fit in by.items():
            try:
                runs = [fit(seed) for seed in range(min(3, arguments.pairs))]
            except (MemoryError, RuntimeError) as error:  # a pool whose process was killed raises the latter
                print(f"{name} on {table}: {error}", flush=True)
                rows.append({"table": table, "by": name, "s": "out of memory", "accuracy": "", "MiB": ""})
                continue
            figures = {key: spread([run[key] for run in runs]) for key in ("s", "accuracy", "MiB")}
            rows.append({"table": table, "by": name, **figures})
            print(rows[-1], flush=True)
    report.table("tables", "Tables, one thread; others with their default settings", rows)


def measure(report: Report, arguments: argparse.Namespace) -> None:
    """Both tables."""
    svms(report, arguments)
    tables(report, arguments)
