"""A budget of support vectors (Wang, Crammer and Vucetic 2012, "Breaking the curse of kernelization").

Each strategy takes a term p out of f = sum_s alpha_s K(z_s, .), that of the least alpha_p^2 K(z_p, z_p). The
degradation is the square of the distance in H between f before and after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from nsvm_cli.models.kernels import Kernel
from nsvm_cli.trainers.coefficients import projected

PLACES = 17
"""Evenly spaced points of the line between two features, ends included, from which their merged feature is
chosen. Wang et al. search that line by golden section.
"""

NO_SAMPLE = -1
"""The index of a term that is the feature of no sample."""


class Terms(NamedTuple):
    """Terms of f: indices of samples, features, and coefficients."""

    i: Int64[Tensor, " s"]
    z: Float[Tensor, "s n"]
    alpha: Float[Tensor, " s *outputs"]

    def without(self, p: int) -> Terms:
        kept = torch.arange(len(self.i), device=self.z.device) != p
        return Terms(*(values[kept] for values in self))


def least(K: Kernel, terms: Terms) -> int:
    """Return the term whose removal degrades f least."""
    squares = terms.alpha.square() if terms.alpha.ndim == 1 else terms.alpha.square().sum(-1)
    return int((squares * K.diag(terms.z)).argmin())


def projection(K: Kernel, terms: Terms) -> Terms:
    """Remove a term, and add its projection onto the span of the others."""
    p = least(K, terms)
    others = terms.without(p)
    gone = terms.z[p : p + 1], terms.alpha[p : p + 1]
    return others._replace(alpha=others.alpha + projected(K, *gone, onto=others.z))


def merging(K: Kernel, terms: Terms) -> Terms:
    """Merge a term p with another one q, at h z_p + (1 - h) z_q, where f degrades least among ``PLACES`` h.

    There, the projection of both terms has the coefficient (alpha_p K(z_p, z) + alpha_q K(z_q, z)) / K(z, z).
    """
    p = least(K, terms)
    others = terms.without(p)
    z_p, h = terms.z[p], torch.linspace(0, 1, PLACES, dtype=terms.z.dtype, device=terms.z.device)
    z = h[:, None] * z_p + (1 - h[:, None]) * others.z.unsqueeze(1)  # (s, places, n)
    alpha_q = others.alpha.reshape(len(others.alpha), 1, -1)
    both = terms.alpha[p].reshape(-1) * K(z_p.expand(len(z), 1, -1), z).mT
    both = both + alpha_q * K(others.z.unsqueeze(1), z).mT  # (s, places, outputs)
    # what is left of the norm of both, minus what it was: larger is better
    K_zz, K_qq, K_pq = K.diag(z), K.diag(others.z), K(others.z, z_p[None])
    K_zz = torch.where(K_zz > 0, K_zz, 1.0)  # where it is 0, so are the sums
    before = (alpha_q[:, 0].square() * K_qq[:, None] + 2 * alpha_q[:, 0] * terms.alpha[p] * K_pq).sum(-1)
    left = both.square().sum(-1) / K_zz - before[:, None]
    q, place = divmod(int(left.argmax()), PLACES)
    others.z[q] = z[q, place]
    others.alpha[q] = (both[q, place] / K_zz[q, place]).view_as(others.alpha[q])
    others.i[q] = NO_SAMPLE
    return others


MAINTENANCE: dict[str, Callable[[Kernel, Terms], Terms]] = {
    "removal": lambda K, terms: terms.without(least(K, terms)),
    "projection": projection,
    "merging": merging,
}
