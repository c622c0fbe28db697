"""What classes and samples cost: seconds and memory of the algorithms on generated data."""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np
import torch

from benchmarks.baselines import alone, peak
from benchmarks.report import Report, spread
from benchmarks.trainers import clocked
from nsvm_cli.engines import NUMBA, taken_by
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF
from nsvm_cli.models.losses import build_loss
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.tasks import encode, task_for
from nsvm_cli.trainers import Problem, build_trainer

CLASSES = (2, 10, 26)
SIZES = (2_000, 8_000, 32_000)
FEATURES = 16
ALGORITHMS: dict[str, dict[str, Any]] = {
    "pegasos": {"name": "pegasos", "steps": 20_000, "lam": 1e-4},
    "alg1": {"name": "alg1", "steps": 4_000, "lam": 1e-4},
    "alg2": {"name": "alg2", "steps": 1_000, "lam": 1e-4},
    "alg3": {"name": "alg3", "steps": 400, "lam": 1e-4, "batch_size": 64},
    "alg4": {"name": "alg4", "steps": 1_000, "batch_size": 64, "solver_steps": 10_000},
    "alg4, svc": {"name": "alg4", "steps": 1_000, "batch_size": 64, "solver": "svc"},
}
NETWORK = {"name": "mlp", "widths": [40, 20], "normalize": True}


def blobs(m: int, C: int, seed: int) -> Problem:
    """Normal samples around random centres, some of which overlap, for Crammer and Singer's loss.

    There are as many centres as the most classes, whatever C is, so that only the labels differ.
    """
    rng = np.random.default_rng(seed)
    centre = rng.integers(max(CLASSES), size=m)
    x = 1.2 * rng.standard_normal((max(CLASSES), FEATURES))[centre] + rng.standard_normal((m, FEATURES))
    index = centre % C
    task = task_for([str(r) for r in range(C)])
    y = torch.from_numpy(encode(index, range(C))).float()
    loss = build_loss({"name": "hinge"}, "crammer_singer", task)
    return Problem(torch.from_numpy(x).float(), y, RBF(0.25), seed, task=task, loss=loss)


def train(algorithm: str, m: int, C: int, seed: int) -> dict[str, float]:
    """Seconds of a whole run, its violations and support vectors, and the peak of its memory."""
    _run(algorithm, blobs(200, C, seed), seed)  # loads what is compiled
    problem, before = blobs(m, C, seed), peak()
    time, (state, g) = clocked(_run, algorithm, problem, seed)
    return {"s": time, "violations": state.violations, "vectors": len(g.alpha), "MiB": peak() - before}


def _run(algorithm: str, problem: Problem, seed: int) -> tuple[Any, Any]:
    trainer = build_trainer(ALGORITHMS[algorithm])
    network = {"name": "identity"} if algorithm == "pegasos" else NETWORK
    F = FeatureMap(build_network(network, (FEATURES,), seed), SGD(1e-3, 0.9), dropout_seed=0)
    trainer = taken_by(NUMBA, trainer)
    state = trainer.start(problem, F)
    trainer.advance(problem, state, trainer.total)
    return state, trainer.finish(problem, state)


def measure(report: Report, arguments: argparse.Namespace) -> None:
    """Each run in a process of its own, the classes of a seed one after the other."""
    rows = []
    for algorithm in ALGORITHMS:
        for m in SIZES:
            runs = {C: [] for C in CLASSES}
            for seed in range(arguments.pairs):
                for C in CLASSES:
                    runs[C].append(alone(train, algorithm, m, C, seed))
            times = {C: [run["s"] for run in repeats] for C, repeats in runs.items()}
            row = {"algorithm": algorithm, "m": m, "2 classes, s": spread(times[2])}
            for C in CLASSES[1:]:
                row[f"{C} / 2"] = spread([many / two for many, two in zip(times[C], times[2], strict=True)])
            for name in ("violations", "vectors", "MiB"):
                medians = (statistics.median(run[name] for run in repeats) for repeats in runs.values())
                row[name] = ", ".join(f"{median:.0f}" for median in medians)
            rows.append(row)
            print(row, flush=True)
    report.table("classes", "Seconds, and medians of the rest, with 2, 10 and 26 classes", rows)
