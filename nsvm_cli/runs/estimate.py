"""Estimates of the training time of a run, from the first seconds of each part of its algorithm."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float64
from scipy.optimize import nnls

from nsvm_cli.engines import compile_steps
from nsvm_cli.output import saying
from nsvm_cli.runs.experiment import Experiment
from nsvm_cli.runs.loop import Callback, run
from nsvm_cli.trainers import State, Trainer

SECONDS = 2.0
"""Seconds for which each part of an algorithm is tried."""

LATEST = 3
"""Number of trials to which the costs of a solver are fitted. Only the latest and largest trials are used."""

Numbers = Float64[np.ndarray, " numbers"]


@dataclass(frozen=True)
class Part:
    """The estimated time and number of support vectors for one part of an algorithm.

    ``tried`` is how many of the part's ``steps`` were measured. For a solver that chooses its own steps,
    both count units of work instead (see ``Trainer.unit``).
    """

    steps: int
    tried: int
    seconds: float
    support_vectors: float
    unit: str = "steps"


@dataclass
class Probe(Callback):
    """Stops training at step ``until``, or ``SECONDS`` seconds after the first step.

    ``course`` contains, after each step, the number of steps, the seconds and the number of support vectors.
    """

    until: int
    start_time: float = field(default_factory=time.monotonic)
    course: list[tuple[float, float, float]] = field(default_factory=list)

    def on_step_end(self, state: State) -> None:
        self.course.append((state.t, time.monotonic() - self.start_time, state.support_vectors))

    def should_interrupt(self, state: State) -> bool:
        # the first step is not timed, because it often takes the longest
        return state.t >= self.until or self.course[-1][1] - self.course[0][1] >= SECONDS


def estimate(experiment: Experiment) -> list[Part]:
    """Train each part of the algorithm for ``SECONDS`` seconds, and return the estimates for the parts.

    The experiment cannot be used afterwards. No files are written.
    """
    compile_steps(experiment.engine, experiment.algorithm, experiment.problem)
    parts = experiment.trainer.parts
    with saying(str):  # warnings are hidden, since a trial may not converge although the run will
        return [(_solved if part.chooses_steps else _stepped)(part, experiment) for part in parts]


def _stepped(trainer: Trainer[Any], e: Experiment) -> Part:
    probe = Probe(trainer.last_theta_step)
    state = run(trainer, e.problem, e.F, e.log_every, [probe])
    course = np.array(probe.course or [(state.t, 0, state.support_vectors)], np.float64)
    return extrapolated(course, trainer.last_theta_step, len(e.problem.y))


def extrapolated(course: Float64[np.ndarray, "calls 3"], steps: int, most: float = np.inf) -> Part:
    """Return the estimate of ``steps`` steps from the ``course`` of the first steps (see ``Probe``).

    A step with s support vectors is assumed to take a + b s seconds. The costs a and b are fitted to the
    course; s is extrapolated by ``extrapolated_by_power_law`` and limited by ``most``.
    """
    t, seconds, s = course.T
    tried = int(t[-1])
    if tried >= steps or len(t) < 2:
        return Part(steps, tried, seconds[-1], s[-1])
    costs = _fitted(_terms(t, s), np.diff(seconds))
    at = np.geomspace(tried, steps, 100)
    s_at = np.minimum(extrapolated_by_power_law(t, s, at), most)
    return Part(steps, tried, seconds[-1] + (_terms(at, s_at) @ costs).sum(), s_at[-1])


def _terms(t: Numbers, s: Numbers) -> Float64[np.ndarray, "pieces 2"]:
    """Return the factors of the costs a and b (see ``extrapolated``) in the time between two points.

    They are the number of steps, and the sum of the numbers s of support vectors over these steps.
    """
    return np.stack([np.diff(t), np.diff(t) * (s[1:] + s[:-1]) / 2], 1)


def _fitted(terms: Float64[np.ndarray, "pieces 2"], seconds: Numbers) -> Float64[np.ndarray, " 2"]:
    """Return nonnegative costs with ``terms @ costs`` close to ``seconds``, by weighted least squares."""
    scale = np.sqrt(seconds)  # the weights, because variances are proportional to seconds
    return nnls(terms / scale[:, None], scale)[0]  # scale = seconds / scale


def _solved(trainer: Trainer[Any], e: Experiment) -> Part:
    """Return the estimate for a solver, by fitting a + b n^p to the seconds of trials on n units of work.

    p is ``Trainer.growth``.
    """
    size, p = trainer.size(len(e.problem.y)), trainer.growth
    course: list[tuple[float, float, float]] = []
    n = tried = 0
    while tried < size and (len(course) < LATEST or 2**p * course[-1][1] < SECONDS):
        n = min(max(4, size // 256), size) if not n else min(2 * n, size)
        share, problem = trainer.share(e.problem, n)
        start_time = time.monotonic()
        with contextlib.suppress(*[ValueError] if n < size else []):
            expansion = share.finish(problem, share.complete(problem, share.start(problem, e.F)))
            course.append((n, time.monotonic() - start_time, len(expansion.z)))
        tried = n
    sizes, times, s = np.array(course[len(course) > 1 :], np.float64).T  # the first trial loads libraries
    s_at_end = float(extrapolated_by_power_law(sizes, s, np.array([float(size)]))[0])
    seconds = float(times[-1])
    if tried < size:
        a, b = _fitted(np.stack([sizes**0, sizes**p], 1)[-LATEST:], times[-LATEST:])
        seconds = a + b * float(size) ** p
    return Part(size, tried, seconds, s_at_end, trainer.unit)


def extrapolated_by_power_law(t: Numbers, y: Numbers, at: Numbers) -> Numbers:
    """Extrapolate the values y at times or sizes t to larger times or sizes ``at`` by a power law.

    The exponent is fitted to t between T/2 and T, where T is the last t. If the exponent between T/4 and T/2
    is higher, the exponent continues to fall at the same rate per doubling of t.
    """
    floor = y[y > 0].min(initial=max(y[-1], 1e-9))
    quarters = np.log(t[-1] * np.array([0.25, 0.5, 1]))
    before, last = np.diff(np.interp(quarters, np.log(t), np.log(np.maximum(y, floor)))) / np.log(2)
    power, fall = np.clip(last, 0, 1), max(1e-9, (before - last) / np.log(2))
    since = np.minimum(np.log(at / t[-1]), power / fall)
    return y[-1] * np.exp(power * since - fall * since**2 / 2)


def rows_of(e: Experiment, parts: Sequence[Part]) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a table: the name of a value, its estimate, and the basis of the estimate."""
    sizes = {name: size for name, size in e.data.splits.sizes.items() if size and name != "all"}
    yield "samples", str(sum(sizes.values())), ", ".join(f"{size} {name}" for name, size in sizes.items())
    if not e.trainer.chooses_steps:
        yield "epochs", f"{e.trainer.last_theta_step * e.trainer.k / sizes['train']:.3g}", ""
    yield "engine", e.engine, ""
    for number, part in enumerate(parts, 1):
        name = f"time of Part {number}" if len(parts) > 1 else "time of steps"
        yield name, _duration(part.seconds), f"measured on {part.tried} of {part.steps} {part.unit}"
    yield "training time", _duration(sum(part.seconds for part in parts)), ""
    if type(e.algorithm).search is not Trainer.search and getattr(e.algorithm, "grid", {}) is not None:
        yield "cross-validation", "not included", "trains each candidate several times"
    yield "support vectors", f"{parts[-1].support_vectors:.0f}", ""


def _duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds / 60:.0f} min"
