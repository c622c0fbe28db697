"""Objectives: their bounds, their special cases, and the alignment of a whole data set."""

from __future__ import annotations

import pytest
import torch

from nsvm_cli.errors import RunError
from nsvm_cli.models import objectives
from nsvm_cli.models.kernels import RBF, Linear, Polynomial
from nsvm_cli.models.objectives import (
    ALIGNMENT_LOSSES,
    ROWS,
    alignment,
    dataset_alignment,
    norm_surrogate,
)


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(10, 4, generator=generator, dtype=torch.float64)
    y = torch.tensor([-1.0, 1.0] * 5, dtype=torch.float64)
    return RBF(0.3)(z, z), y


def test_alignment_is_1_for_the_ideal_kernel_and_scale_free(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    K, y = batch
    torch.testing.assert_close(alignment(torch.outer(y, y), y)[0], torch.tensor(1.0, dtype=torch.float64))
    torch.testing.assert_close(alignment(7 * K, y)[0], alignment(K, y)[0])
    assert -1 <= alignment(K, y)[0] <= 1


def test_norm_surrogate_is_0_without_coefficients_and_so_is_its_gradient(
    batch: tuple[torch.Tensor, torch.Tensor],
) -> None:
    K, y = batch
    value, slope = norm_surrogate(1e-3 * K, torch.zeros_like(y))  # small: no bound may be divided by
    assert value == 0
    assert (slope == 0).all()


def test_slopes_are_the_derivatives_of_the_papers_formulas(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    K, y = batch
    alpha = torch.arange(10, dtype=torch.float64)
    ones = torch.ones_like(y)
    for (value, slope), a, k in ((alignment(K, y), ones, 10), (norm_surrogate(K, alpha * y), alpha, None)):
        leaf = K.clone().requires_grad_()
        aa = torch.outer(a, a)
        root = leaf.square().sum().sqrt()
        formula = (aa * torch.outer(y, y) * leaf).sum() / ((k or aa.square().sum().sqrt()) * root)
        torch.testing.assert_close(value, formula.detach())
        torch.testing.assert_close(slope, torch.autograd.grad(formula, leaf)[0])


def test_norm_surrogate_does_not_depend_on_the_scale_of_alpha(
    batch: tuple[torch.Tensor, torch.Tensor],
) -> None:
    K, y = batch
    alpha = torch.arange(10, dtype=torch.float64)
    torch.testing.assert_close(norm_surrogate(K, alpha * y / 16)[0], norm_surrogate(K, alpha * y)[0])


def test_alignment_losses() -> None:
    beta, gamma = 1.0, torch.tensor(0.25)
    assert ALIGNMENT_LOSSES["squared"](beta, gamma) == (0.5625, -1.5)
    assert ALIGNMENT_LOSSES["linear"](beta, gamma) == (-0.25, -1.0)


def test_dataset_alignment_is_the_alignment_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    m = 2 * ROWS + 500
    z = torch.randn(m, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.where(z[:, 0] > 0, 1.0, -1.0).double()
    expected = float(alignment(RBF(1.0)(z, z), y)[0])
    assert dataset_alignment(RBF(1.0), z, y, seed=0) == {
        "alignment": pytest.approx(expected),
        "alignment_samples": m,
        "alignment_centred": False,
    }
    monkeypatch.setattr(objectives, "ALIGNMENT_SAMPLES", 500)
    part = dataset_alignment(RBF(1.0), z, y, seed=0)
    assert part["alignment_samples"] == 500
    assert part["alignment"] == pytest.approx(expected, abs=0.05)


def test_an_alignment_that_is_not_defined_is_none_and_one_that_overflows_stops_the_run() -> None:
    y = torch.tensor([-1.0, 1.0])
    assert dataset_alignment(Linear(), torch.zeros(2, 3), y, seed=0)["alignment"] is None
    with pytest.raises(RunError, match="not finite"):
        dataset_alignment(Polynomial(degree=200, gamma=1.0), torch.full((2, 3), 9.0), y, seed=0)
