"""What the arithmetic of a run would take on this machine, if nothing else took any time.

It counts what no exact method can leave out: the features of every sample that is drawn, and where theta
has moved those of all support vectors, the kernel values between them, and the gradients.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import nn

from nsvm_cli.models.kernels import RBF
from nsvm_cli.models.networks import CNN, MLP
from nsvm_cli.runs.experiment import Experiment

PIECES = 200
"""Pieces of a run after which its support vectors are counted."""


@dataclass
class Work:
    """Operations in products, of matrices and in convolutions, and exponentials."""

    products: float = 0.0
    exponentials: float = 0.0

    def seconds(self) -> float:
        """What they take at the rates of this machine."""
        rates = measured()
        return sum(getattr(self, name) / getattr(rates, name) for name in vars(self))


def best(task: Callable[[], Any], repeats: int = 50) -> float:
    """The seconds of its fastest run."""
    seconds = math.inf
    for _ in range(repeats):
        begin = time.perf_counter()
        task()
        seconds = min(seconds, time.perf_counter() - begin)
    return seconds


@cache
def measured() -> Work:
    """How much of each this machine does in a second, on one thread, in float32.

    By torch or by compiled code, whichever does more.
    """
    a, values = torch.randn(512, 512), -torch.rand(2**17)
    products = 2 * 512**3 / best(lambda: a @ a)
    exponentials = len(values) / best(lambda: torch.exp2(values))
    if find_spec("numba"):
        from nsvm_cli.engines.numba.kernels import of_products
        from nsvm_cli.engines.numba.products import Grid, Rows, add_inner_products
        from nsvm_cli.engines.numba.theta import kernel_form

        x, out = Rows(torch.randn(200 * 512).numpy(), 0, 512), Grid(np.zeros(200**2, np.float32), 0, 200, 1)
        seconds = best(lambda: add_inner_products(out, x, x, 200, 200, 512))
        products = max(products, 2 * 200**2 * 512 / seconds)
        K, P, ones = kernel_form(RBF(1.0), a), values.numpy().reshape(-1, 512), np.ones(512, np.float32)
        seconds = best(lambda: of_products(K, P, ones, ones))
        exponentials = max(exponentials, P.size / seconds)
    return Work(products, exponentials)


def _of_convolutions(side: int) -> float:
    return 2.0 * ((side - 4) ** 2 * 10 * 25 + (side // 2 - 6) ** 2 * 20 * 250)


def forward(network: nn.Module) -> tuple[Work, Work]:
    """The work of one sample on its way through the network, and on the way back."""
    there, back = Work(), Work()
    for module in network.modules():
        if isinstance(module, MLP):
            sizes = [2.0 * layer.weight.numel() for layer in module.layers]
            there.products, back.products = sum(sizes), 2 * sum(sizes) - sizes[0]
        elif isinstance(module, CNN):
            first = 2.0 * 24**2 * 10 * 25
            there.products = _of_convolutions(28)
            back.products = 2 * there.products - first
    return there, back


def work(experiment: Experiment) -> Work:
    """The work of a run, which is taken to count its support vectors."""
    trainer: Any = experiment.trainer
    problem, F, k = experiment.problem, experiment.F, trainer.k
    name, T_theta = experiment.settings.algorithm["name"], trainer.last_theta_step
    n = F(problem.x[:1]).shape[1]
    there, back = forward(F.network)
    dropped = any(getattr(module, "p", 0) > 0 for module in F.network.modules())
    # convolutions come before the dropout: they are not repeated
    again = dropped and not any(isinstance(module, CNN) for module in F.network.modules())
    total = Work()

    def add(samples: float = 0, backwards: float = 0, values: float = 0, slopes: float = 0) -> None:
        total.products += samples * there.products + backwards * back.products + 2 * n * (values + slopes)
        total.exponentials += values

    state = trainer.start(problem, F)
    ends = {max(1, trainer.total * (i + 1) // PIECES) for i in range(PIECES)}
    for end in sorted({*ends, T_theta}):
        t, s, moves = state.t, state.support_vectors, -F.theta_steps
        trainer.advance(problem, state, end)
        steps, s, moves = end - t, (s + state.support_vectors) / 2, moves + F.theta_steps
        if name == "pegasos" or (name == "alg4" and end > T_theta):
            add(values=steps * s)
        elif name == "alg1":
            add(steps + again * moves, moves, (steps + dropped * moves) * s, moves * s)
        elif name == "alg2":
            passes = 1 + again
            add(steps + moves * s * passes, moves * s, (steps + dropped * moves) * s, 2 * moves * s)
        elif name == "alg3":
            add(steps * (s + k * (1 + dropped)), steps * k, steps * k * (s + k), steps * k * k)
        else:
            add(steps * k, steps * k, steps * k * k, steps * k * k)
    if name in ("pegasos", "alg4"):
        add(len(problem.y))
    return total
