"""Estimates of kernel gradients from kernel values, compared with the exact gradients."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from nsvm_cli.models.composed_kernels import build_kernel
from nsvm_cli.models.kernel_gradients import WithGradient, build_gradient, directions
from nsvm_cli.models.kernels import Kernel

KERNELS = [
    {"name": "rbf", "gamma": 0.3},
    {"name": "laplacian"},
    {"name": "polynomial", "degree": 2, "bias": True},
    {"name": "rbf", "gamma": 0.3, "normalize": True},
    {"name": "polynomial", "degree": 2, "normalize": True, "bias": True},
]


@pytest.fixture
def given() -> tuple[Tensor, Tensor, Tensor]:
    """Return two sets of features, and weights of the kernel values."""
    drawn = torch.Generator().manual_seed(0)
    shapes = ((3, 4), (5, 4), (3, 5))
    a, b, G = (torch.randn(shape, generator=drawn, dtype=torch.float64) for shape in shapes)
    return a, b, G


def differentiated(K: Kernel, how: Any, t: int = 1) -> Kernel:
    estimate = build_gradient({"gradient": how})
    return WithGradient(K, estimate, directions(seed=0, t=t))


def gradients(K: Kernel, a: Tensor, b: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of sum_ij G_ij K(a_i, b_j) with respect to a and b, by autograd."""
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    by_a, by_b = torch.autograd.grad((G * K(a, b)).sum(), (a, b))
    return by_a, by_b


@pytest.mark.parametrize("settings", KERNELS)
def test_finite_differences_are_the_gradient(
    settings: Mapping[str, Any], given: tuple[Tensor, Tensor, Tensor]
) -> None:
    K = build_kernel(settings)
    estimated = differentiated(K, "finite_difference")
    for got, expected in zip(gradients(estimated, *given), gradients(K, *given), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("settings", KERNELS[::3])
def test_the_mean_of_an_estimate_is_the_gradient(
    settings: Mapping[str, Any], given: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Each step draws independent directions for 16 copies of the features at once."""
    K, draws = build_kernel(settings), 400
    how, copies = {"name": "spsa", "samples": 5}, [values.expand(16, -1, -1) for values in given]
    a, b, G = copies
    drawn = [torch.cat(gradients(differentiated(K, how, t), a, b, G), 1) for t in range(draws // 16)]
    each = torch.cat(drawn)
    deviations = (each.mean(0) - torch.cat(gradients(K, *given))) / (each.std(0) / draws**0.5)
    assert deviations.abs().max() < 4.5, "the estimates are biased in one of 32 numbers"
    assert 0.6 < deviations.square().mean() < 1.6


def test_directions_are_those_of_the_step_whatever_thread_differentiates(
    given: tuple[Tensor, Tensor, Tensor],
) -> None:
    """On a GPU, autograd calls ``backward`` in a separate thread."""
    K, again = (differentiated(build_kernel(KERNELS[0]), "spsa", t=7) for _ in range(2))
    a, b, G = given
    by_a = gradients(K, a, b, G)[0]
    a = a.clone().requires_grad_()
    value = (G * again(a, b)).sum()
    thread = threading.Thread(target=value.backward)
    thread.start()
    thread.join()
    assert torch.equal(a.grad, by_a)


@pytest.mark.parametrize("gamma", [1.0, 0.003])
def test_the_default_step_suits_single_precision(gamma: float, given: tuple[Tensor, Tensor, Tensor]) -> None:
    a, b, G = (tensor.float() for tensor in given)
    K = build_kernel({"name": "rbf", "gamma": gamma})
    exact, found = gradients(K, a, b, G)[0], gradients(differentiated(K, "finite_difference"), a, b, G)[0]
    assert (found - exact).norm() < 5e-3 * exact.norm()
