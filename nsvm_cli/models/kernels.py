"""Kernels: functions of features a ``(p, n)`` and b ``(q, n)`` that return the kernel matrix ``(p, q)``."""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int64
from pydantic import ConfigDict, Field, NonNegativeFloat
from pydantic.dataclasses import dataclass
from torch import Tensor

from nsvm_cli.config.registry import STRICT, Positive, Registry, keeps
from nsvm_cli.datasets.arrays import open_array
from nsvm_cli.errors import InputError
from nsvm_cli.memory import MEMORY_BUDGET
from nsvm_cli.randomness import draws

Points: TypeAlias = Float[Tensor, "*batch p n"]
Others: TypeAlias = Float[Tensor, "*batch q n"]
Gram: TypeAlias = Float[Tensor, "*batch p q"]


class Kernel:
    """A positive semidefinite kernel K on R^n (paper, Section 2).

    To add a kernel, implement ``__call__`` for any leading batch dimensions and register the class in
    ``KERNELS``. Attributes that are an ``nn.Parameter`` or a module are trained as part of theta.
    """

    scale_by_variance: ClassVar[bool] = False
    """Whether, if theta is fixed, gamma=None means 1/(n var z) for n features z, instead of 1/n."""

    def __init_subclass__(cls) -> None:
        if "__call__" in vars(cls) and "gradient" not in vars(cls):
            cls.gradient = Kernel.gradient  # type: ignore[method-assign]  # the inherited gradient is of another formula

    def __call__(self, a: Points, b: Others) -> Gram:
        """Return K(a_i, b_j) for all i, j."""
        raise NotImplementedError

    def parts(self) -> dict[str, Any]:
        """Return the kernel's attributes by name. Parameters in lists are not found."""
        return vars(self)

    @property
    def unbiased(self) -> Kernel:
        """The kernel without the 1 that a bias adds."""
        return self.K if isinstance(self, Biased) else self

    def gradient(self, a: Points, b: Others, K: Gram, G: Gram) -> Points:
        """Return the gradient of sum_ij G_ij K(a_i, b_j) with respect to a, given ``K`` = K(a_i, b_j).

        The default uses autograd. Override this method if the gradient has a closed form.
        """
        with torch.enable_grad():
            a = a.detach().requires_grad_()
            K = self(a, b)
            if not K.requires_grad:
                raise InputError(
                    f"kernel {type(self).__name__} returned values without a gradient; set "
                    "kernel.gradient=spsa or finite_difference, or set algorithm=pegasos or svc"
                )
            # passing G as grad_outputs would make torch import sympy, which takes half a second
            return torch.autograd.grad((G * K).sum(), a)[0]

    def diag(self, a: Points) -> Float[Tensor, "*batch p"]:
        """Return K(a_i, a_i) for all i."""
        return self(a.unsqueeze(-2), a.unsqueeze(-2)).squeeze((-2, -1))


def _few(a: Points, b: Others) -> bool:
    """Return whether explicit differences are faster than a matrix product."""
    p, q, n = a.shape[-2], *b.shape[-2:]
    return min(p, q) == 1 or p * q * n <= 2**13


def _differences(a: Points, b: Others) -> Float[Tensor, "*batch p q n"]:
    """Return b_j - a_i for all i, j."""
    return b.unsqueeze(-3) - a.unsqueeze(-2)


FAR = 128.0
"""Threshold on gamma ||b_j||^2, which is below 20 for standardised data. Above the threshold, rounding in
float32 would change exp(-gamma ||a_i - b_j||^2) by 1e-5 or more for a_i near b_j."""


def squared_distances(a: Points, b: Others, gamma: float | Tensor | None = None) -> Gram:
    """Return ||a_i - b_j||^2 for all i, j. ``gamma`` determines the precision; see ``FAR``."""
    if _few(a, b):
        return _differences(a, b).square().sum(-1)
    # Distances are translation invariant; centring the data reduces cancellation in the three-term form.
    origin = b.detach().mean(-2, keepdim=True)
    shifted_a, shifted_b = a - origin, b - origin
    square_a, square_b = (c.square().sum(-1, keepdim=True) for c in (shifted_a, shifted_b))
    exporting = torch.compiler.is_exporting()  # an exported graph has no branches
    if a.dtype == torch.float32 and (exporting or bool((or_one_over_n(gamma, a) * square_b > FAR).any())):
        return squared_distances(a.double(), b.double()).to(a.dtype)
    return (-2 * shifted_a @ shifted_b.mT).add_(square_a).add_(square_b.mT).clamp_min_(0)


def or_one_over_n(gamma: float | Tensor | None, a: Tensor) -> float | Tensor:
    """Return gamma, or 1/n for n features if gamma is None (paper, Section 5.2: 1/320 on R^320)."""
    return 1 / a.shape[-1] if gamma is None else gamma


@dataclass(frozen=True, config=STRICT)
class RBF(Kernel):
    """K(a, b) = exp(-gamma ||a - b||^2)  (paper, Section 5).

    For gamma=None, see ``or_one_over_n`` and, if theta is fixed, ``with_gamma_of_scale``.
    """

    scale_by_variance = True

    gamma: Positive | None = None

    def __call__(self, a: Points, b: Others) -> Gram:
        # exp(x) = 2^(x / ln 2); torch computes exp2 several times faster than exp
        gamma = or_one_over_n(self.gamma, a)
        return squared_distances(a, b, gamma).mul_(-gamma / math.log(2)).exp2_()

    def gradient(self, a: Points, b: Others, K: Gram, G: Gram) -> Points:
        """Return sum_j G_ij K_ij 2 gamma (b_j - a_i) for all i."""
        GK, gamma = G * K, or_one_over_n(self.gamma, a)
        if a.shape[-2] == 1:
            return 2 * gamma * GK @ (b - a)
        if _few(a, b):
            return 2 * gamma * (GK.unsqueeze(-1) * _differences(a, b)).sum(-2)
        origin = b.mean(-2, keepdim=True)  # see squared_distances
        return 2 * gamma * (GK @ (b - origin) - GK.sum(-1, keepdim=True) * (a - origin))


def distances(a: Points, b: Others) -> Gram:
    """Return ||a_i - b_j||_1 for all i, j.

    For features with at most two values, such as one-hot encoded categories, a matrix product is enough.
    """
    if a.ndim + b.ndim > 4 or _few(a, b) or torch.compiler.is_exporting():
        return torch.cdist(a, b, p=1)
    both = torch.cat([a.detach(), b.detach()])
    low, high = both.amin(0), both.amax(0)
    two = ((both == low) | (both == high)).all(0)
    if not two.any():
        return torch.cdist(a, b, p=1)
    # for two values, |a - b| is (a - b)^2 / (high - low), which has twice the derivative
    scale = torch.where(high > low, high - low, 1.0)[two].rsqrt()
    squares = squared_distances(scale * a[:, two], scale * b[:, two])
    return torch.cdist(a[:, ~two], b[:, ~two], p=1) + (squares + squares.detach()) / 2


FEATURE_ROUNDING = 64
"""Maximum rounding error of features, in units of machine precision."""


@dataclass(frozen=True, config=STRICT)
class Laplacian(Kernel):
    """K(a, b) = exp(-gamma ||a - b||_1), where gamma=None means 1/n.

    Distances below the rounding error of the features are set to 0, so that the gradient is 0 at a = b.
    """

    gamma: Positive | None = None

    def __call__(self, a: Points, b: Others) -> Gram:
        d, unit = distances(a, b), FEATURE_ROUNDING * torch.finfo(a.dtype).eps
        rounding_a, rounding_b = (unit * z.detach().abs().sum(-1) for z in (a, b))
        rounding = rounding_a.unsqueeze(-1) + rounding_b.unsqueeze(-2)
        minus_gamma = -or_one_over_n(self.gamma, a) / math.log(2)  # see ``RBF``
        return torch.where(d > rounding, d, 0.0).mul_(minus_gamma).exp2_()


@dataclass(frozen=True, config=STRICT)
class Linear(Kernel):
    """K(a, b) = <a, b>."""

    def __call__(self, a: Points, b: Others) -> Gram:
        return a @ b.mT


@dataclass(frozen=True, config=STRICT)
class Polynomial(Kernel):
    """K(a, b) = (gamma <a, b> + c)^degree. For gamma=None, see ``or_one_over_n``."""

    scale_by_variance = True

    degree: Annotated[int, Field(ge=1, le=10**6)] = 3
    gamma: Positive | None = None
    c: NonNegativeFloat = 1.0

    def __call__(self, a: Points, b: Others) -> Gram:
        return (or_one_over_n(self.gamma, a) * a @ b.mT + self.c) ** self.degree


@dataclass(frozen=True, config=ConfigDict(**STRICT, arbitrary_types_allowed=True))
class Normalized(Kernel):
    """K~(a, b) = K(a, b) / (sqrt K(a, a) sqrt K(b, b))  (paper, "Adjusting the Kernel").

    If K(a, a) is 0 or subnormal, K(a, b) is not divided by sqrt K(a, a).
    """

    K: Kernel

    def __call__(self, a: Points, b: Others) -> Gram:
        squares, tiny = (self.K.diag(z) for z in (a, b)), torch.finfo(a.dtype).tiny
        root_a, root_b = (torch.where(square >= tiny, square, 1.0).sqrt() for square in squares)
        # divide by one root at a time: their product may be so small that its gradient overflows
        return self.K(a, b) / root_a.unsqueeze(-1) / root_b.unsqueeze(-2)


@dataclass(frozen=True, config=ConfigDict(**STRICT, arbitrary_types_allowed=True))
class Biased(Kernel):
    """K + 1, which adds a regularised bias to f (Shalev-Shwartz et al. 2011, Section 6)."""

    K: Kernel

    def __call__(self, a: Points, b: Others) -> Gram:
        return self.K(a, b) + 1

    def gradient(self, a: Points, b: Others, K: Gram, G: Gram) -> Points:
        return self.K.gradient(a, b, K - 1, G)


MOST_MATRIX_ROWS = 2**24
"""Maximum number of rows of a precomputed matrix. float32 represents all smaller indices exactly."""


@dataclasses.dataclass(frozen=True)  # pydantic's decorator would add lines to an InputError
class Precomputed(Kernel):
    """K(a, b) = G_ab, with a symmetric matrix G in a NumPy file (.npy). Samples are indices of its rows."""

    path: str

    def __post_init__(self) -> None:
        G, what = self.G, f"kernel.path={self.path}"
        if G.ndim != 2 or len({*G.shape}) > 1 or len(G) > MOST_MATRIX_ROWS or G.dtype.kind not in "iuf":
            raise InputError(
                f"{what}: expected numbers of shape (m, m) with m <= 2^24, got {G.dtype} of shape {G.shape}"
            )
        block = G[:256, :256]  # reading all of a large file would take minutes
        if not (np.isfinite(block).all() and np.allclose(block, block.T)):
            raise InputError(f"{what}: expected a symmetric matrix of finite numbers")

    @cached_property
    def G(self) -> np.ndarray:
        return open_array("kernel.path", self.path)

    def __call__(self, a: Points, b: Others) -> Gram:
        i, j = self._indices(a), self._indices(b)
        return torch.from_numpy(self.G[i[..., None], j[..., None, :]].astype(np.float64)).to(a)

    def _indices(self, a: Points) -> Int64[np.ndarray, "*batch p"]:
        i, m = a.detach().cpu().double().numpy(), len(self.G)
        valid = (i == np.floor(i)) & (i >= 0) & (i < m)
        if i.shape[-1] != 1 or not valid.all():
            got = f"{i.shape[-1]} features" if i.shape[-1] != 1 else f"{i[~valid][0]:g}"
            raise InputError(
                f"kernel=precomputed: expected one feature, which is a row number of {self.path} from 0 to "
                f"{m - 1}, got {got}; set dataset.scaling=none and network=identity"
            )
        return i[..., 0].astype(np.int64)


def block_shape(a: Float[Tensor, "p n"], b: Float[Tensor, "q n"], memory_budget: int) -> tuple[int, int]:
    """Return the numbers of rows and columns of K(a, b) to compute at a time, for a budget in MiB."""
    cells = memory_budget * 2**20 // (4 * a.element_size())  # the block itself, and temporaries
    if a.device.type == "cpu":
        cells = min(cells, 2**20)  # fits in a processor's cache
    side = max(1, math.isqrt(cells))
    rows = max(1, min(len(a), cells // min(max(len(b), side // 2, 1), 2 * side)))
    return rows, max(1, cells // rows)


def kernel_sums(
    K: Kernel,
    a: Float[Tensor, "p n"],
    b: Float[Tensor, "q n"],
    w: Float[Tensor, " q *outputs"],
    memory_budget: int = MEMORY_BUDGET,
) -> Float[Tensor, " p *outputs"]:
    """Return sum_j w_j K(a_i, b_j) for all i, in blocks of at most ``memory_budget`` MiB."""
    rows, columns = block_shape(a, b, memory_budget)
    if len(a) <= rows and 0 < len(b) <= columns:
        return K(a, b) @ w
    sums = a.new_zeros(len(a), *w.shape[1:])
    if len(b) == 0:
        return sums
    for b_block, w_block in zip(b.split(columns), w.split(columns), strict=True):
        for sums_block, a_block in zip(sums.split(rows), a.split(rows), strict=True):
            sums_block += K(a_block, b_block) @ w_block
    return sums


@dataclass(frozen=True, config=STRICT)
class Common:
    """Settings of every kernel: learnt settings, ARD, normalisation, bias, and a gradient estimate."""

    learn: list[str] = Field(default_factory=list)
    ard: bool = False
    normalize: bool = False
    bias: bool | None = None
    gradient: Any = None


KERNELS: Registry[type[Kernel]] = Registry("kernel", Kernel, **dataclasses.asdict(Common()))
KERNELS |= {
    "rbf": RBF,
    "laplacian": Laplacian,
    "linear": Linear,
    "polynomial": Polynomial,
    "precomputed": Precomputed,
}


def is_linear(K: Kernel) -> bool:
    """Return whether a kernel computes K(a, b) = <a, b> with the formula of ``Linear``."""
    return keeps(type(K), Linear, "__call__")


def check_kernel(
    K: Kernel, name: str, a: Float[Tensor, "p n"], b: Float[Tensor, "q n"], differentiable: bool
) -> None:
    """Raise an InputError unless a kernel returns valid values at features a and b.

    Values must have shape (p, q) and the dtype of the features, and must not be random. They may have
    gradients with respect to the features only, and these gradients must be finite if ``differentiable``.
    """
    formula = K.unbiased
    formula = formula.K if isinstance(formula, Normalized) else formula
    for rows in (a, a[:1]):  # a formula with squeeze() fails for a single row
        returned = formula(rows.detach(), b.detach())
        got, expected = _described(returned), _described(a.new_empty(len(rows), len(b)))
        if got != expected:
            raise InputError(f"kernel {name}: expected a return value of {expected}, got {got}")
        if returned.requires_grad:
            where = f"{type(formula).__module__}.{type(formula).__qualname__}"
            raise InputError(
                f"kernel {name} ({where}) returned values that require gradients for features without "
                "gradients; store constants as floats or detached tensors, and learnt values as nn.Parameter"
            )
    if draws(lambda: formula(a, b), a.device.type):
        raise InputError(
            f"kernel {name} draws random numbers, but equal features must always give equal values"
        )
    if differentiable:
        K_ab = formula(a, b)
        gradient = Kernel.gradient(formula, a, b, K_ab, torch.ones_like(K_ab))
        if K_ab.isfinite().all() and not gradient.isfinite().all():  # the rows of a are the first rows of b
            raise InputError(
                f"kernel {name}: the gradient is not finite where a = b; apply .clamp_min(1e-12) to squared "
                "distances before the square root"
            )


def _described(value: object) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{tuple(value.shape)} of {value.dtype} on {value.device.type}"
