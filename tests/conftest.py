"""Shared fixtures and helpers: small problems, short training, and the paths of real data."""

from __future__ import annotations

import gc
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import cache, wraps
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import jaxtyping
import numpy as np
import omegaconf.base
import pytest
import torch
import yaml
from torch import Tensor, nn

from nsvm_cli.engines import Engine, for_engine
from nsvm_cli.engines.numba.code import code_folder, compile_once, is_usable
from nsvm_cli.models.feature_map import Batch, FeatureMap
from nsvm_cli.models.kernels import RBF, Kernel
from nsvm_cli.models.losses import Binary, CrammerSinger, EpsilonInsensitive, Hinge, Loss, Residual
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.parallel.workers import Workers
from nsvm_cli.tasks import BINARY, MulticlassClassification, Regression, Task
from nsvm_cli.trainers import TRAINERS, Problem, State, Trainer, build_trainer

T = TypeVar("T")

if find_spec("numba"):
    code_folder()  # before a test changes XDG_CACHE_HOME, so that workers share what they compile

jaxtyping.config.update("jaxtyping_disable", True)  # the fixture ``shapes`` enables the checks

compile_checks = jaxtyping.jaxtyped


def checked_when_called(*, typechecker: Any) -> Callable[[Any], Any]:
    """Return jaxtyping's decorator, changed to compile the checks of a nested function on its first call.

    Many nested functions are defined in every step, and compiling their checks takes longer than the step.
    """
    decorate = compile_checks(typechecker=typechecker)

    def decorated(part: Any) -> Any:
        if not isinstance(part, FunctionType) or "<locals>" not in part.__qualname__:
            return decorate(part)
        checked = cache(lambda: decorate(part))
        return wraps(part)(
            lambda *given, **named: (part if jaxtyping.config.jaxtyping_disable else checked())(
                *given, **named
            )
        )

    return decorated


jaxtyping.jaxtyped = checked_when_called


def parsed_once(load: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``yaml.load``, changed to parse equal files once.

    Each composition reads 20 files twice, and parsing them takes a third of its time.
    """
    values: dict[tuple[str, str], bytes] = {}

    @wraps(load)
    def loaded(stream: Any, Loader: Any) -> Any:
        if isinstance(stream, str | bytes):
            return load(stream, Loader)
        key = stream.read(), Loader.__qualname__
        if key not in values:
            stream.seek(0)  # so that an error names the file
            values[key] = pickle.dumps(load(stream, Loader))
        return pickle.loads(values[key])

    return loaded


yaml.load = parsed_once(yaml.load)
omegaconf.base.parse = cache(omegaconf.base.parse)  # of interpolations, which take a tenth of a composition

gc.disable()  # until all test modules are imported: collections would take a tenth of the import time

# Several pytest workers share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)

# If a shell starts pytest with &, Ctrl-C is ignored, and processes that tests interrupt would inherit this.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Exclude the objects of the imported modules from the garbage collections during the tests."""
    gc.collect()
    gc.freeze()
    gc.enable()


@cache
def compile_units() -> None:
    """Compile the steps that tests use in one process, because algorithms share most of the compiled code."""
    if is_usable():
        float64 = [f"{name}-float64" for name in ("alg1", "alg2", "alg3", "alg4", "pegasos")]
        compile_once([*float64, "pegasos-float32"])


@pytest.fixture
def compiled() -> None:
    """Compile the steps for all tests at once; a test would otherwise start a process for each algorithm."""
    compile_units()


REAL_DATA = Path(os.environ.get("NSVM_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))


def real(path: str) -> Path:
    """Return the path of a file or folder of real data, or skip the test if it does not exist."""
    if not (REAL_DATA / path).exists():
        pytest.skip(f"needs {path} below {REAL_DATA} (NSVM_TEST_DATA names another folder)")
    return REAL_DATA / path


@pytest.fixture(scope="module")
def shapes() -> Iterator[None]:
    """Check the shapes and types in nsvm's signatures during the tests of a module.

    The checks take twice as long as the rest of a test, so few modules use this fixture. Together, they call
    nearly all functions with shapes in their signatures.
    """
    jaxtyping.config.update("jaxtyping_disable", False)
    yield
    jaxtyping.config.update("jaxtyping_disable", True)


class InlineWorkers(Workers):
    """A replacement for worker processes that does the work at once in this process."""

    def __init__(self, count: int) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(work(*arguments))
        except BaseException as error:
            future.set_exception(copy(error))  # like an error of another process, without a traceback
        return future


@pytest.fixture
def inline_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a study work in this process, because each worker process would import torch."""
    monkeypatch.setattr("nsvm_cli.tuning.search.Workers", InlineWorkers)


LOSSES: dict[str, Loss] = {
    "two classes": Binary(Hinge()),
    "three classes": CrammerSinger(Hinge()),
    "real targets": Residual(EpsilonInsensitive(0.1)),
}
"""A loss for each kind of task."""


STEPPING = sorted(name for name, algorithm in TRAINERS.items() if not algorithm.chooses_steps)
"""The algorithms that take a given number of steps."""


def few_steps(algorithm: str, steps: int) -> dict[str, Any]:
    """Return settings of an algorithm for a few steps and, for ``auto``, few candidates."""
    if algorithm == "auto":
        return {"steps": 3, "lam": 0.1, "scales": [1.0]}
    return {"steps": steps} if algorithm in STEPPING else {}


@dataclass
class Small:
    """A small problem in float64, and a network for it."""

    problem: Problem
    network: nn.Module

    def theta(self, lr: float = 0.05) -> FeatureMap:
        """Return a feature map for a trainer, with a copy of the network."""
        return FeatureMap(deepcopy(self.network), SGD(lr, momentum=0.9, weight_decay=0.01), seed=5)


MakeSmall = Callable[..., Small]


@pytest.fixture
def small() -> MakeSmall:
    def make(
        seed: int = 0,
        m: int = 40,
        d: int = 5,
        K: Kernel | None = None,
        network: Mapping[str, Any] | None = None,
        loss: Loss = LOSSES["two classes"],
    ) -> Small:
        generator = torch.Generator().manual_seed(seed)
        task, x, y = samples(loss, torch.randn(m, d, generator=generator, dtype=torch.float64))
        settings = network or {"name": "mlp", "widths": [8, 6], "normalize": True}
        built = build_network(settings, (d,), seed=seed + 1, outputs=task.outputs).double()
        return Small(Problem(x, y, K or RBF(1.0), seed, task=task, loss=loss), built)

    return make


def batch(x: Tensor) -> Batch:
    """Return a batch of the samples x, with indices from 0."""
    return Batch(x, np.arange(len(x)))


def samples(loss: Loss, noise: Tensor) -> tuple[Task, Tensor, Tensor]:
    """Return the task of a loss, with samples x and labels y."""
    j = torch.arange(len(noise))
    if isinstance(loss, Binary):
        y = torch.where(j % 2 == 0, -1.0, 1.0).double()
        return BINARY, noise + 0.7 * y[:, None], y
    if isinstance(loss, Residual):
        y = torch.sin(2 * noise[:, 0]) + 0.5 * noise[:, 1]
        return Regression(), noise, (y - y.mean()) / y.std()
    apart = torch.eye(noise.shape[1], dtype=torch.float64)[j % 3]
    return MulticlassClassification(("a", "b", "c")), noise + 2 * apart, (j % 3).double()


def short(
    name: str, steps: int, k: int | None = None, engine: Engine = "torch", **settings: Any
) -> Trainer[Any]:
    """Return the named trainer for an engine, with ``steps`` steps in each part and batches of size k."""
    known = signature(TRAINERS[name]).parameters
    lengths = {key: steps for key in known if key.endswith("steps")}
    sizes = {key: k for key in known if key.endswith("batch_size") and k is not None}
    return for_engine(engine, build_trainer({"name": name, **lengths, **sizes, **settings}))


def train(
    trainer: Trainer[Any],
    problem: Problem,
    F: FeatureMap,
    steps: int | None = None,
    engine: Engine | None = None,
) -> tuple[State, Expansion]:
    """Train without records and checkpoints, and return the last state and the SVM."""
    trainer = trainer if engine is None else for_engine(engine, trainer)
    state = trainer.start(problem, F)
    end = trainer.total if steps is None else steps
    while state.t < end:
        trainer.advance(problem, state, end)
    return state, trainer.finish(problem, state)


def parameters(network: nn.Module) -> Tensor:
    """Return theta as one vector."""
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def sloped(objective: Callable[[Tensor], Tensor], K: Tensor) -> tuple[Tensor, Tensor]:
    """Return the value of an objective and its derivative with respect to K."""
    leaf = K.clone().requires_grad_()
    value = objective(leaf)
    return value.detach(), torch.autograd.grad(value, leaf)[0]
