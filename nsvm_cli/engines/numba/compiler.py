"""The process that compiles the functions of an algorithm; see ``nsvm_cli.engines.numba.code``."""

from __future__ import annotations

import os
import sys
import threading

import torch

from nsvm_cli.engines import NUMBA, taken_by
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.trainers import Problem, build_trainer


def compile_for(algorithm: str, dtype: torch.dtype) -> None:
    """Take a few steps of an algorithm, all of whose functions are compiled by that."""
    x = torch.linspace(-1, 1, 80, dtype=dtype).sin().view(40, 2)
    problem = Problem(x, x[:, 0].sign(), RBF(1.0), seed=0)
    network = build_network({"name": "mlp", "widths": [4, 3], "dropout": 0.1}, (2,), seed=0).to(dtype)
    F = FeatureMap(network, SGD(1e-3, momentum=0.9), dropout_seed=0)
    lengths = {"steps": 8} | ({"solver_steps": 8} if algorithm == "alg4" else {})
    trainer = taken_by(NUMBA, build_trainer({"name": algorithm, **lengths}))
    trainer.advance(problem, trainer.start(problem, F), trainer.total)


def main() -> None:
    """Compile for the algorithm and the type on the command line; end at once if the parent process does."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    compile_for(sys.argv[1], getattr(torch, sys.argv[2]))


def _end_with_parent() -> None:
    sys.stdin.read()  # of which only the end comes
    os._exit(1)
