"""Estimate the time and memory of a run from the first seconds of its training. Nothing is written."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64

from nsvm_cli.engines import compile_steps
from nsvm_cli.models.nsvm import NSVM, Expansion
from nsvm_cli.runs.callbacks import Say
from nsvm_cli.runs.experiment import Experiment, log_every
from nsvm_cli.runs.loop import Callback, run
from nsvm_cli.storage.state_dict import flatten
from nsvm_cli.trainers import Problem, State, Trainer
from nsvm_cli.trainers.coefficients import SampleState
from nsvm_cli.trainers.svc import SVC

SECONDS = 2.0
"""How long to train, in all parts of an algorithm together."""

TRIAL_SAMPLES = 100
"""Number of samples in the first trial of anything whose time grows with their number."""

Numbers = Float64[np.ndarray, " numbers"]


@dataclass(frozen=True)
class Part:
    """A part of an algorithm: its steps, those that were tried, the seconds that all of them will take, and
    the support vectors at its end. A solver without steps has samples in their place, which ``unit`` says.
    """

    steps: int
    tried: int
    seconds: float
    support_vectors: float
    unit: str = "steps"


@dataclass(frozen=True)
class Forecast:
    """The estimated time, memory and files of a run.

    ``validation`` and ``evaluation`` are the seconds for scores during training, with full objectives, and
    after it. ``memory`` is the peak of the process, ``model`` and ``checkpoint`` are the sizes of files, in
    bytes.
    """

    parts: tuple[Part, ...]
    validation: float
    evaluation: float
    memory: float
    model: float
    checkpoint: float


Trial = tuple[Part, State, Expansion | None, float]
"""A part, the state after its trial, the SVM of a solver without steps, and the bytes of memory that each
further support vector takes."""


class Probe(Callback):
    """Stop after some seconds, or at a step, and note the course of training.

    A call is a step, and the seconds, support vectors, violations and peak memory so far. The first one comes
    after a single step, which often takes longer than others: the seconds to stop after begin with it.
    """

    def __init__(self, seconds: float, until: int) -> None:
        self.seconds, self.until = seconds, until
        self.calls: list[tuple[float, ...]] = []

    def on_train_start(self) -> None:
        self.began = time.monotonic()

    def on_step_end(self, state: State) -> None:
        seconds = time.monotonic() - self.began
        self.calls.append((state.t, seconds, state.support_vectors, state.violations, peak_memory()))

    def should_stop(self, state: State) -> bool:
        return state.t >= self.until or self.calls[-1][1] - self.calls[0][1] >= self.seconds


def peak_memory() -> int:
    """Return the largest memory that this process has had so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def estimate(experiment: Experiment, say: Say = lambda line: None) -> Forecast:
    """Estimate a run by training for ``SECONDS``. The experiment cannot be used afterwards."""
    e = experiment
    compile_steps(e.engine, e.algorithm, e.problem, e.F, say)
    parts: list[Part] = []
    for trainer in e.trainer.parts:
        problem, more = e.problem, 0.0
        if trainer.starts_with_features:
            problem, more = _thinned(e, trainer, SECONDS)
        trial = _stepped if trainer.total else _solved
        part, state, expansion, growth = trial(trainer, e, problem, SECONDS / len(e.trainer.parts))
        parts.append(replace(part, seconds=part.seconds + more))
    return _forecast(e, parts, trainer, state, expansion or trainer.finish(problem, state), growth)


def _stepped(trainer: Trainer[Any], e: Experiment, problem: Problem, seconds: float) -> Trial:
    """Try the first steps of a part."""
    probe = Probe(seconds, trainer.last_theta_step)
    state = run(trainer, problem, e.F, log_every(e), [probe])
    course = np.array(probe.calls or [(state.t, 0, state.support_vectors, 0, peak_memory())])
    most = len(e.problem.y) if isinstance(state, SampleState) else np.inf
    return extrapolated(course, trainer.last_theta_step, most), state, None, _slope(course)


def _thinned(e: Experiment, trainer: Trainer[Any], seconds: float) -> tuple[Problem, float]:
    """Return the problem with as many samples as F takes about these seconds for, and the seconds that it
    would take for the others.
    """
    m = len(e.problem.y)
    few = min(m, max(TRIAL_SAMPLES, trainer.k))
    began = time.monotonic()
    e.F(e.problem.x[:few])
    each = (time.monotonic() - began) / few
    n = min(m, max(few, int(seconds / each)))
    return _spread(e.problem, n), (m - n) * each


def _spread(problem: Problem, n: int) -> Problem:
    """Return the problem with n of its samples, spread over all of them."""
    if n == len(problem.y):
        return problem
    rows = torch.arange(n, device=problem.y.device) * len(problem.y) // n
    return replace(problem, x=problem.x[rows], y=problem.y[rows])


def extrapolated(course: Float64[np.ndarray, "calls 5"], steps: int, most: float = np.inf) -> Part:
    """Return a part of ``steps`` steps, from the calls of a ``Probe`` that has seen the first ones.

    With s support vectors, a step takes a + b s seconds, and c + d s more for each violation. The costs a to
    d are fitted to the calls; s and the number of violations are ``continued``.

    Args:
        course: the calls.
        steps: all steps of the part.
        most: the largest number of support vectors.
    """
    t, seconds, s, violations, _ = course.T
    tried = int(t[-1])
    if tried >= steps or len(t) < 2:
        return Part(steps, tried, seconds[-1], s[-1])
    from scipy.optimize import nnls

    took = np.sqrt(np.diff(seconds))  # also the weights: deviations add up over a piece
    terms = _terms(t, s, violations) / took[:, None]
    size = np.maximum(terms.max(0), np.finfo(np.float64).tiny)
    costs = nnls(terms / size, took)[0] / size
    at = np.geomspace(tried, steps, 100)
    s_at = np.minimum(continued(t, s, at), most)
    more = (_terms(at, s_at, continued(t, violations, at)) @ costs).sum()
    return Part(steps, tried, seconds[-1] + more, s_at[-1])


def _terms(t: Numbers, s: Numbers, violations: Numbers) -> Float64[np.ndarray, "pieces 4"]:
    """Return the factors of a, b, c and d in each piece between two calls."""
    steps, more, s_mean = np.diff(t), np.diff(violations), (s[1:] + s[:-1]) / 2
    return np.stack([steps, s_mean * steps, more, s_mean * more], 1)


def continued(t: Numbers, y: Numbers, at: Numbers, steepest: float = 1) -> Numbers:
    """Extrapolate y to later t by a power law: with the exponent of the second half of t so far or, if that
    is less than the exponent of the quarter before, with one that keeps falling at this rate.
    """
    floor = y[y > 0].min(initial=max(y[-1], 1e-9))
    quarters = np.log(t[-1] * np.array([0.25, 0.5, 1]))
    before, last = np.diff(np.interp(quarters, np.log(t), np.log(np.maximum(y, floor)))) / np.log(2)
    power, fall = np.clip(last, 0, steepest), max(1e-9, (before - last) / np.log(2))
    since = np.minimum(np.log(at / t[-1]), power / fall)
    later: Numbers = y[-1] * np.exp(power * since - fall * since**2 / 2)
    return later


def _slope(course: Float64[np.ndarray, "calls 5"]) -> float:
    """Return the growth of the memory per support vector over the second half of the calls, in bytes."""
    (s_before, before), (s, now) = course[len(course) // 2, [2, 4]], course[-1, [2, 4]]
    return float((now - before) / (s - s_before)) if s > s_before else 0.0


def _solved(trainer: Trainer[Any], e: Experiment, problem: Problem, seconds: float) -> Trial:
    """Try a solver without steps on more and more samples of a problem."""
    began = time.monotonic()
    from sklearn import svm  # noqa: F401  # importing it may take longer than using it

    imported = time.monotonic() - began
    m, most = len(e.problem.y), len(problem.y)
    n, course = min(TRIAL_SAMPLES, most), []
    while True:
        part = _spread(problem, n)
        began = time.monotonic()
        try:
            state = trainer.start(part, e.F)
            expansion = trainer.finish(part, state)
        except ValueError:  # among so few samples a class may be missing
            if n == most:
                raise
        else:
            course.append((n, time.monotonic() - began, len(expansion.z)))
        if n == most or (len(course) > 1 and course[-1][1] > seconds / 4):
            break
        n = min(2 * n, most)
    sizes, took, s = np.array(course, np.float64).T
    if n < m and len(course) > 1:
        whole = np.array([float(m)])
        took, s = continued(sizes, took, whole, steepest=3), continued(sizes, s, whole)
    return Part(m, n, imported + took[-1], s[-1], "samples"), state, expansion, 0.0


def _forecast(
    e: Experiment, parts: list[Part], trainer: Trainer[Any], state: State, expansion: Expansion, growth: float
) -> Forecast:
    """Return the forecast from the trials of all parts, and from what the last one has left."""
    train, sizes = e.data.splits["train"], e.data.splits.sizes
    model = NSVM(e.data.task, e.scaling, e.F.network, e.problem.K, expansion)
    scored = min(TRIAL_SAMPLES, len(train.y))
    began = time.monotonic()
    model.score(train.x[:scored], train.y[:scored])
    s, z = parts[-1].support_vectors, expansion.z
    per_sample = (time.monotonic() - began) / scored * max(1, s / max(1, len(z)))
    steps = e.trainer.part_steps[-1]
    validated = steps // (e.settings.validation.every or sys.maxsize) * sizes["validation"]
    validated += steps // log_every(e) * len(train.y) if e.settings.full_objective else 0

    term = (z.nbytes + expansion.alpha.nbytes) / max(1, len(z))
    theta = sum(tensor.nbytes for tensor in e.F.network.state_dict().values())
    saved, _ = flatten({"F": e.F.state_dict(), "state": trainer.save(e.problem, state)})
    m, n = len(train.y), z.shape[1]
    memory = peak_memory() + growth * (s - len(z)) + m * n * z.element_size()
    if isinstance(trainer, SVC):  # which keeps kernel values of support vectors in float32
        memory += min(4 * m * s, e.problem.memory_budget * 2**20)
    return Forecast(
        parts=tuple(parts),
        validation=validated * per_sample,
        evaluation=per_sample * (m + sizes[e.data.splits.held_out]),
        memory=memory,
        model=theta + s * term,
        checkpoint=sum(tensor.nbytes for tensor in saved.values()) + (s - len(z)) * term,
    )
