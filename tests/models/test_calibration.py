"""Platt's sigmoids, compared with scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import brier_score_loss, log_loss

from nsvm_cli.models.nsvm import fit_sigmoids, probabilities, probability_scores

pytestmark = pytest.mark.usefixtures("shapes")


class Given(ClassifierMixin, BaseEstimator):
    """A classifier whose samples are its decision values."""

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
    sums = probability_scores(p, torch.from_numpy(positive))
    scores = {name: total / len(y) for name, total in sums.items()}
    assert scores["log_loss"] == pytest.approx(log_loss(y, expected))
    assert scores["brier_score"] == pytest.approx(brier_score_loss(y, expected[:, 1] if C == 2 else expected))


def test_extreme_values() -> None:
    """Those that tell nothing give the share of each class; classes that are all impossible are as likely."""
    positive = torch.arange(10) < 3
    p = probabilities(fit_sigmoids(torch.zeros(10), positive), torch.zeros(1))
    smoothed = (3 * 4 / 5 + 7 * 1 / 9) / 10  # the mean of Platt's targets
    assert p[0, 1] == pytest.approx(smoothed)
    p = probabilities(torch.tensor([[1e300] * 3, [0.0] * 3]).double(), torch.full((1, 3), 1e9))
    assert p.tolist() == [[1 / 3] * 3]
    assert np.isfinite(probability_scores(p.new_tensor([[0.0, 1.0]]), torch.tensor([False]))["log_loss"])
