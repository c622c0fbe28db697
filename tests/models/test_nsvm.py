"""The decision function compared with hand-computed values, and Platt scaling with scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import brier_score_loss, log_loss
from torch import nn

from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.models.feature_map import CHUNK
from nsvm_cli.models.kernels import RBF, Linear, kernel_sums
from nsvm_cli.models.nsvm import (
    NSVM,
    Expansion,
    ModelMetadata,
    fit_sigmoids,
    probabilities,
    probability_scores,
)
from tests.small_runs import small_settings

pytestmark = pytest.mark.usefixtures("shapes")

FACTS = ModelMetadata(
    scale=10.0, bias=0.0, shape=(1,), classes=("-1", "+1"), steps=1, source="the test", sha256="0" * 64
)


def model(bias: float = 0.0) -> NSVM:
    """Return a model with g(x) = (3 * 2 - 1 * 4) ((x - 1) / 2) / 10 + bias = (x - 1) / 10 + bias."""
    z, alpha = torch.tensor([[2.0], [4.0]]), torch.tensor([3.0, -1.0])
    mean, std = torch.tensor([1.0]).double(), torch.tensor([2.0]).double()
    expansion = Expansion(z, alpha, 10.0, bias)
    return NSVM(small_settings(), FACTS, Scaling(mean, std), nn.Flatten(), Linear(), expansion)


def test_decision_function_predictions_and_errors() -> None:
    x = torch.tensor([[11.0], [1.0], [-9.0]]).double()
    torch.testing.assert_close(model().decision_function(x), torch.tensor([1.0, 0.0, -1.0]))
    torch.testing.assert_close(model(bias=0.5).decision_function(x), torch.tensor([1.5, 0.5, -0.5]))
    assert model().predict(x).tolist() == [1, 1, -1], "g(x) = 0 should give class +1"
    y = torch.tensor([1.0, -1.0, -1.0]).double()
    score = model().score(x, y)
    assert (score["accuracy"], score["errors"]) == (2 / 3, 1)
    assert model().score(x, -y)["errors"] == 2


def test_chunks_change_nothing() -> None:
    x = torch.randn(2 * CHUNK + 5, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(model().decision_function(x), ((x - 1) / 10).squeeze(1).float())


def test_a_wide_network_sees_few_samples_at_a_time() -> None:
    seen: list[int] = []
    network = nn.Linear(1, 2**16)
    for parameter in network.parameters():  # sums without cancellation have small rounding errors
        nn.init.ones_(parameter)
    network.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    expansion = Expansion(torch.ones(1, 2**16), torch.ones(1), scale=1.0)
    scaling = Scaling(torch.zeros(1).double(), torch.ones(1).double())
    model = NSVM(small_settings(), FACTS, scaling, network, Linear(), expansion)
    x = torch.linspace(-1, 1, 200)[:, None].double()
    g = model.decision_function(x)
    assert (sum(seen), max(seen)) == (200, 128)
    torch.testing.assert_close(g[-1:], model.decision_function(x[-1:]), rtol=1e-4, atol=0)


@pytest.mark.parametrize("outputs", [(), (3,)])
def test_sums_with_large_coefficients_are_those_of_float64(outputs: tuple[int, ...]) -> None:
    """Coefficients of a million require float64: errors of float32 would be as large as the margin."""
    generator = torch.Generator().manual_seed(0)
    z, x = torch.randn(200, 5, generator=generator), torch.randn(300, 5, generator=generator)
    alpha, K = torch.randn(200, *outputs, generator=generator), RBF(1e-4)
    alpha -= alpha.mean(0)
    assert torch.equal(Expansion(z, alpha, 1.0)(K, x), kernel_sums(K, x, z, alpha))
    large = Expansion(z, 2**20 * alpha, 1.0)
    g = K(x.double(), z.double()) @ (2**20 * alpha).double()
    for part in (x, x[:1], x[:20]):
        decided = large(K, part)
        assert decided.dtype == torch.float32
        torch.testing.assert_close(decided, g[: len(part)].float(), rtol=1e-6, atol=1e-4)
    torch.testing.assert_close(Expansion(z, 2**-10 * alpha, 2**-30)(K, x), g.float(), rtol=1e-6, atol=1e-4)


class Given(ClassifierMixin, BaseEstimator):
    """A classifier that returns its input as decision values."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Given:
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return X if X.shape[1] > 1 else X[:, 0]

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[X.argmax(1) if X.shape[1] > 1 else 1 * (X[:, 0] >= 0)]


@pytest.mark.parametrize("C", [2, 4])
@pytest.mark.parametrize("size", [1e-3, 1e4])
def test_the_probabilities_and_scores_of_scikit_learn(C: int, size: float) -> None:
    rng = np.random.default_rng(C)
    y = rng.permutation(np.repeat(range(C), [20 + 5 * r for r in range(C)]))
    one_hot = y[:, None] == np.arange(C)
    g = size * (rng.normal(size=one_hot.shape) + one_hot)
    g, positive = (g[:, 1:] - g[:, :1], one_hot[:, 1]) if C == 2 else (g, one_hot)
    frozen = FrozenEstimator(Given().fit(g, y))
    expected = CalibratedClassifierCV(frozen, method="sigmoid", ensemble=False).fit(g, y).predict_proba(g)
    values = torch.from_numpy(g).squeeze(1) if C == 2 else torch.from_numpy(g)
    sigmoids = fit_sigmoids(values, torch.from_numpy(positive))
    p = probabilities(sigmoids, values)
    np.testing.assert_allclose(p, expected, atol=1e-6)
    scores = probability_scores(p, torch.from_numpy(positive))
    assert scores["log_loss"] == pytest.approx(log_loss(y, expected))
    assert scores["brier_score"] == pytest.approx(brier_score_loss(y, expected[:, 1] if C == 2 else expected))


def test_extreme_values() -> None:
    """Equal decision values give the smoothed share of each class. Sigmoids of 0 give equal probabilities."""
    positive = torch.arange(10) < 3
    p = probabilities(fit_sigmoids(torch.zeros(10), positive), torch.zeros(1))
    smoothed = (3 * 4 / 5 + 7 * 1 / 9) / 10  # the mean of Platt's targets
    assert p[0, 1] == pytest.approx(smoothed)
    p = probabilities(torch.tensor([[1e300] * 3, [0.0] * 3]).double(), torch.full((1, 3), 1e9))
    assert p.tolist() == [[1 / 3] * 3]
    assert np.isfinite(probability_scores(p.new_tensor([[0.0, 1.0]]), torch.tensor([False]))["log_loss"])
