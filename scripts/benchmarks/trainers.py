"""The trainers against tests/eager.py: the same data, seeds, theta and samples, on the paper's settings."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from benchmarks.limits import work
from benchmarks.report import Report, spread
from nsvm_cli.cli.hydra_app import compose, plain_values
from nsvm_cli.config.settings import parse_settings
from nsvm_cli.models.networks import CNN, MLP, Convolution, Dropout, MaxPool
from nsvm_cli.models.optimizers import build_optimizer
from nsvm_cli.runs.experiment import Experiment, prepare
from tests.eager import Eager, rbf

WINDOWS, WINDOW = 10, 50  # where the literal loop would take more than ten minutes
TOO_LONG = 600.0
R = TypeVar("R")
ALGORITHMS = ("pegasos", "alg1", "alg2", "alg3", "alg4")


@dataclass(frozen=True)
class Cell:
    """An algorithm on a data set, and where its data are."""

    dataset: str
    algorithm: str
    words: tuple[str, ...]

    def prepare(self, seed: int) -> Experiment:
        words = [f"algorithm={self.algorithm}", f"seed={seed}", "device=cpu", "threads=1", *self.words]
        values = plain_values(compose(words))
        return prepare(parse_settings(values))


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    """Each algorithm on Ringnorm and, if it is at hand, on MNIST 0-v-1."""
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


def literal(experiment: Experiment) -> Eager:
    """The literal loop with the theta that the experiment has now, made of torch's own modules."""
    settings: Any = build_optimizer(experiment.settings.optimizer)
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
    if isinstance(layer, Convolution):
        own = nn.Conv2d(layer.in_channels, layer.out_channels, layer.kernel_size)
        own.load_state_dict(layer.state_dict())
        return own
    return layer


def _of_torch(network: nn.Module) -> nn.Module:
    match network:
        case MLP():
            dropout = nn.Dropout(network.dropout.p)
            layers = [part for layer in network.layers for part in (dropout, layer, nn.ReLU())]
            return nn.Sequential(nn.Flatten(), *layers[1:])  # what comes in is never dropped
        case CNN():
            return nn.Sequential(*map(_layer_of_torch, network))
        case nn.Sequential():
            return nn.Sequential(*(_of_torch(module) for module in network))
    return network


def steps(experiment: Experiment, eager: Eager) -> Iterator[int]:
    """The literal loop over the whole run of this experiment."""
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
    """The seconds that it takes, and its result."""
    begin = time.perf_counter()
    result = task(*arguments, **options)
    return time.perf_counter() - begin, result


def train(experiment: Experiment) -> Any:
    """The whole run, as ``nsvm train`` does it, without its records; returns the last state."""
    trainer, problem = experiment.trainer, experiment.problem
    state = trainer.start(problem, experiment.F)
    trainer.advance(problem, state, trainer.total)
    trainer.finish(problem, state)
    return state


def exhaust(iterator: Iterator[int]) -> None:
    """Runs it to its end."""
    for _ in iterator:
        pass


def windows(experiment: Experiment) -> float:
    """What the literal loop would take for the whole run, from WINDOWS windows of WINDOW steps.

    Their places are spread over the run. Each starts from the state that our trainer has there.
    """
    trainer, problem = experiment.trainer, experiment.problem
    state = trainer.start(problem, experiment.F)
    spent = 0.0
    for window in range(WINDOWS):
        trainer.advance(problem, state, max(state.t, int(trainer.total * (window + 0.5) / WINDOWS)))
        eager = literal_from(experiment, state)
        until = state.t + WINDOW
        if experiment.settings.algorithm["name"] == "alg2":
            loop = eager.algorithm_2(until, begin=state.t)
        else:
            loop = eager.algorithm_3(until, trainer.batch_size, begin=state.t)  # type: ignore[attr-defined]
        spent += clocked(exhaust, loop)[0]
    return spent / (WINDOWS * WINDOW) * trainer.total


def literal_from(experiment: Experiment, state: Any) -> Eager:
    """The literal loop of Algorithm 2 or 3 where our trainer's state is."""
    eager, y = literal(experiment), experiment.problem.y
    eager.j = torch.from_numpy(state.coefficients.support.copy())
    eager.alpha = torch.from_numpy(state.coefficients.alpha).to(y) * y  # in the paper, y is no part of alpha
    _copy_momentum(experiment.F.optimizer, eager.optimizer)
    return eager


def _copy_momentum(ours: Any, theirs: torch.optim.Optimizer) -> None:
    for p, momentum in zip(theirs.param_groups[0]["params"], ours.momenta, strict=True):
        if momentum is not None:
            theirs.state[p]["momentum_buffer"] = momentum.clone()


def measure(report: Report, arguments: argparse.Namespace) -> None:
    """The table of ratios."""
    rows = []
    for cell in cells(arguments):
        ours, theirs, in_windows = [], [], False
        limit = work(warm := cell.prepare(0)).seconds()  # which also loads what is compiled
        for seed in range(arguments.pairs):
            experiment = cell.prepare(seed)
            eager = literal(experiment)
            ours.append(clocked(train, experiment)[0])
            if seed == 0 and cell.dataset == "mnist" and cell.algorithm in ("alg2", "alg3"):
                in_windows = windows(cell.prepare(seed)) > TOO_LONG
            if in_windows:
                theirs.append(windows(cell.prepare(seed)))
            else:
                theirs.append(clocked(exhaust, steps(experiment, eager))[0])
        ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
        rows.append(
            {
                "data": cell.dataset,
                "algorithm": cell.algorithm,
                "engine": warm.engine,
                "steps": warm.trainer.total,
                "ratio": spread(ratios),
                "ours, s": spread(ours),
                "literal, s": spread(theirs) + (" from windows" if in_windows else ""),
                "arithmetic of seed 0, s": limit,
                "ours / arithmetic": ours[0] / limit,
            }
        )
        print(rows[-1], flush=True)
    report.table("trainers", f"Trainers against the literal loop ({arguments.pairs} pairs, seeds 0 up)", rows)


def profile(report: Report, arguments: argparse.Namespace) -> None:
    """Where the time of each cell goes on torch."""
    rows = []
    for cell in cells(argparse.Namespace(**{**vars(arguments), "engine": "torch"})):
        experiment = cell.prepare(0)
        F, K = experiment.F, type(experiment.problem.K)
        spent = dict.fromkeys(("network, forward", "network, backward", "kernel", "optimizer"), 0.0)
        with ExitStack() as stack:
            for part, owner, name in (
                ("network, forward", F.network, "forward"),
                ("network, backward", torch.autograd, "grad"),
                ("optimizer", F.optimizer, "step"),
                ("kernel", K, "__call__"),
                ("kernel", K, "gradient"),
            ):
                if owner is not None:
                    stack.enter_context(timed(spent, part, owner, name))
            total, state = clocked(train, experiment)
        parts = {part: f"{100 * value / total:.0f} %" for part, value in spent.items()}
        rows.append(
            {
                "data": cell.dataset,
                "algorithm": cell.algorithm,
                "violations": state.violations,
                "support vectors": state.support_vectors,
                **parts,
                "the rest": f"{100 * (1 - sum(spent.values()) / total):.0f} %",
            }
        )
    report.table("profile", "Where the time goes on torch (seed 0)", rows)


@contextmanager
def timed(spent: dict[str, float], part: str, owner: Any, name: str) -> Iterator[None]:
    """Adds the time that calls of ``owner.name`` take to ``spent[part]``."""
    original, own = getattr(owner, name), name in vars(owner)

    def wrapper(*arguments: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        result = original(*arguments, **options)
        spent[part] += time.perf_counter() - begin
        return result

    setattr(owner, name, wrapper)
    yield
    if own:
        setattr(owner, name, original)
    else:
        delattr(owner, name)
