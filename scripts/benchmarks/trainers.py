"""The trainers and their literal steps against the eager loop, on the paper's settings.

All three use the same data, seeds, theta and samples. The eager loop uses torch's own dropout.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import nn

from benchmarks.eager import Eager, rbf
from benchmarks.report import Report, spread
from nsvm_cli.compose.composition import compose_settings
from nsvm_cli.config.registry import build
from nsvm_cli.config.settings import parse_settings
from nsvm_cli.engines import LITERAL
from nsvm_cli.models.dropout import Dropout
from nsvm_cli.models.networks import CNN, MLP, MaxPool
from nsvm_cli.models.optimizers import OPTIMIZERS
from nsvm_cli.runs.experiment import Experiment, prepare

WINDOWS, WINDOW = 10, 50  # used if the eager loop would take more than ten minutes
TOO_LONG = 600.0
R = TypeVar("R")
ALGORITHMS = ("pegasos", "alg1", "alg2", "alg3", "alg4")


@dataclass(frozen=True)
class Cell:
    """An algorithm on a data set, with further overrides such as the folder of the data."""

    dataset: str
    algorithm: str
    words: tuple[str, ...]

    def prepare(self, seed: int) -> Experiment:
        words = [f"algorithm={self.algorithm}", f"seed={seed}", "device=cpu", "threads=1", *self.words]
        values = compose_settings(words)
        return prepare(parse_settings(values))


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    """Yield each algorithm on Ringnorm and, if its folder is given, on MNIST 0-v-1."""
    engine = f"engine={arguments.engine}"
    ringnorm: tuple[str, ...] = (engine, "dataset=ringnorm")
    if arguments.ringnorm:
        ringnorm = (engine, "dataset=ringnorm_openml", f"dataset.path='{arguments.ringnorm.resolve()}'")
    for algorithm in arguments.algorithms:
        yield Cell("ringnorm", algorithm, ringnorm)
    if arguments.mnist:
        for algorithm in arguments.algorithms:
            words = (engine, "dataset=mnist", f"dataset.root='{arguments.mnist.resolve()}'")
            yield Cell("mnist", algorithm, words)


def eager_loop(experiment: Experiment) -> Eager:
    """Return the eager loop with the current theta of the experiment, made of torch's own modules."""
    settings: Any = build(OPTIMIZERS, "optimizer", experiment.settings.optimizer)
    problem, trainer = experiment.problem, experiment.trainer
    network = _of_torch(deepcopy(experiment.F.network))
    parameters = list(network.parameters()) or [nn.Parameter(torch.zeros(1))]
    optimizer = torch.optim.SGD(
        parameters, settings.lr, settings.momentum, weight_decay=settings.weight_decay
    )
    sampler = problem.sampler(trainer.k)
    gamma = problem.K.gamma or 1 / experiment.F(problem.x[:1]).shape[1]  # type: ignore[attr-defined]
    draw = lambda t: torch.from_numpy(sampler(t))  # noqa: E731
    rate = lambda t: settings.rate((t - 1) / trainer.last_theta_step)  # noqa: E731
    return Eager(problem.x, problem.y, network, optimizer, draw, rbf(gamma), trainer.lam, rate)  # type: ignore[attr-defined]


def _layer_of_torch(layer: nn.Module) -> nn.Module:
    if isinstance(layer, Dropout):
        return nn.Dropout2d(layer.p)
    if isinstance(layer, MaxPool):
        return nn.MaxPool2d(2)
    return layer


def _of_torch(network: nn.Module) -> nn.Module:
    match network:
        case MLP():
            dropout = nn.Dropout(network.dropout.p)
            layers = [part for layer in network.layers for part in (dropout, layer, nn.ReLU())]
            return nn.Sequential(nn.Flatten(), *layers[1:])  # the inputs have no dropout
        case CNN():
            return nn.Sequential(*map(_layer_of_torch, network))
        case nn.Sequential():
            return nn.Sequential(*(_of_torch(module) for module in network))
    return network


def steps(experiment: Experiment, eager: Eager) -> Iterator[int]:
    """Run the eager loop over all steps of the experiment."""
    trainer: Any = experiment.trainer
    name, T = experiment.settings.algorithm["name"], trainer.total
    if name == "pegasos":
        yield from eager.algorithm_0(eager.F(eager.x), T)
    elif name == "alg4":
        part_1, part_2 = trainer.part_steps
        yield from eager.algorithm_4_part_1(part_1, trainer.batch_size)
        sampler = experiment.problem.sampler()
        eager.draw = lambda t: torch.from_numpy(sampler(t))
        yield from eager.algorithm_0(eager.F(eager.x), part_2)
    elif name == "alg3":
        yield from eager.algorithm_3(T, trainer.batch_size)
    else:
        yield from getattr(eager, {"alg1": "algorithm_1", "alg2": "algorithm_2"}[name])(T)


def clocked(task: Callable[..., R], *arguments: Any, **options: Any) -> tuple[float, R]:
    """Return the seconds that a task takes, and its result."""
    begin = time.perf_counter()
    result = task(*arguments, **options)
    return time.perf_counter() - begin, result


def train(experiment: Experiment) -> Any:
    """Train like ``nsvm train``, but without records, and return the last state."""
    trainer, problem = experiment.trainer, experiment.problem
    state = trainer.start(problem, experiment.F)
    trainer.advance(problem, state, trainer.total)
    trainer.finish(problem, state)
    return state


def exhaust(iterator: Iterator[int]) -> None:
    for _ in iterator:
        pass


def windows(experiment: Experiment) -> tuple[float, float]:
    """Return the estimated seconds of a whole run by the eager loop and by literal steps.

    Both are measured in WINDOWS windows of WINDOW steps, which are spread over the run. Each window starts
    from the state of our trainer at its first step.
    """
    trainer, problem = experiment.trainer, experiment.problem
    state = trainer.start(problem, experiment.F)
    eager_seconds = step_seconds = 0.0
    for window in range(WINDOWS):
        trainer.advance(problem, state, max(state.t, int(trainer.total * (window + 0.5) / WINDOWS)))
        eager, until = eager_from(experiment, state), state.t + WINDOW
        if experiment.settings.algorithm["name"] == "alg2":
            loop = eager.algorithm_2(until, begin=state.t)
        else:
            loop = eager.algorithm_3(until, trainer.batch_size, begin=state.t)  # type: ignore[attr-defined]
        eager_seconds += clocked(exhaust, loop)[0]
        literal = replace(experiment, engine=LITERAL).trainer
        twin = literal.restore(problem, deepcopy(experiment.F), state.state_dict())
        step_seconds += clocked(literal.advance, problem, twin, until)[0]
    share = WINDOWS * WINDOW / trainer.total
    return eager_seconds / share, step_seconds / share


def eager_from(experiment: Experiment, state: Any) -> Eager:
    """Return the eager loop of Algorithm 2 or 3, in the state of our trainer."""
    eager, y = eager_loop(experiment), experiment.problem.y
    eager.j = torch.from_numpy(state.coefficients.support.copy())
    eager.alpha = torch.from_numpy(state.coefficients.alpha).to(y) * y  # the paper's alpha excludes y
    for p, momentum in zip(
        eager.optimizer.param_groups[0]["params"], experiment.F.optimizer.state["momenta"], strict=True
    ):
        if momentum is not None:
            eager.optimizer.state[p]["momentum_buffer"] = momentum.clone()
    return eager


def measure(report: Report, arguments: argparse.Namespace) -> None:
    """Measure all cells, and write the table of ratios."""
    rows = []
    for cell in cells(arguments):
        ours, eager, literal, in_windows = [], [], [], False
        train(warm := cell.prepare(0))  # also loads the compiled code
        for seed in range(arguments.pairs):
            experiment = cell.prepare(seed)
            loop = steps(experiment, eager_loop(experiment))
            ours.append(clocked(train, experiment)[0])
            if seed == 0 and cell.dataset == "mnist" and cell.algorithm in ("alg2", "alg3"):
                in_windows = windows(cell.prepare(seed))[0] > TOO_LONG
            if in_windows:
                seconds = windows(cell.prepare(seed))
            else:
                by_step = replace(cell.prepare(seed), engine=LITERAL)
                seconds = clocked(exhaust, loop)[0], clocked(train, by_step)[0]
            eager.append(seconds[0])
            literal.append(seconds[1])
        rows.append(
            {
                "data": cell.dataset,
                "algorithm": cell.algorithm,
                "engine": warm.engine,
                "steps": warm.trainer.total,
                "eager / ours": spread([b / a for a, b in zip(ours, eager, strict=True)]),
                "ours, s": spread(ours),
                "eager, s": spread(eager) + (" from windows" if in_windows else ""),
                "step, s": spread(literal),
                "step / eager": spread([b / a for a, b in zip(eager, literal, strict=True)]),
            }
        )
        print(rows[-1], flush=True)
    report.table("trainers", f"Trainers against the eager loop ({arguments.pairs} pairs, seeds 0 up)", rows)
