"""Estimate the time of a run from the first seconds of its training. Nothing is written."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from scipy.optimize import nnls

from nsvm_cli.output import Say
from nsvm_cli.runs.experiment import Experiment
from nsvm_cli.runs.loop import Callback, run
from nsvm_cli.trainers import State, Trainer

SECONDS = 2.0
"""How long to train, in all parts of an algorithm together."""

Numbers = Float64[np.ndarray, " numbers"]


@dataclass(frozen=True)
class Part:
    """A part of an algorithm: its steps, those that were tried, the seconds that all of them will take, and
    the support vectors at its end. A solver with its own steps has samples in their place: see ``unit``.
    """

    steps: int
    tried: int
    seconds: float
    support_vectors: float
    unit: str = "steps"


@dataclass
class Probe(Callback):
    """Stop some seconds after the first step, which often takes longer than others, or at a step; and note
    steps, seconds and support vectors in ``course``.
    """

    seconds: float
    until: int
    began: float = field(default_factory=time.monotonic)
    course: list[tuple[float, float, float]] = field(default_factory=list)

    def on_step_end(self, state: State) -> None:
        self.course.append((state.t, time.monotonic() - self.began, state.support_vectors))

    def should_interrupt(self, state: State) -> bool:
        return state.t >= self.until or self.course[-1][1] - self.course[0][1] >= self.seconds


def estimate(experiment: Experiment, say: Say = str) -> list[Part]:
    """Estimate the parts of a run by training for ``SECONDS``. The experiment cannot be used afterwards."""
    experiment.compile(say)
    parts = experiment.trainer.parts
    seconds = SECONDS / len(parts)
    return [(_solved if part.own_steps else _stepped)(part, experiment, seconds) for part in parts]


def _stepped(trainer: Trainer[Any], e: Experiment, seconds: float) -> Part:
    probe = Probe(seconds, trainer.last_theta_step)
    state = run(trainer, e.problem, e.F, e.log_every, [probe])
    course = np.array(probe.course or [(state.t, 0, state.support_vectors)], np.float64)
    return extrapolated(course, trainer.last_theta_step, len(e.problem.y))


def extrapolated(course: Float64[np.ndarray, "calls 3"], steps: int, most: float = np.inf) -> Part:
    """Return a part of ``steps`` steps, from the course of the first ones (see ``Probe``).

    With s support vectors, of which there are at most ``most``, a step takes a + b s seconds. The costs a and
    b are fitted to the course, and s is ``continued``.
    """
    t, seconds, s = course.T
    tried = int(t[-1])
    if tried >= steps or len(t) < 2:
        return Part(steps, tried, seconds[-1], s[-1])
    took = np.sqrt(np.diff(seconds))  # also the weights: deviations add up over a piece
    costs, _ = nnls(_terms(t, s) / took[:, None], took)
    at = np.geomspace(tried, steps, 100)
    s_at = np.minimum(continued(t, s, at), most)
    return Part(steps, tried, seconds[-1] + (_terms(at, s_at) @ costs).sum(), s_at[-1])


def _terms(t: Numbers, s: Numbers) -> Float64[np.ndarray, "pieces 2"]:
    """Return the factors of a and b in each piece between two calls."""
    return np.stack([np.diff(t), np.diff(t) * (s[1:] + s[:-1]) / 2], 1)


def _solved(trainer: Trainer[Any], e: Experiment, seconds: float) -> Part:
    """Try a solver that takes its own steps on more and more samples, spread over all of them."""
    x, y, m = e.problem.x, e.problem.y, len(e.problem.y)
    course: list[tuple[float, float, float]] = []
    n, tried = min(100, m), 0
    while tried < m and (len(course) < 2 or course[-1][1] < seconds / 4):
        tried, rows = n, torch.arange(n, device=y.device) * m // n
        problem = replace(e.problem, x=x[rows], y=y[rows])
        began = time.monotonic()
        with contextlib.suppress(*[ValueError] if n < m else []):  # of a few samples a class may be missing
            expansion = trainer.finish(problem, trainer.complete(problem, trainer.start(problem, e.F)))
            course.append((n, time.monotonic() - began, len(expansion.z)))
        n = min(2 * n, m)
    sizes, took, s = np.array(course, np.float64).T
    whole = np.array([float(m)])
    in_all, s_in_all = continued(sizes, took, whole, steepest=3), continued(sizes, s, whole)
    return Part(m, int(sizes[-1]), in_all[0], s_in_all[0], "samples")


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


def rows_of(e: Experiment, parts: Sequence[Part]) -> Iterator[tuple[str, str, str]]:
    """Yield what is estimated, the estimate, and what it is of."""
    sizes = {name: size for name, size in e.data.splits.sizes.items() if size and name != "all"}
    yield "samples", str(sum(sizes.values())), ", ".join(f"{size} {name}" for name, size in sizes.items())
    if not e.trainer.own_steps:
        yield "epochs", f"{e.trainer.last_theta_step * e.trainer.k / sizes['train']:.3g}", ""
    yield "engine", e.engine, ""
    for number, part in enumerate(parts, 1):
        name = f"time of Part {number}" if len(parts) > 1 else "time of steps"
        yield name, _duration(part.seconds), f"from {part.tried} of {part.steps} {part.unit}"
    yield "training time", _duration(sum(part.seconds for part in parts)), ""
    yield "support vectors", f"{parts[-1].support_vectors:.0f}", ""


def _duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds / 60:.0f} min"
