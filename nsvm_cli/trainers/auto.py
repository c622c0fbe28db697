"""A choice between Algorithm 4 and an SVM on the inputs, by cross-validation (not in the paper)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import fields, replace
from functools import cached_property
from typing import Annotated, Any, TypeAlias

import numpy as np
import pydantic
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Count, Positive
from nsvm_cli.errors import InputError
from nsvm_cli.models.composed_kernels import build_kernel, gamma_of_scale, with_initial_parameters
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF, Kernel
from nsvm_cli.models.networks import Identity
from nsvm_cli.output import say
from nsvm_cli.trainers.alg4 import MAX_SVC_SAMPLES, Alg4, Alg4State, Objective
from nsvm_cli.trainers.base import BatchTrainer, Problem
from nsvm_cli.trainers.direct import cross_validation, svm_score
from nsvm_cli.trainers.svc import WarmStarts

Features: TypeAlias = tuple[Float[Tensor, "m n"], Float[Tensor, "p n"], Kernel]
"""Features of the training samples and of the test samples of a fold, and their kernel."""

Candidate: TypeAlias = dict[str, Any]
"""The values of a candidate, and its ``score`` once it has been evaluated."""

VALUES_OF_C = (0.2, 2.0, 20.0)
"""Values of C to try for an SVM on the inputs or on the features of a network."""

FACTORS: dict[str, Any] = {"network": {"name": "identity"}, "kernel": {"name": "laplacian", "ard": True}}
"""Settings with which theta consists of a factor for each input, and the kernel is Laplacian."""

SMALL = 500
"""Maximum number of samples for which cross-validation is repeated, since its scores are then noisy."""


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Auto(Alg4):
    """Algorithm 4 or an exact SVM on the inputs, whichever has the better score in cross-validation.

    The candidates of Algorithm 4 differ in the network, in the number of steps of Part 1 (``lengths``, tried
    in ascending order until the score no longer increases) and in C = 1/(lambda m). The network is F or, if
    the kernel is RBF, a factor for each input under a Laplacian kernel, as with ``FACTORS``. The SVMs on the
    inputs differ in C and in gamma, which is 1/(n var x) times a number in ``scales``. The best candidate is
    trained on all samples. Lengths of more than ``epochs`` passes over the training samples are not tried,
    but at least the shortest. By default, exact SVMs of classes have the squared hinge loss. If ``steps`` or
    ``lam`` is set, it is the only value to try. At most ``candidates`` are tried. After ``time_limit``
    seconds, no further evaluation begins; ``candidates`` in the result is then the number with which other
    machines make the same choice. If there are too few samples for cross-validation, Algorithm 4 takes the
    largest number of steps, with lambda = 1e-4.
    """

    lam: Positive | None = None  # type: ignore[assignment]
    loss: Objective = "leave_one_out"
    candidates: Count | None = None
    time_limit: Positive | None = None
    lengths: Annotated[tuple[Count, ...], Field(min_length=1)] = (30, 100, 300, 1000)
    scales: Annotated[tuple[Positive, ...], Field(min_length=1)] = (1 / 16, 1 / 4, 1.0, 4.0)

    @cached_property
    def part_steps(self) -> tuple[int, int]:
        """The steps of the longest candidate, and of its solver."""
        solver = self._solver(self.solver_steps or self.split[1])
        return self.steps or max(self.lengths), solver.total

    def usual_loss(self, kind: str) -> str | None:
        """Return the squared hinge loss for exact SVMs, whose values then order uncertain samples better."""
        return "squared_hinge" if kind == "classification" and self.solver in (None, "svc") else None

    def for_samples(self, m: int) -> BatchTrainer[Alg4State]:
        limit = math.inf if self.epochs is None else self.epochs * m / min(self.k, m)
        lengths = tuple(n for n in self.lengths if n <= limit) or (min(self.lengths),)
        return super(Auto, replace(self, lengths=lengths, epochs=None)).for_samples(m)

    def check(self, problem: Problem, F: FeatureMap) -> None:
        super().check(problem, F)
        if F.kernel_parameters:
            raise InputError(f"{self.name} does not support kernels that learn; use alg4")

    def search(self, problem: Problem, F: FeatureMap) -> tuple[dict[str, Any], dict[str, Any]] | None:
        m = len(problem.y)
        try:
            folds = [*cross_validation(problem, lambda x: x, folds=4, repeats=3 if m <= SMALL else 1)]
        except InputError as error:
            say(f"Algorithm 4 is trained for {self.last_theta_step} steps without a choice: {error}")
            return None
        end = math.inf if self.time_limit is None else time.monotonic() + self.time_limit
        tried: list[Candidate] = []
        for evaluated in self._evaluations(problem, F, folds):
            tried += evaluated
            if time.monotonic() > end or len(tried) >= (self.candidates or math.inf):
                break
        tried = tried[: self.candidates]
        chosen = max(tried, key=lambda candidate: candidate["score"])
        found = {"candidates": len(tried), "chosen": chosen, "tried": tried}
        return self._settings(chosen, m), found

    def _evaluations(
        self, problem: Problem, F: FeatureMap, folds: Sequence[tuple[Problem, Problem]]
    ) -> Iterator[list[Candidate]]:
        """Yield the candidates that differ in C only, after their evaluation, for each kernel and length."""
        m, K = len(problem.y), problem.K
        inputs = [(train.x.flatten(1), test.x.flatten(1)) for train, test in folds]
        kernels = [K]
        if hasattr(K, "gamma"):
            gamma = gamma_of_scale(torch.cat(inputs[0]))
            kernels = [replace(K, gamma=scale * gamma) for scale in self.scales]  # type: ignore[type-var]
        for kernel in kernels:
            values = {"gamma": kernel.gamma} if hasattr(kernel, "gamma") else {}
            yield self._tried(folds, [(*x, kernel) for x in inputs], m, algorithm="svc", **values)
        for values, changes, network in self._networks(problem, F):
            best = -float("inf")
            for steps in [self.steps] if self.steps else sorted(self.lengths):
                part_1 = replace(self, steps=steps, solver="svc", epochs=None)
                starts = [(replace(train, **changes), test) for train, test in folds]
                features = [part_1.features_of(fold, network) for fold in starts]
                tried = self._tried(folds, features, m, algorithm="alg4", **values, steps=steps)
                yield tried
                if (score := max(candidate["score"] for candidate in tried)) <= best:
                    break
                best = score

    def _networks(self, problem: Problem, F: FeatureMap) -> Iterator[tuple[Candidate, Candidate, FeatureMap]]:
        """Yield each network that Part 1 trains, after the values of its candidates and of its problem."""
        if isinstance(problem.K, RBF):
            K = with_initial_parameters(build_kernel(FACTORS["kernel"]), problem.x[:1].flatten(1))
            network = FeatureMap(Identity(()), F.optimizer.settings, problem.seed, K=K)
            yield {key: part["name"] for key, part in FACTORS.items()}, {"K": K, "penalties": {}}, network
        if not F.fixed:
            yield {}, {}, F

    def features_of(self, fold: tuple[Problem, Problem], F: FeatureMap) -> Features:
        """Return the features of a fold after Part 1 on its training samples, which starts at theta of F."""
        train, test = fold
        algorithm, (F, K) = self.for_samples(len(train.y)), deepcopy((F, train.K))
        train = replace(train, K=K)
        state = algorithm.start(train, F)
        while state.t < algorithm.last_theta_step:
            algorithm.advance(train, state, algorithm.last_theta_step)
        return F(train.x), F(test.x), K

    def _tried(
        self, folds: Sequence[tuple[Problem, Problem]], features: Sequence[Features], m: int, **values: Any
    ) -> list[Candidate]:
        """Return candidates with the mean score of an exact SVM on the features, for each C.

        m is the number of all training samples.
        """
        svm, solve = replace(self, solver="svc").svm, WarmStarts()
        values_of_C = [1 / (self.lam * m)] if self.lam else [*VALUES_OF_C]
        scores = np.zeros(len(values_of_C))
        for (train, test), (z, z_test, K) in zip(folds, features, strict=True):
            train, test = replace(train, x=z, K=K), replace(test, x=z_test, K=K)
            scores += [svm_score(svm, {"C": C}, train, test, solve) for C in values_of_C]
        scores /= len(folds)
        return [
            {**values, "C": C, "score": score} for C, score in zip(values_of_C, scores.tolist(), strict=True)
        ]

    def _settings(self, chosen: Candidate, m: int) -> dict[str, Any]:
        """Return the settings of a candidate, by dotted keys, for m training samples."""
        lam = 1 / (chosen["C"] * m)
        without_network: dict[str, Any] = {"penalties": {}, "freeze": [], "init.run": None}
        if chosen["algorithm"] == "svc":
            svm = {"name": "svc" if m <= MAX_SVC_SAMPLES else "nystroem", "lam": lam}
            gamma = {"kernel.gamma": chosen["gamma"]} if "gamma" in chosen else {}
            identity = {"network": {"name": "identity"}, "sampler": {"name": "uniform"}}
            return {"algorithm": svm, **identity, **gamma, **without_network}
        values = {field.name: getattr(self, field.name) for field in fields(Alg4)}
        values |= {"name": "alg4", "steps": chosen["steps"], "epochs": None, "lam": lam}
        return {"algorithm": values, **(FACTORS | without_network if "kernel" in chosen else {})}
