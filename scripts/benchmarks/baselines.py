"""Algorithm 0 against scikit-learn's SVC, on generated Ringnorm samples."""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from sklearn.svm import SVC

from benchmarks.report import Report, spread
from benchmarks.trainers import clocked
from nsvm_cli.datasets.ringnorm import Ringnorm
from nsvm_cli.datasets.scaling import fit_scaling
from nsvm_cli.engines import NUMBA, for_engine
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.trainers import Problem
from nsvm_cli.trainers.pegasos import Pegasos

GAMMA, LAM, TEST = 0.05, 3e-4, 20_000
SIZES = (6_660, 20_000, 50_000, 100_000)
LONGEST = 64_000


def samples(m: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return standardised training samples and labels, and test samples and labels, in float32."""
    drawn = Ringnorm(samples=m + TEST).load(np.random.default_rng(seed))
    x, labels = torch.from_numpy(drawn.x), torch.from_numpy(drawn.y).float()
    z = fit_scaling(x[:m], global_scaling=False)(x).float()
    return z[:m], labels[:m], z[m:], labels[m:]


def accuracy(predicted: torch.Tensor, y: torch.Tensor) -> float:
    """Return the accuracy in percent."""
    return 100 * float(((predicted >= 0) == (y > 0)).double().mean())


def alone(task: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task in a separate process, so that its peak memory is measured alone, and return its result."""
    with ProcessPoolExecutor(
        1, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        return pool.submit(task, *arguments).result()


def peak() -> float:
    """Return the peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fit_svc(m: int, seed: int) -> dict[str, float]:
    """Fit SVC, and return seconds, test accuracy, number of support vectors and peak memory."""
    z, y, z_test, y_test = samples(m, seed)
    svc = SVC(gamma=GAMMA, C=1.0)
    time, _ = clocked(svc.fit, z.numpy(), y.numpy())
    reached = accuracy(torch.from_numpy(svc.decision_function(z_test.numpy())), y_test)
    return {"s": time, "accuracy": reached, "vectors": len(svc.support_), "MiB": peak()}


def fit_pegasos(m: int, seed: int, wanted: float) -> dict[str, float]:
    """Train Algorithm 0 until it reaches the wanted accuracy, and return the same figures.

    The accuracy is computed after 1000 steps and whenever the number of steps has grown by half. The seconds
    exclude this.
    """
    z, y, z_test, y_test = samples(m, seed)
    network = build_network({"name": "identity"}, (z.shape[1],), seed=0)
    problem, F = Problem(z, y, RBF(GAMMA), seed=0), FeatureMap(network, SGD(0.0), seed=0)
    trainer, steps, reached = for_engine(NUMBA, Pegasos(LONGEST, LAM)), 1000, 0.0
    trainer.advance(problem, trainer.start(problem, F), 10)  # loads the compiled code
    time, state = clocked(trainer.start, problem, F)
    while True:
        time += clocked(trainer.advance, problem, state, steps)[0]
        g = trainer.finish(problem, state)
        reached = accuracy(g(problem.K, z_test), y_test)
        if reached >= wanted or steps == LONGEST:
            break
        steps = min(LONGEST, steps * 3 // 2)
    return {"s": time, "accuracy": reached, "vectors": len(g.alpha), "MiB": peak(), "steps": steps}


def fit(report: Report, arguments: argparse.Namespace) -> None:
    """Measure the time to SVC's test accuracy minus 0.3 points, with each fit in a separate process."""
    rows = []
    for m in SIZES:
        ours, theirs = [], []
        for seed in range(arguments.pairs if m < 50_000 else min(3, arguments.pairs)):
            theirs.append(alone(fit_svc, m, seed))
            ours.append(alone(fit_pegasos, m, seed, theirs[-1]["accuracy"] - 0.3))
        short = sum(a["accuracy"] < b["accuracy"] - 0.3 for a, b in zip(ours, theirs, strict=True))
        ratios = [b["s"] / a["s"] for a, b in zip(ours, theirs, strict=True)]
        row = {"m": m, "pairs": len(ours), "SVC / Algorithm 0": spread(ratios)}
        for key in ("s", "accuracy", "vectors", "MiB"):
            row[f"Algorithm 0, {key}"] = spread([run[key] for run in ours])
            row[f"SVC, {key}"] = spread([run[key] for run in theirs])
        row["steps"] = spread([run["steps"] for run in ours])
        rows.append({**row, f"not by step {LONGEST}": short})
        print(rows[-1], flush=True)
    title = f"Algorithm 0 (lambda = {LAM}) to the test accuracy of SVC(gamma={GAMMA}, C=1) minus 0.3 points"
    report.table("svc", title, rows)
