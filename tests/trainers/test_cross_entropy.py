"""The baseline without an SVM, against the same algorithm written with torch's own modules."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from nsvm_cli.errors import InputError
from nsvm_cli.models.kernels import RBF, Linear
from nsvm_cli.trainers.cross_entropy import CrossEntropy
from tests.conftest import MakeSmall, parameters, train

NETWORK = {"name": "mlp", "widths": [8, 6], "normalize": True, "head": True}


@pytest.mark.parametrize("k", [1, 5])
def test_equals_logistic_regression_on_features(k: int, small: MakeSmall) -> None:
    s = small(1, K=Linear(), network=NETWORK)
    state, g = train(CrossEntropy(80, k), s.problem, F := s.theta())
    theirs = small(1, K=Linear(), network=NETWORK).network
    optimizer = torch.optim.SGD(theirs.parameters(), 0.05, 0.9, weight_decay=0.01)
    draw = s.problem.sampler(k)
    for t in range(1, 81):
        A = torch.from_numpy(draw(t))
        optimizer.zero_grad()
        target = (s.problem.y[A] > 0).double()
        loss = functional.binary_cross_entropy_with_logits(theirs(s.problem.x[A])[:, 0], target)
        loss.backward()
        optimizer.step()
    torch.testing.assert_close(state.objective, loss.detach())
    torch.testing.assert_close(parameters(F.network), parameters(theirs))
    log_odds = theirs(s.problem.x)[:, 0].detach()
    torch.testing.assert_close(g(s.problem.K, F(s.problem.x)), log_odds)


def test_requires_a_head_and_a_linear_kernel(small: MakeSmall) -> None:
    without = small(1, K=Linear())
    with pytest.raises(InputError, match=r"head=true and kernel=linear, got a network with 6 outputs"):
        CrossEntropy(1).check(without.problem, without.theta())
    s = small(1, K=Linear(), network=NETWORK)
    CrossEntropy(1).check(s.problem, s.theta())
    with pytest.raises(InputError, match="got a network with 1 outputs and kernel rbf"):
        CrossEntropy(1).check(replace(s.problem, K=RBF()), s.theta())
