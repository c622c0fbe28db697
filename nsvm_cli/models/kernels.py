"""Kernels as formulas: ``(p, n), (q, n) -> (p, q)``, with any leading batch dimensions."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int64
from pydantic import ConfigDict, Field, NonNegativeFloat
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from nsvm_cli.config.registry import STRICT, Positive, Registry, build, shown
from nsvm_cli.errors import InputError, message_of
from nsvm_cli.memory import MEMORY_BUDGET
from nsvm_cli.storage.files import open_regular

Points: TypeAlias = Float[Tensor, "*batch p n"]
Others: TypeAlias = Float[Tensor, "*batch q n"]
Gram: TypeAlias = Float[Tensor, "*batch p q"]


class Kernel:
    """A positive semidefinite kernel K on R^n (paper, Section 2).

    To add a kernel, implement ``__call__`` and register the class in ``KERNELS``. Use operations that accept
    leading dimensions (``b.mT``, ``sum(-1)``): ``diag`` relies on them. Attributes that are ``nn.Parameter``
    are part of theta.
    """

    def __init_subclass__(cls) -> None:
        if "__call__" in vars(cls) and "gradient" not in vars(cls):
            cls.gradient = Kernel.gradient  # type: ignore[method-assign]  # not that of an inherited formula

    def __call__(self, a: Points, b: Others) -> Gram:
        """Return K(a_i, b_j) for all i, j."""
        raise NotImplementedError

    def without(self, *wrappers: type[Kernel]) -> Kernel:
        """Return the kernel that wrappers of these types have been put around, or else itself."""
        return self.K.without(*wrappers) if isinstance(self, wrappers) else self  # type: ignore[attr-defined]

    def gradient(self, a: Points, b: Others, K: Gram, G: Gram) -> Points:
        """Return the gradient of sum_ij G_ij K(a_i, b_j) with respect to a, given ``K`` = K(a_i, b_j).

        This default uses autograd; override it where a closed form is known.
        """
        with torch.enable_grad():
            a = a.detach().requires_grad_()
            K = self(a, b)
            if not K.requires_grad:
                raise InputError(
                    f"kernel {type(self).__name__} returned values without a gradient: expected "
                    "kernel.gradient=spsa or finite_difference, or algorithm=pegasos or svc, which need none"
                )
            # given G itself, torch would import sympy, which takes half a second
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


def squared_distances(a: Points, b: Others) -> Gram:
    """Return ||a_i - b_j||^2 for all i, j; for many points, with a single matrix product."""
    if _few(a, b):
        return _differences(a, b).square().sum(-1)
    # Distances are translation invariant; centring the data reduces cancellation in the three-term form.
    origin = b.detach().mean(-2, keepdim=True)
    a, b = a - origin, b - origin
    square_a, square_b = (c.square().sum(-1, keepdim=True) for c in (a, b))
    return (-2 * a @ b.mT).add_(square_a).add_(square_b.mT).clamp_min_(0)


def or_one_over_n(gamma: float | Tensor | None, a: Tensor) -> float | Tensor:
    """Return gamma, or 1/n if it is None (Section 5.2 uses 1/320 on R^320)."""
    return 1 / a.shape[-1] if gamma is None else gamma


@dataclass(frozen=True, config=STRICT)
class RBF(Kernel):
    """K(a, b) = exp(-gamma ||a - b||^2)  (paper, Section 5). gamma=None: 1/n."""

    compiled: ClassVar[bool] = True
    gamma: Positive | None = None

    def __call__(self, a: Points, b: Others) -> Gram:
        # exp(x) = 2^(x / ln 2); torch computes exp2 several times faster than exp
        return squared_distances(a, b).mul_(-or_one_over_n(self.gamma, a) / math.log(2)).exp2_()

    def gradient(self, a: Points, b: Others, K: Gram, G: Gram) -> Points:
        """Return sum_j G_ij K_ij 2 gamma (b_j - a_i) for all i."""
        GK, gamma = G * K, or_one_over_n(self.gamma, a)
        if a.shape[-2] == 1:
            return 2 * gamma * GK @ (b - a)
        if _few(a, b):
            return 2 * gamma * (GK.unsqueeze(-1) * _differences(a, b)).sum(-2)
        origin = b.mean(-2, keepdim=True)  # see squared_distances
        return 2 * gamma * (GK @ (b - origin) - GK.sum(-1, keepdim=True) * (a - origin))


@dataclass(frozen=True, config=STRICT)
class Laplacian(Kernel):
    """K(a, b) = exp(-gamma ||a - b||_1). gamma=None: 1/n."""

    gamma: Positive | None = None

    def __call__(self, a: Points, b: Others) -> Gram:
        return torch.exp(-or_one_over_n(self.gamma, a) * torch.cdist(a, b, p=1))


@dataclass(frozen=True, config=STRICT)
class Linear(Kernel):
    """K(a, b) = <a, b>."""

    def __call__(self, a: Points, b: Others) -> Gram:
        return a @ b.mT


@dataclass(frozen=True, config=STRICT)
class Polynomial(Kernel):
    """K(a, b) = (gamma <a, b> + c)^degree. gamma=None: 1/n."""

    degree: Annotated[int, Field(ge=1, le=10**6)] = 3
    gamma: Positive | None = None
    c: NonNegativeFloat = 1.0

    def __call__(self, a: Points, b: Others) -> Gram:
        return (or_one_over_n(self.gamma, a) * a @ b.mT + self.c) ** self.degree


MOST_ROWS = 2**24
"""The most rows of a precomputed matrix: float32 holds all their indices."""

CHECKED_ROWS = 256
"""The size of the block of a precomputed matrix that is checked before training."""


@dataclass(frozen=True, config=STRICT)
class Precomputed(Kernel):
    """K(a, b) = G_ab, where samples are their indices in a symmetric matrix G.

    ``path`` names a file of NumPy's (.npy), which is mapped into memory and read where it is needed.
    """

    path: str

    def __post_init__(self) -> None:
        G, what = self.G, f"kernel.path={self.path}"
        if G.ndim != 2 or len({*G.shape}) > 1 or len(G) > MOST_ROWS or G.dtype.kind not in "iuf":
            raise InputError(
                f"{what} holds {G.dtype} of shape {G.shape}: expected numbers of shape (m, m), m <= 2^24"
            )
        block = G[:CHECKED_ROWS, :CHECKED_ROWS]
        if not (np.isfinite(block).all() and np.allclose(block, block.T)):
            raise InputError(f"{what}: expected a symmetric matrix of finite numbers")

    @cached_property
    def G(self) -> np.memmap:
        """What the file holds."""
        try:
            file = Path(os.path.expanduser(self.path))
            open_regular(file).close()  # a stranger's settings may name any file
            return np.lib.format.open_memmap(file, mode="r")  # refuses pickled objects
        except (OSError, ValueError) as error:
            reason = message_of(error) if isinstance(error, OSError) else error
            raise InputError(f"kernel.path={self.path} cannot be read as a matrix: {reason}") from None

    def __call__(self, a: Points, b: Others) -> Gram:
        i, j = self._indices(a), self._indices(b)
        return torch.from_numpy(self.G[i[..., None], j[..., None, :]].astype(np.float64)).to(a)

    def _indices(self, a: Points) -> Int64[np.ndarray, "*batch p"]:
        i, m = a.detach().cpu().double().numpy(), len(self.G)
        known = (i == np.floor(i)) & (i >= 0) & (i < m)
        if i.shape[-1] != 1 or not known.all():
            got = f"{i.shape[-1]} features" if i.shape[-1] != 1 else f"{i[~known][0]:g}"
            raise InputError(
                f"kernel precomputed expects samples that are rows of {self.path}, 0 to {m - 1}, got {got}: "
                "expected one feature, the index, with dataset.scaling=none and network=identity"
            )
        return i[..., 0].astype(np.int64)


@dataclass(frozen=True, config=ConfigDict(**STRICT, arbitrary_types_allowed=True))
class Normalized(Kernel):
    """K~(a, b) = K(a, b) / (sqrt K(a, a) sqrt K(b, b))  (paper, "Adjusting the Kernel").

    The paper requires K(a, a) != 0 for every a. A network may still output a = 0, and then K(a, b) = 0 for
    every b, which is divided by 1 and stays 0. The same holds for a K(a, a) below the smallest normal number,
    whose reciprocal may be infinite.
    """

    K: Kernel

    def __call__(self, a: Points, b: Others) -> Gram:
        root_a, root_b = (self._root(z) for z in (a, b))
        # divide by one root at a time: their product may be so small that its gradient overflows
        return self.K(a, b) / root_a.unsqueeze(-1) / root_b.unsqueeze(-2)

    def _root(self, z: Points) -> Float[Tensor, "*batch p"]:
        """Return sqrt K(z_i, z_i), or 1 where it is 0."""
        K_zz = self.K.diag(z)
        return torch.where(K_zz >= torch.finfo(z.dtype).tiny, K_zz, 1.0).sqrt()


@dataclass(frozen=True, config=ConfigDict(**STRICT, arbitrary_types_allowed=True))
class Biased(Kernel):
    """K + 1: H gains the constant functions, so that f has a bias, regularised like the rest of f.

    An unregularised bias would not do: without strong convexity in it, Pegasos loses its rate of convergence
    (Shalev-Shwartz et al. 2011, Section 6).
    """

    K: Kernel

    def __call__(self, a: Points, b: Others) -> Gram:
        return self.K(a, b) + 1

    def gradient(self, a: Points, b: Others, K: Gram, G: Gram) -> Points:
        return self.K.gradient(a, b, K - 1, G)


@dataclass(frozen=True, config=STRICT)
class Composed(Kernel):
    """A kernel of the kernels K_r, whose sections are ``of``."""

    of: Annotated[list[dict[str, Any]], Field(min_length=1)]

    def __post_init__(self) -> None:
        assert self.K  # or a section was refused

    @cached_property
    def K(self) -> list[Kernel]:
        return [build_kernel(section) for section in self.of]


@dataclass(frozen=True, config=STRICT)
class Sum(Composed):
    """K(a, b) = sum_r w_r K_r(a, b); w_r = 1 without ``weights``."""

    weights: list[Positive] = Field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = self.weights or [1.0] * len(self.of)
        if len(weights) != len(self.of):
            raise ValueError(f"expected a weight for each of {len(self.of)} kernels, got {len(weights)}")
        object.__setattr__(self, "weights", weights)

    def __call__(self, a: Points, b: Others) -> Gram:
        return torch.stack([w * K(a, b) for w, K in zip(self.weights, self.K, strict=True)]).sum(0)


@dataclass(frozen=True, config=STRICT)
class Product(Composed):
    """K(a, b) = prod_r K_r(a, b)."""

    def __call__(self, a: Points, b: Others) -> Gram:
        return torch.stack([K(a, b) for K in self.K]).prod(0)


class Learnt(Kernel):
    """K with settings that are learnt: each is its value at the start times exp(rho), with rho in theta.

    rho starts at 0, so that settings stay positive, and L2 regularisation pulls them to their start. With
    ``ard``, K(a, b) = K(s a, s b) with a factor s_i for each feature, the inverse of a length scale.
    """

    def __init__(self, K: Kernel, names: Sequence[str], ard: bool) -> None:
        for name in names:
            value = getattr(K, name, 0.0)
            numbers = value if isinstance(value, list) else [1.0 if value is None else value]
            if not all(isinstance(number, float) and number > 0 for number in numbers):
                raise InputError(f"kernel.learn: expected names of settings that are positive, got {name}")
        self.K, self.names, self.ard = K, names, ard
        self.start: dict[str, Tensor] = {}
        self.rho: dict[str, nn.Parameter] = {}

    def begin(self, z: Float[Tensor, "_ n"]) -> None:
        """Start to learn, for features like z."""
        values = {name: getattr(self.K, name) for name in self.names}
        self.start = {name: torch.as_tensor(v or or_one_over_n(None, z)).to(z) for name, v in values.items()}
        self.start |= {"ard": z.new_ones(z.shape[1])} if self.ard else {}
        self.rho = {name: nn.Parameter(torch.zeros_like(start)) for name, start in self.start.items()}

    def values(self) -> dict[str, Tensor]:
        """Return what the settings are now."""
        return {name: self.start[name] * rho.exp() for name, rho in self.rho.items()}

    def _now(self) -> tuple[Kernel, Tensor | float]:
        """Return K with these values, and s."""
        K, values = copy.copy(self.K), self.values()
        s = values.pop("ard", 1.0)
        for name, value in values.items():
            object.__setattr__(K, name, value)  # K may be frozen
        return K, s

    def __call__(self, a: Points, b: Others) -> Gram:
        K, s = self._now()
        return K(s * a, s * b)

    def gradient(self, a: Points, b: Others, K: Gram, G: Gram) -> Points:
        formula, s = self._now()
        return s * formula.gradient(s * a, s * b, K, G)


def parts_of(part: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Yield a kernel, the kernels that it is made of, and the parameters of all, each with a name."""
    if isinstance(part, (Kernel, nn.Parameter)):
        yield name, part
    inner: dict[Any, Any] = part if isinstance(part, dict) else {}
    if isinstance(part, (Kernel, nn.Module)):
        inner = vars(part)
    elif isinstance(part, (list, tuple)):
        inner = dict(enumerate(part))
    for key, value in inner.items():
        through = key in ("K", "rho", "_parameters", "_modules")
        yield from parts_of(value, name if through else f"{name}.{key}".strip("."))


def learnt(K: Kernel | None) -> dict[str, nn.Parameter]:
    """Return the parameters of a kernel, which are part of theta, by name."""
    return {name: part for name, part in parts_of(K) if isinstance(part, nn.Parameter)}


def learnt_values(K: Kernel) -> dict[str, Any]:
    """Return the learnt settings of a kernel, and its other parameters, as numbers and lists of numbers."""
    values = {name: p.tolist() for name, p in learnt(K).items()}
    for name, part in parts_of(K):
        if isinstance(part, Learnt):
            values |= {f"{name}.{key}".strip("."): value.tolist() for key, value in part.values().items()}
    return values


def begin(K: Kernel, z: Float[Tensor, "_ n"]) -> Kernel:
    """Return the same kernel, its parameters at their start, of the type and on the device of features z."""
    for _, part in parts_of(K):
        if isinstance(part, Learnt):
            part.begin(z)
    for p in learnt(K).values():
        p.data = p.data if z.is_meta else p.data.to(z)
        p.requires_grad_(False)  # but in the objective of a step: nothing else builds a graph
    return K


def block_shape(a: Float[Tensor, "p n"], b: Float[Tensor, "q n"], memory_budget: int) -> tuple[int, int]:
    """Return how many rows and columns of K(a, b) to compute at a time, for a budget in MiB."""
    cells = memory_budget * 2**20 // (4 * a.element_size())  # the block itself, and temporaries
    if a.device.type == "cpu":
        cells = min(cells, 2**18)  # what fits in a core's cache
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
    """Return sum_j w_j K(a_i, b_j) for all i, in blocks of the kernel matrix within ``memory_budget`` MiB.

    Each kernel value is computed once, for all outputs.
    """
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


WRAPPED: dict[str, Any] = {"learn": [], "ard": False, "normalize": False, "bias": None, "gradient": None}
KERNELS: Registry[type[Kernel]] = Registry("kernel", Kernel, **WRAPPED)
KERNELS |= {
    "rbf": RBF,
    "laplacian": Laplacian,
    "linear": Linear,
    "polynomial": Polynomial,
    "sum": Sum,
    "product": Product,
    "precomputed": Precomputed,
}


def build_kernel(settings: Mapping[str, Any]) -> Kernel:
    """Return the kernel that a ``kernel:`` section names; ``Learnt`` with names in ``learn`` or with
    ``ard: true``, then ``Normalized`` with ``normalize: true``, and then ``Biased`` with ``bias: true``.

    Raises:
        InputError: the kernel or one of its settings is wrong.
    """
    values = {name: value for name, value in settings.items() if name != "gradient"}  # see build_gradient
    names = values.pop("learn", None) or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"kernel.learn should be a list of names of settings, got {shown(names)}")
    ard, normalize, bias = (_flag(values, name) for name in ("ard", "normalize", "bias"))
    kernel = build(KERNELS, "kernel", values)
    kernel = Learnt(kernel, names, ard) if names or ard else kernel
    kernel = Normalized(kernel) if normalize else kernel
    return Biased(kernel) if bias else kernel


def _flag(values: dict[str, Any], name: str) -> bool:
    """Take a setting that is true or false, by default false, from those of a kernel."""
    value = values.pop(name, None) or False
    if not isinstance(value, bool):
        raise InputError(f"kernel.{name} should be true or false, got {shown(value)}")
    return value


def check_kernel(
    K: Kernel, name: str, a: Float[Tensor, "p n"], b: Float[Tensor, "q n"], differentiable: bool
) -> None:
    """Check that a kernel, which may be the user's own, returns (p, q) values of the type of its features,
    with no gradient but theirs, and with that if it has to be ``differentiable``.

    Raises:
        InputError: it returns something else.
    """
    formula = K.without(Normalized, Biased)
    for rows in (a, a[:1]):  # a single row is a case of its own, as for squeeze()
        returned = formula(rows.detach(), b.detach())
        got, expected = _described(returned), _described(a.new_empty(len(rows), len(b)))
        if got != expected:
            raise InputError(f"kernel {name} returned {got}, expected {expected}")
        if returned.requires_grad:
            where = f"{type(formula).__module__}.{type(formula).__qualname__}"
            raise InputError(
                f"kernel {name} ({where}) returned values with a gradient, though its features have none: "
                "expected floats or detached tensors, or an nn.Parameter as an attribute, which is learnt"
            )
    if differentiable:
        K_ab = formula(a, b)
        Kernel.gradient(formula, a, b, K_ab, torch.ones_like(K_ab))


def _described(value: object) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{tuple(value.shape)} of {value.dtype} on {value.device.type}"
