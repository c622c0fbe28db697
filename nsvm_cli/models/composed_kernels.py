"""Kernels composed of kernels, kernels with learnt settings, and functions that build kernels."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any

import torch
from jaxtyping import Float, Float64
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from nsvm_cli.config.registry import STRICT, Positive, build, construct
from nsvm_cli.config.settings import Settings
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.models.kernels import KERNELS, Biased, Common, Gram, Kernel, Normalized, Others, Points
from nsvm_cli.randomness import Stream, derived_seed, seeded


@dataclass(frozen=True, config=STRICT)
class Composed(Kernel):
    """A kernel that combines several kernels K_r. The list ``of`` has a ``kernel:`` section for each K_r."""

    of: Annotated[list[dict[str, Any]], Field(min_length=1)]

    def __post_init__(self) -> None:
        assert self.K  # builds the kernels, which checks their settings

    def parts(self) -> dict[str, Any]:
        return {str(r): K_r for r, K_r in enumerate(self.K)}

    @cached_property
    def K(self) -> list[Kernel]:
        return [build_kernel(section) for section in self.of]


@KERNELS.register("sum")
@dataclass(frozen=True, config=STRICT)
class Sum(Composed):
    """K(a, b) = sum_r w_r K_r(a, b), where w_r = 1 without ``weights``."""

    weights: list[Positive] = Field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = self.weights or [1.0] * len(self.of)
        if len(weights) != len(self.of):
            raise ValueError(f"expected {len(self.of)} weights, one for each kernel, got {len(weights)}")
        object.__setattr__(self, "weights", weights)

    def __call__(self, a: Points, b: Others) -> Gram:
        return torch.stack([w * K(a, b) for w, K in zip(self.weights, self.K, strict=True)]).sum(0)


@KERNELS.register("product")
@dataclass(frozen=True, config=STRICT)
class Product(Composed):
    """K(a, b) = prod_r K_r(a, b)."""

    def __call__(self, a: Points, b: Others) -> Gram:
        return torch.stack([K(a, b) for K in self.K]).prod(0)


class Learnt(Kernel):
    """A kernel K with learnt settings. A setting is its initial value times exp(rho), and theta contains rho.

    rho starts at 0. L2 regularisation therefore pulls settings towards their initial values. With ``ard``,
    the kernel is K(s a, s b), where s contains a learnt factor for each feature.
    """

    def __init__(self, K: Kernel, names: list[str], ard: bool) -> None:
        for name in names:
            value = getattr(K, name, 0.0)
            numbers = value if isinstance(value, list) else [1.0 if value is None else value]
            if not all(isinstance(number, float) and number > 0 for number in numbers):
                options = [key for key, own in vars(K).items() if isinstance(own, (float, list, type(None)))]
                expected = f"expected names of positive settings of the kernel, got {name}"
                raise InputError(f"kernel.learn: {expected}; {did_you_mean(name, options)}")
        self.K, self.names, self.ard = K, names, ard
        self.start: dict[str, Tensor] = {}
        self.rho: dict[str, nn.Parameter] = {}

    def init_parameters(self, z: Float[Tensor, "_ n"]) -> None:
        """Set the parameters to their initial values for features like z."""
        start = {name: getattr(self.K, name) or 1 / z.shape[1] for name in self.names}
        self.start = {name: torch.as_tensor(value).to(z) for name, value in start.items()}
        self.start |= {"ard": z.new_ones(z.shape[1])} if self.ard else {}
        self.rho = {name: nn.Parameter(torch.zeros_like(start)) for name, start in self.start.items()}

    def parts(self) -> dict[str, Any]:
        return {"K": self.K, **self.rho}

    def values(self) -> dict[str, Tensor]:
        """Return the current values of the learnt settings."""
        return {name: self.start[name] * rho.exp() for name, rho in self.rho.items()}

    def with_values(self) -> tuple[Kernel, Tensor | float]:
        """Return K with the current values of its settings, and the factors s."""
        K, values = copy.copy(self.K), self.values()
        s = values.pop("ard", 1.0)
        for name, value in values.items():
            object.__setattr__(K, name, value)  # K may be frozen
        return K, s

    def __call__(self, a: Points, b: Others) -> Gram:
        K, s = self.with_values()
        return K(s * a, s * b)

    def gradient(self, a: Points, b: Others, K: Gram, G: Gram) -> Points:
        formula, s = self.with_values()
        return s * formula.gradient(s * a, s * b, K, G)


def parts_of(part: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Yield the name and value of a kernel and, recursively, of its kernels, parameters and settings."""
    yield name, part
    inner = part.parts() if isinstance(part, Kernel) else {}
    if isinstance(part, nn.Module):
        inner = dict(part.named_parameters())
    for key, value in inner.items():
        is_wrapped = key == "K" and isinstance(value, Kernel)  # a wrapped kernel adds no prefix to names
        yield from parts_of(value, name if is_wrapped else f"{name}.{key}".strip("."))


def learnt(K: Kernel | None) -> dict[str, nn.Parameter]:
    """Return the parameters of a kernel, which belong to theta, by name."""
    return {name: part for name, part in parts_of(K) if isinstance(part, nn.Parameter)}


def learnt_values(K: Kernel) -> dict[str, Tensor]:
    """Return a kernel's learnt settings and other parameters, by name."""
    values: dict[str, Tensor] = {**learnt(K)}
    for name, part in parts_of(K):
        if isinstance(part, Learnt):
            values |= {f"{name}.{key}".strip("."): value for key, value in part.values().items()}
    return values


def with_initial_parameters(K: Kernel, z: Float[Tensor, "_ n"]) -> Kernel:
    """Return the kernel after initialising its parameters, with the dtype and device of features z."""
    for _, part in parts_of(K):
        if isinstance(part, Learnt):
            part.init_parameters(z)  # before iterating over its parts
        elif isinstance(part, nn.Parameter):
            part.data = part.data if z.is_meta else part.data.to(z)
            part.requires_grad_(False)  # only the objective of a step builds a graph
    return K


def with_gamma_of_scale(
    settings: Mapping[str, Any], z: Callable[[], Float[Tensor, "m n"]], w: Float64[Tensor, " m"] | None = None
) -> dict[str, Any]:
    """Return a kernel's settings, with ``gamma_of_scale`` instead of gamma=None. z() returns the features."""
    if not isinstance(name := settings.get("name"), str) or name not in KERNELS:
        return dict(settings)
    values = {**KERNELS.section(name), **settings}
    if issubclass(KERNELS[name], Composed):
        return {**settings, "of": [with_gamma_of_scale(section, z, w) for section in values["of"]]}
    if not KERNELS[name].scale_by_variance or values.get("gamma", 0) is not None:
        return dict(settings)
    return {**settings, "gamma": gamma_of_scale(z(), w)}


def gamma_of_scale(z: Float[Tensor, "m n"], w: Float64[Tensor, " m"] | None = None) -> float:
    """Return 1/(n var z), like scikit-learn's ``scale``, or 1/n if the variance is 0.

    The variance is taken over all m n numbers, with weights w of the rows.
    """
    x = z.double()
    w = torch.ones(len(x), dtype=torch.float64) if w is None else w
    w = (w / w.sum() / x.shape[1]).to(x.device)[:, None]
    variance = float((w * (x - (w * x).sum()).square()).sum())
    return 1 / x.shape[1] / (variance or 1.0)


def kernel_of(settings: Settings) -> Kernel:
    """Return the kernel of a run. The seed determines random numbers that its constructor draws."""
    with seeded(derived_seed(settings.seed, Stream.KERNEL)):
        return build_kernel(settings.kernel)


def build_kernel(settings: Mapping[str, Any]) -> Kernel:
    """Return the kernel selected in a ``kernel:`` section, wrapped as its settings in ``Common`` say."""
    values = dict(settings)
    common = construct(Common, "kernel", {key: values.pop(key) for key in KERNELS.common if key in values})
    K = build(KERNELS, "kernel", values)
    K = Learnt(K, common.learn, common.ard) if common.learn or common.ard else K
    K = Normalized(K) if common.normalize else K
    return Biased(K) if common.bias else K
