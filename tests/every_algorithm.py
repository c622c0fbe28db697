"""Train every algorithm in as many processes as torchrun starts, and then run a command of nsvm.

usage: torchrun tests/every_algorithm.py FILE ARGUMENT ...

The first process writes what came out to FILE; the arguments are those of nsvm. While nsvm trains, the last
process alone gets a SIGUSR1.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from safetensors.torch import save_file

from nsvm_cli.cli import main
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernel_gradients import SPSA, with_gradient
from nsvm_cli.models.kernels import RBF
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.parallel.distributed import Processes, init_distributed
from nsvm_cli.parallel.signals import Signals
from nsvm_cli.trainers import TRAINERS, Problem, Trainer
from tests.conftest import LOSSES, parameters, samples, short, train

STEPS = 24
NETWORKS: dict[str, dict[str, Any]] = {
    "plain": {"name": "mlp", "widths": [8, 6], "normalize": True},
    "dropout": {"name": "mlp", "widths": [8, 6], "dropout": 0.3, "normalize": True},
}


def train_all(processes: Processes) -> dict[str, torch.Tensor]:
    """Return i, z, alpha and theta by the names of task, algorithm and network."""
    out: dict[str, torch.Tensor] = {}
    for case, loss in LOSSES.items():
        # an odd number, so that the shards of two processes differ in size
        noise = torch.randn(121, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        task, x, y = samples(loss, noise)
        problem = Problem(x, y, RBF(1.0), 0, processes, task=task, loss=loss)
        steps = STEPS if case == "two classes" else STEPS // 3
        networks = NETWORKS if case == "two classes" else {"plain": NETWORKS["plain"]}
        trained = trained_on(problem, steps, networks)
        out |= {f"{case}: {name}": tensor for name, tensor in trained.items()}
        if case == "two classes":
            estimated = replace(problem, K=with_gradient(problem.K, SPSA()))
            trained = trained_on(estimated, STEPS, {"dropout": NETWORKS["dropout"]}, ("alg1", "alg3", "alg4"))
            out |= {f"spsa: {name}": tensor for name, tensor in trained.items()}
    return out


def trained_on(
    problem: Problem,
    steps: int,
    networks: dict[str, dict[str, Any]],
    names: Collection[str] = TRAINERS.keys() - {"cross_entropy", "linear_pegasos"},
) -> dict[str, torch.Tensor]:
    """Return i, z, alpha and theta by the names of algorithm and network."""
    out: dict[str, torch.Tensor] = {}
    trainers = {name: short(name, steps, lam=1e-2) for name in names}
    if "alg2" in names:
        trainers["derived alg3"] = short("alg3", steps, lam=1e-2, objective="derived")
    for name, trainer in sorted(trainers.items()):
        for kind, settings in networks.items():
            network = build_network(settings, (5,), seed=1).double()
            F = FeatureMap(network, SGD(1e-4, 0.9, 1e-3), dropout_seed=2)
            state, g = train(trainer, problem, F)
            theta = parameters(network)
            if kind == "dropout":
                resumed = theta_in_two_parts(trainer, problem, settings)
                if not torch.equal(theta, resumed):
                    raise SystemExit(f"{name}: resumed, it is {(theta - resumed).abs().max()} away")
            if state.objective is not None:
                out[f"{name} {kind} objective"] = state.objective
            means = [mean for mean in state.tally.means().values() if mean is not None]
            out[f"{name} {kind} means"] = torch.tensor(means, dtype=torch.float64)
            tensors = {"i": g.i, "z": g.z, "alpha": g.alpha, "theta": theta}
            out |= {f"{name} {kind} {what}": tensor for what, tensor in tensors.items()}
    return {name: tensor.contiguous() for name, tensor in out.items()}


def theta_in_two_parts(trainer: Trainer[Any], problem: Problem, settings: dict[str, Any]) -> torch.Tensor:
    """Return theta after a run that is saved in the middle and resumed with nothing but what was saved."""
    first, second = (
        FeatureMap(build_network(settings, (5,), seed=1).double(), SGD(1e-4, 0.9, 1e-3), dropout_seed=2)
        for _ in range(2)
    )
    state = trainer.start(problem, first)
    trainer.advance(problem, state, trainer.total // 2)
    saved = trainer.save(problem, state)
    second.load_state_dict(first.state_dict())
    trainer.advance(problem, trainer.restore(problem, second, saved), trainer.total)
    return parameters(second.network)


class Signalled(Signals):
    """Has noted a SIGUSR1 from the beginning on."""

    def __enter__(self) -> Signals:
        super().__enter__()
        os.kill(os.getpid(), signal.SIGUSR1)
        while not self._checkpoint_wanted:
            time.sleep(0.001)
        return self


if __name__ == "__main__":
    file, *arguments = sys.argv[1:]
    processes = init_distributed(torch.device("cpu"))
    tensors = train_all(processes)
    if processes.rank == 0:
        save_file(tensors, file)
    noting = Signalled if processes.rank == processes.size - 1 else Signals
    with mock.patch("nsvm_cli.parallel.signals.Signals", noting):
        main(arguments)
