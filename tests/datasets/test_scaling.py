"""Standardisation, fitted on the training set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from torch import Tensor

from nsvm_cli.datasets.scaling import Scaling, fit_scaling
from nsvm_cli.errors import InputError
from nsvm_cli.runs.experiment import prepare
from tests.small_runs import small_settings


def random(*shape: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 5


@pytest.mark.parametrize("m", [2, 50])
def test_it_is_scikit_learns_with_the_sample_deviation(m: int) -> None:
    x, other = random(m, 4), random(7, 4, seed=1)
    scaling, theirs = fit_scaling(x, global_scaling=False), StandardScaler().fit(x.numpy())
    np.testing.assert_allclose(scaling.mean, theirs.mean_)
    np.testing.assert_allclose(scaling.std, theirs.scale_ * np.sqrt(m / (m - 1)))
    np.testing.assert_allclose(scaling(other), theirs.transform(other.numpy()) * np.sqrt((m - 1) / m))


def test_global_scaling_has_one_mean_and_one_deviation() -> None:
    x = random(6, 1, 3, 2) * torch.arange(1, 7).double().view(1, 1, 3, 2)
    scaling = fit_scaling(x, global_scaling=True)
    assert scaling.mean.shape == scaling.std.shape == ()
    assert scaling.mean.item() == pytest.approx(np.mean(x.numpy()))
    assert scaling.std.item() == pytest.approx(np.std(x.numpy(), ddof=1))
    torch.testing.assert_close(scaling(x), (x - x.mean()) / x.std())


@pytest.mark.parametrize("global_scaling", [False, True])
def test_channels_have_a_mean_and_a_deviation_each(global_scaling: bool) -> None:
    x = random(9, 3, 4, 5) * torch.tensor([1.0, 5.0, 0.0], dtype=torch.float64).view(3, 1, 1)
    scaling = fit_scaling(x, global_scaling, "channels")
    assert scaling.mean.shape == scaling.std.shape == (3, 4, 5)
    scaled = scaling(x)
    torch.testing.assert_close(scaled.mean((0, 2, 3)), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(scaled.std((0, 2, 3)), torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64))


@pytest.mark.parametrize("pixels", [False, True])
@pytest.mark.parametrize("global_scaling", [False, True])
def test_other_kinds_are_a_mean_and_a_deviation_as_well(global_scaling: bool, pixels: bool) -> None:
    x = (20 * random(30, 1, 3, 2)).to(torch.uint8 if pixels else torch.float64)
    values = x.double() / 255 if pixels else x
    scaling = fit_scaling(x, global_scaling, "minmax")
    assert scaling.mean.shape == scaling.std.shape == (() if global_scaling else (1, 3, 2))
    ours, theirs = scaling(x).flatten(1), MinMaxScaler()
    columns = values.reshape(-1, 1) if global_scaling else values.flatten(1)
    np.testing.assert_allclose(ours, theirs.fit_transform(columns.numpy()).reshape(ours.shape), atol=1e-15)
    assert fit_scaling(x, global_scaling, "none")(x).equal(values)


def test_kinds_of_scaling_for_which_values_are_too_large() -> None:
    x = torch.tensor([[-1.5e308], [0.0], [1.5e308]], dtype=torch.float64)
    assert fit_scaling(x, False, "none")(x).equal(x)
    for kind, says in {"minmax": "the range is not finite", "standard": "deviation is not finite"}.items():
        with pytest.raises(InputError, match=says):
            fit_scaling(x, False, kind)


@pytest.mark.parametrize("constant", [0.0, 0.1, -1e6 + 0.1, 1e200])
@pytest.mark.parametrize("m", [2, 6660])
def test_a_constant_feature_becomes_0(constant: float, m: int) -> None:
    x = random(m, 3)
    x[:, 1] = constant
    scaling = fit_scaling(x, global_scaling=False)
    assert scaling(x)[:, 1].tolist() == [0.0] * m
    assert scaling(x).isfinite().all()
    torch.testing.assert_close(scaling(x)[:, ::2], fit_scaling(x[:, ::2], global_scaling=False)(x[:, ::2]))


def test_a_feature_of_0_and_1_stays_as_it_is() -> None:
    """Standardisation would put samples of a rare category far away from all other samples."""
    x = random(50, 3)
    x[:, 1] = (torch.arange(50) % 7 == 0).double()
    scaling = fit_scaling(x, global_scaling=False)
    assert torch.equal(scaling(x)[:, 1], x[:, 1])
    torch.testing.assert_close(scaling(x)[:, ::2], fit_scaling(x[:, ::2], global_scaling=False)(x[:, ::2]))
    assert fit_scaling(x[:, 1:2], global_scaling=True)(x[:, 1:2]).mean() == pytest.approx(0)
    assert fit_scaling(x, False, "minmax")(x)[:, 1].equal(x[:, 1])


@pytest.mark.parametrize("global_scaling", [False, True])
def test_a_weight_of_w_is_w_rows(global_scaling: bool) -> None:
    x, w = random(12, 1, 3, 2), torch.tensor([1, 2, 3, 4] * 3)
    weighted = fit_scaling(x, global_scaling, w=w.double())
    repeated = fit_scaling(x.repeat_interleave(w, 0), global_scaling)
    torch.testing.assert_close(weighted.mean, repeated.mean)
    torch.testing.assert_close(weighted.std, repeated.std)
    ones = fit_scaling(x, global_scaling, w=torch.full((12,), 1e-3, dtype=torch.float64))
    torch.testing.assert_close(ones.std, fit_scaling(x, global_scaling).std)
    x[:, :, 1] = 0.1
    assert fit_scaling(x, False, w=w.double())(x)[:, :, 1].eq(0).all()


def fitted(file: Path, x: np.ndarray, validation: int) -> tuple[Scaling, np.ndarray]:
    """Return the scaling and the training samples of an experiment on the samples x."""
    table = pd.DataFrame(x, columns=["a", "b"])
    table.assign(label=np.arange(len(x)) % 2).to_csv(file, index=False)
    data = {"name": "csv", "path": str(file), "validation": validation}
    experiment = prepare(small_settings(dataset=data, algorithm={"name": "pegasos", "steps": 10}))
    return experiment.scaling, experiment.data.splits["train"].x.numpy()


@pytest.mark.parametrize("validation", [0, 10])
def test_only_training_samples_count(tmp_path: Path, validation: int) -> None:
    x = np.random.default_rng(0).normal(size=(100, 2))
    scaling, train = fitted(tmp_path / "first.csv", x, validation)
    held_out = ~np.isin(x[:, 0], train[:, 0])
    assert held_out.sum() == 10 + validation
    changed, _ = fitted(tmp_path / "second.csv", np.where(held_out[:, None], 1e6, x), validation)
    assert changed.mean.equal(scaling.mean)
    assert changed.std.equal(scaling.std)
    np.testing.assert_allclose(scaling.std, train.std(0, ddof=1))
