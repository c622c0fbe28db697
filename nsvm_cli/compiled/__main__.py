"""Compile everything ahead, so that no run has to: python -m nsvm_cli.compiled [TYPE ...]"""

from __future__ import annotations

import sys

import torch

from nsvm_cli.compiled.code import is_compiled
from nsvm_cli.compiled.coverage import TRAINERS
from nsvm_cli.compiled.trainers import compiled
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
    trainer = compiled(build_trainer({"name": algorithm, **lengths}))
    trainer.advance(problem, trainer.start(problem, F), trainer.total)


def main(types: list[str]) -> None:
    """Compile for these types of numbers."""
    if not {*types} <= {"float32", "float64"}:
        raise SystemExit("usage: python -m nsvm_cli.compiled [float32] [float64]")
    torch.set_num_threads(1)
    for dtype in types:
        for algorithm in TRAINERS:
            if not is_compiled(algorithm, dtype):
                compile_for(algorithm, getattr(torch, dtype))


if __name__ == "__main__":
    main(sys.argv[1:] or ["float32", "float64"])
