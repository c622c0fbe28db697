"""The baseline without an SVM, compared with the same algorithm written with torch's loss functions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from nsvm_cli.errors import InputError
from nsvm_cli.models.kernels import RBF, Linear
from nsvm_cli.trainers.cross_entropy import CrossEntropy
from tests import reference
from tests.conftest import LOSSES, MakeSmall, train
from tests.trainers.test_against_paper import Transcribed, assert_same_theta

NETWORK = {"name": "mlp", "widths": [8, 6], "normalize": True, "head": True}


@pytest.mark.parametrize("kind", LOSSES)
def test_descends_on_torchs_losses(kind: str, small: MakeSmall) -> None:
    s = small(1, K=Linear(), loss=LOSSES[kind], network=NETWORK)
    theirs, y = Transcribed(s, 0.05, k=5), s.problem.y
    for t in range(1, 81):
        A = theirs.draw(t)
        z = theirs.network(s.problem.x[A])
        if kind == "two classes":
            loss = functional.binary_cross_entropy_with_logits(z[:, 0], (y[A] > 0).double())
        elif kind == "three classes":
            loss = functional.cross_entropy(z, y[A].long())
        else:
            loss = (y[A] - z[:, 0]).square().mean() / 2
        reference.descend(theirs.optimizer, loss)
    state, g = train(CrossEntropy(80, 5), s.problem, F := s.theta())
    torch.testing.assert_close(state.objective, loss.detach())
    assert_same_theta(F, theirs)
    z = theirs.network(s.problem.x).detach()
    torch.testing.assert_close(g(s.problem.K, F(s.problem.x)), z if s.problem.task.outputs else z[:, 0])


def test_requires_a_head_and_a_linear_kernel(small: MakeSmall) -> None:
    without = small(1, K=Linear())
    with pytest.raises(InputError, match=r"head=true and kernel=linear, got a network with 6 outputs"):
        CrossEntropy(1).check(without.problem, without.theta())
    s = small(1, K=Linear(), network=NETWORK)
    CrossEntropy(1).check(s.problem, s.theta())
    with pytest.raises(InputError, match="got a network with 1 outputs and kernel=rbf"):
        CrossEntropy(1).check(replace(s.problem, K=RBF()), s.theta())
