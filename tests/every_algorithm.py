"""Trains every algorithm in as many processes as torchrun starts; the first writes what came out.

usage: torchrun tests/every_algorithm.py FILE
"""

from __future__ import annotations

import sys

import torch
from safetensors.torch import save_file

from nsvm_cli.features import Theta
from nsvm_cli.kernels import RBF
from nsvm_cli.networks import build_network
from nsvm_cli.optimizers import SGD
from nsvm_cli.processes import Processes, join
from nsvm_cli.trainers import TRAINERS, Problem, build_trainer
from tests.conftest import parameters, train

NETWORKS = {
    "plain": {"name": "mlp", "widths": [8, 6], "normalize": True},
    "dropout": {"name": "mlp", "widths": [8, 6], "dropout": 0.3, "normalize": True},
}


def train_all(processes: Processes) -> dict[str, torch.Tensor]:
    """z, alpha and theta by the names of algorithm and network."""
    y = torch.where(torch.arange(120) % 2 == 0, -1.0, 1.0).double()
    x = (
        torch.randn(120, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        + 0.5 * y[:, None]
    )
    problem = Problem(x, y, RBF(1.0), 0, processes)
    out: dict[str, torch.Tensor] = {}
    for name in sorted(TRAINERS.keys() - {"cross_entropy"}):
        for kind, settings in NETWORKS.items():
            network = build_network(settings, (5,), seed=1).double()
            F = Theta(network, SGD(1e-4, 0.9, 1e-3), dropout_seed=2)
            trainer = build_trainer({"name": name, "steps": 400, "lam": 1e-2})
            state, g = train(trainer, problem, F)
            theta = parameters(network)
            if state.objective is not None:
                out[f"{name} {kind} objective"] = state.objective
            out |= {
                f"{name} {kind} {what}": t for what, t in (("z", g.z), ("alpha", g.alpha), ("theta", theta))
            }
    return {name: tensor.contiguous() for name, tensor in out.items()}


if __name__ == "__main__":
    processes = join(torch.device("cpu"))
    tensors = train_all(processes)
    if processes.rank == 0:
        save_file(tensors, sys.argv[1])
