"""scikit-learn's SVC as a solver for Part 2 of Algorithm 4: the dual route that the paper allows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pydantic
import torch

from nsvm_cli.errors import RunError
from nsvm_cli.features import CHUNK, Theta
from nsvm_cli.model import Expansion
from nsvm_cli.objectives import OVERFLOW
from nsvm_cli.registry import STRICT, Positive
from nsvm_cli.trainers.base import Problem, State, Trainer


@dataclass(kw_only=True)
class SVCState(State):
    """Nothing happens before ``finish``."""

    @property
    def support_vectors(self) -> int:
        return 0


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class SVC(Trainer[SVCState]):
    """The dual problem with a bias, solved to the end on z_j = F_theta(x_j).

    lambda/2 ||f||^2 + 1/m sum_j hinge_j is SVC's objective with C = 1/(lambda m). All of it happens in
    ``finish``: the solver has no steps that the loop could drive.
    """

    lam: Positive = 1e-4

    @property
    def total(self) -> int:
        return 0

    def start(self, problem: Problem, F: Theta) -> SVCState:
        return SVCState(F=F, sampler=problem.sampler(), t=0)

    def step(self, problem: Problem, state: SVCState) -> None:
        raise AssertionError("SVC has no steps")

    def finish(self, problem: Problem, state: SVCState) -> Expansion:
        from sklearn import svm  # slow to import, and wanted only here

        z, y = state.F(problem.x), problem.y
        gram = np.concatenate([problem.K(chunk, z).double().cpu().numpy() for chunk in z.split(CHUNK)])
        if not np.isfinite(gram).all():
            raise RunError(OVERFLOW)
        svc = svm.SVC(C=1 / (self.lam * len(y)), kernel="precomputed").fit(gram, y.cpu().numpy())
        j = torch.from_numpy(svc.support_).to(z.device, torch.int64)
        alpha_y = torch.from_numpy(svc.dual_coef_[0]).to(z)
        return Expansion(z[j], alpha_y.abs(), y[j], scale=1.0, bias=float(svc.intercept_[0]))
