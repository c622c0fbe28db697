"""``algorithm=svc`` against LIBSVM (scikit-learn's SVC) and, with scikit-learn-intelex, oneDAL."""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from benchmarks.report import Report, spread
from benchmarks.trainers import Cell
from nsvm_cli.models.kernels import or_one_over_n
from nsvm_cli.trainers.base import Problem

MEMORY = 1000
"""Size of the cache for kernel values in LIBSVM and oneDAL, in MiB."""

WARMING_UP = 3000
"""Number of samples of a first fit, which is not reported."""

LONGEST = 60.0
"""A fit that takes at least this number of seconds is not repeated."""

Samples = tuple[torch.Tensor, torch.Tensor]
RAW = ("network=identity", "network.normalize=false", "kernel=rbf", "kernel.gamma=null")
TABLES = (("magic", 1e-4), ("magic", 1e-5), ("letter", 1e-5), ("adult", 1e-4), ("adult", 1e-6))


def cells(arguments: argparse.Namespace) -> Iterator[tuple[Cell, list[int | None]]]:
    """Yield runs, and for each run the numbers of training samples to fit; None stands for all samples."""
    yield Cell("ringnorm", "svc", ("dataset=ringnorm", "dataset.samples=100000", *RAW)), [6_660, 20_000, None]
    if arguments.mnist:
        root = f"dataset.root='{arguments.mnist.resolve()}'"
        yield Cell("mnist", "svc", ("dataset=mnist", root, *RAW)), [None]
    if arguments.pmlb:
        pmlb = ("dataset=pmlb", f"dataset.root='{arguments.pmlb.resolve()}'")
        for table, lam in TABLES:
            words = (*pmlb, f"dataset.table={table}", *RAW, f"algorithm.lam={lam}")
            yield Cell(f"{table}, lam {lam:g}", "svc", words), [None]
        words = (*pmlb, "dataset.table=adult", "algorithm.solver=svc")
        yield Cell("adult, features of Algorithm 4", "alg4", words), [5_000, 15_000, None]


def prepared(cell: Cell) -> tuple[Problem, Any, Samples]:
    """Return the problem on features, the SVM and the test set; ``alg4`` first trains theta in Part 1."""
    e = cell.prepare(seed=0)
    svm: Any = e.trainer
    if cell.algorithm == "alg4":
        svm.advance(e.problem, svm.start(e.problem, e.F), svm.last_theta_step)
        svm = svm.svm
    test, z = e.data.splits["test"], e.F(e.problem.x)
    problem = e.problem.of(np.arange(len(z)), z)
    return problem, svm, (e.F(e.scaling(test.x, z.dtype)), problem.task.targets(test.y))


def ours(svm: Any, problem: Problem, test: Samples) -> dict[str, float]:
    """Fit the SVM of nsvm, and return its seconds, accuracy and number of support vectors."""
    begin = time.process_time()
    g = svm.solve(problem, problem.x)
    seconds = time.process_time() - begin
    right = problem.task.decide(g(problem.K, test[0])) == test[1]
    return {"s": seconds, "accuracy": 100 * float(right.double().mean()), "vectors": len(g.z)}


def theirs(kind: Any, svm: Any, problem: Problem, test: Samples) -> dict[str, float]:
    """Fit the same SVM with a class that has scikit-learn's interface."""
    K: Any = problem.K
    gamma = float(or_one_over_n(K.gamma, problem.x))
    machine = kind(C=svm.C(problem), gamma=gamma, tol=svm.tol, cache_size=MEMORY)
    begin = time.process_time()
    machine.fit(problem.x.numpy(), problem.host_y)
    seconds = time.process_time() - begin
    accuracy = 100 * machine.score(test[0].numpy(), test[1].numpy())
    return {"s": seconds, "accuracy": accuracy, "vectors": len(machine.support_)}


def fit(report: Report, arguments: argparse.Namespace) -> None:
    """Measure the processor seconds of all implementations in turn, and write the table."""
    kinds: dict[str, Any] = {"svc": None, "LIBSVM": SVC}
    if importlib.util.find_spec("sklearnex"):
        kinds["oneDAL"] = importlib.import_module("sklearnex.svm").SVC
    rows = []
    for cell, sizes in cells(arguments):
        whole, svm, test = prepared(cell)
        for m in (WARMING_UP, *sizes):
            rows_taken = np.linspace(0, len(whole.y) - 1, m or len(whole.y)).astype(np.int64)
            problem = whole.of(rows_taken, whole.x[rows_taken])
            fits: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
            for _ in range(1 if m is WARMING_UP else arguments.pairs):
                for name, kind in kinds.items():
                    if not fits[name] or fits[name][0]["s"] < LONGEST:
                        with threadpool_limits(1):
                            run = theirs(kind, svm, problem, test) if kind else ours(svm, problem, test)
                        fits[name].append(run)
            if m is WARMING_UP:
                continue
            base = np.median([run["s"] for run in fits["svc"]])
            row: dict[str, Any] = {"data": cell.dataset, "m": len(problem.y), "n": problem.x.shape[1]}
            row |= {f"{name}, s": spread([run["s"] for run in runs]) for name, runs in fits.items()}
            for name in [*kinds][1:]:
                row[f"{name} / svc"] = float(np.median([run["s"] for run in fits[name]]) / base)
            for key in ("accuracy", "vectors"):
                row[key] = ", ".join(f"{runs[0][key]:.5g}" for runs in fits.values())
            rows.append(row)
            print(row, flush=True)
    report.table("exact", "The exact SVM, to a gap of 0.001", rows)
