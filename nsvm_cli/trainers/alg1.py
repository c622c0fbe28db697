"""Algorithm 1: support vectors keep the features that they had when they were added."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import pydantic
import torch
from jaxtyping import Float, Int64
from pydantic import Field, PositiveInt
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Count, Positive, entry_of
from nsvm_cli.errors import InputError
from nsvm_cli.models.feature_map import FeatureMap, Training
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.trainers.base import BatchSize, BatchTrainer, Problem, State
from nsvm_cli.trainers.coefficients import projected

PLACES = 17
"""Number of evenly spaced values of h that ``merging`` tries. Wang et al. use a golden-section search."""

NO_SAMPLE = -1
"""The index of a merged term, whose feature does not belong to a sample."""


class Terms(NamedTuple):
    """The terms alpha_s K(z_s, .) of f, and the indices i_s of their samples."""

    i: Int64[Tensor, " s"]
    z: Float[Tensor, "s n"]
    alpha: Float[Tensor, " s *outputs"]

    def without(self, p: int) -> Terms:
        remaining = torch.arange(len(self.i), device=self.z.device) != p
        return Terms(*(values[remaining] for values in self))


def smallest_term(K: Kernel, terms: Terms) -> int:
    """Return the index p of the term whose removal changes f = sum_s alpha_s K(z_s, .) least.

    The removal changes f by the squared distance alpha_p^2 K(z_p, z_p) in the kernel's Hilbert space.
    """
    squares = terms.alpha.square() if terms.alpha.ndim == 1 else terms.alpha.square().sum(-1)
    return int((squares * K.diag(terms.z)).argmin())


def projection(K: Kernel, terms: Terms) -> Terms:
    """Return the terms after projecting the smallest term onto the span of all other terms."""
    p = smallest_term(K, terms)
    remaining = terms.without(p)
    removed = terms.z[p : p + 1], terms.alpha[p : p + 1]
    return remaining._replace(alpha=remaining.alpha + projected(K, *removed, onto=remaining.z))


def merging(K: Kernel, terms: Terms) -> Terms:
    """Return the terms after merging the smallest term p with another term q.

    The merged term has the feature z = h z_p + (1 - h) z_q and the coefficient
    (alpha_p K(z_p, z) + alpha_q K(z_q, z)) / K(z, z), with the q and the h in [0, 1] that change f least.
    """
    p = smallest_term(K, terms)
    others = terms.without(p)
    z_p, h = terms.z[p], torch.linspace(0, 1, PLACES, dtype=terms.z.dtype, device=terms.z.device)
    z = h[:, None] * z_p + (1 - h[:, None]) * others.z.unsqueeze(1)  # (s, places, n)
    alpha_q = others.alpha.reshape(len(others.alpha), 1, -1)
    both = terms.alpha[p].reshape(-1) * K(z_p.expand(len(z), 1, -1), z).mT
    both = both + alpha_q * K(others.z.unsqueeze(1), z).mT  # (s, places, outputs)
    # by how much the merge changes the squared norm of both terms; the largest value is best
    K_zz, K_qq, K_pq = K.diag(z), K.diag(others.z), K(others.z, z_p[None])
    K_zz = torch.where(K_zz > 0, K_zz, 1.0)  # if K_zz is 0, the sums are 0 too
    before = (alpha_q[:, 0].square() * K_qq[:, None] + 2 * alpha_q[:, 0] * terms.alpha[p] * K_pq).sum(-1)
    change = both.square().sum(-1) / K_zz - before[:, None]
    q, place = divmod(int(change.argmax()), PLACES)
    others.z[q] = z[q, place]
    others.alpha[q] = (both[q, place] / K_zz[q, place]).view_as(others.alpha[q])
    others.i[q] = NO_SAMPLE
    return others


MAINTENANCE: dict[str, Callable[[Kernel, Terms], Terms]] = {
    "removal": lambda K, terms: terms.without(smallest_term(K, terms)),
    "projection": projection,
    "merging": merging,
}


@dataclass(kw_only=True)
class Alg1State(State):
    """The state of Algorithm 1, with a row for each term s of f whose alpha_s is not 0."""

    i: Int64[Tensor, " s"]  # the indices i_s, or -1 for merged terms
    z: Float[Tensor, "s n"]  # the features of x_i_s, with theta from step s
    alpha: Float[Tensor, " s *outputs"]  # the paper's alpha_s y_i_s

    @property
    def support_vectors(self) -> int:
        return len(self.i)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        for name in ("i", "z", "alpha"):
            if isinstance(rows := saved.get(name), Tensor):
                value: Tensor = getattr(self, name)
                setattr(self, name, value.new_empty(len(rows), *value.shape[1:]))
        super().load_state_dict(saved)
        if not len(self.i) == len(self.z) == len(self.alpha):
            raise ValueError("expected i, z and alpha of the same length")
        if not ((self.i >= NO_SAMPLE) & (self.i < self.sampler.m)).all():
            raise ValueError(f"i: expected indices below {self.sampler.m}")

    def add(
        self, i: Int64[np.ndarray, " v"], z: Float[Tensor, "v n"], alpha: Float[Tensor, " v *outputs"]
    ) -> None:
        self.i = torch.cat([self.i, torch.from_numpy(i).to(self.i.device)])
        self.z, self.alpha = torch.cat([self.z, z]), torch.cat([self.alpha, alpha.to(self.alpha)])

    def refresh(self, problem: Problem) -> None:
        """Recompute the features of all terms with the current theta, except for merged terms."""
        s = (self.i != NO_SAMPLE).nonzero().flatten()
        self.z[s] = self.F(problem[self.i[s].cpu().numpy()][0])

    def reduce(self, K: Kernel, budget: int | None, maintenance: str) -> None:
        """Reduce the number of terms to ``budget``, by a method in ``MAINTENANCE``. None keeps all terms."""
        terms = Terms(self.i, self.z, self.alpha)
        while budget and (size := len(terms.i)) > budget:
            terms = Terms(*MAINTENANCE[maintenance](K, terms))
            if not len(terms.i) == len(terms.z) == len(terms.alpha) < size:
                got = f"{len(terms.i)} i, {len(terms.z)} z and {len(terms.alpha)} alpha"
                expected = f"expected fewer than {size} terms, got {got}"
                raise InputError(f"algorithm.maintenance={maintenance}: {expected}")
        self.i, self.z, self.alpha = terms


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Alg1(BatchTrainer[Alg1State]):
    """Gradient descent in f and theta at once (paper, Algorithm 1).

    The paper's alpha_s y_i_s is alpha_s here. A mini-batch of k samples adds a term of weight 1/k for each
    violation, and the objective of the step in theta is the mean of the samples' objectives.

    After every ``refresh_every`` steps in theta, stored features are recomputed with the new theta. With
    ``refresh_every=1``, f is the function of Algorithm 2. ``maintenance`` selects the method that keeps at
    most ``budget`` terms (Wang, Crammer and Vucetic 2012, "Breaking the curse of kernelization").
    """

    steps: Count
    lam: Positive = 1e-4
    batch_size: BatchSize | None = None
    refresh_every: PositiveInt | None = None
    budget: Annotated[int, Field(ge=2)] | None = None
    maintenance: Annotated[str, entry_of(MAINTENANCE)] = "merging"

    def start(self, problem: Problem, F: FeatureMap) -> Alg1State:
        sampler = problem.sampler(self.k)
        x_1, _ = problem[sampler(1)]
        z_1 = F(x_1)
        alpha_1 = problem.first_increments(x_1.i, z_1, self.lam).to(problem.y)
        i_1 = torch.tensor(x_1.i, device=z_1.device)
        state = Alg1State(F=F, sampler=sampler, t=1, i=i_1, z=z_1, alpha=alpha_1)
        state.reduce(problem.K, self.budget, self.maintenance)
        return state

    def step(self, problem: Problem, state: Alg1State) -> None:
        K, F, lam, t = problem.K, state.F, self.lam, state.t + 1
        z_s, alpha_s = state.z, state.alpha
        x_t, _ = problem[state.sampler(t)]  # choose i_t
        z_t = F(x_t)
        g_t = K(z_t, z_s) @ alpha_s / (lam * (t - 1))
        v, alpha_v = self.find_violations(problem, state, x_t.i, g_t, z_t)  # if y_i_t g_t < 1
        if len(v):
            x_v = x_t[v]

            def objective(F: Training, K: Kernel) -> Tensor:
                return -(alpha_v * (K(F(x_v), z_s) @ alpha_s)).sum() / (lam * (t - 1))

            self.descend(problem, state, objective)
            state.add(x_v.i, z_t[v], alpha_v)
            self.maintain(problem, state)
        state.t = t

    def maintain(self, problem: Problem, state: Alg1State) -> None:
        """Refresh and reduce the terms after a step in theta, if the settings ask for it."""
        if self.refresh_every and state.F.theta_steps % self.refresh_every == 0:
            state.refresh(problem)
        state.reduce(problem.K, self.budget, self.maintenance)

    def finish(self, problem: Problem, state: Alg1State) -> Expansion:
        i, z, alpha = state.i, state.z, state.alpha
        indices = None if (i == NO_SAMPLE).any() else i
        return Expansion(z, alpha, self.lam * state.t, i=indices).without_zeros()
