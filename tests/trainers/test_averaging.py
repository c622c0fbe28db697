"""The mean of theta over the last steps, against the thetas themselves."""

from __future__ import annotations

import pytest
import torch

from nsvm_cli.models.composed_kernels import learnt
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.trainers import build_trainer
from tests.conftest import MakeSmall, parameters
from tests.small_runs import small_settings

SETTINGS = {"name": "alg4", "steps": 20, "batch_size": 4, "solver_steps": 30}


@pytest.mark.parametrize(("share", "first"), [(0.25, 16), (1.0, 1), (0.01, 20)])
def test_the_last_theta_becomes_the_mean(share: float, first: int, small: MakeSmall) -> None:
    s = small(1)
    plain, averaged = (build_trainer({**SETTINGS, "average": a}) for a in (None, share))
    F, G = s.theta(), s.theta()
    state, twin = plain.start(s.problem, F), averaged.start(s.problem, G)
    thetas = []
    for t in range(1, 21):
        plain.advance(s.problem, state, t)
        thetas.append(parameters(F.network).clone())
        averaged.advance(s.problem, twin, t)
        if t < 20:
            assert torch.equal(parameters(G.network), thetas[-1]), "until then, theta is as without a mean"
    expected = torch.stack(thetas[first - 1 :]).mean(0)
    torch.testing.assert_close(parameters(G.network), expected, rtol=0, atol=1e-14)


def test_the_kernels_part_of_theta_is_averaged_too() -> None:
    last = []
    for share in (None, 1.0):
        algorithm = {"name": "alg4", "steps": 20, "solver_steps": 30, "average": share}
        kernel = {"name": "rbf", "gamma": 0.5, "learn": ["gamma"]}
        e = prepare(small_settings(algorithm=algorithm, kernel=kernel, dtype="float64"))
        state, rhos = e.trainer.start(e.problem, e.F), []
        for t in range(1, 21):
            e.trainer.advance(e.problem, state, t)
            rhos.append(learnt(e.problem.K)["gamma"].item())
        last.append(rhos)
    plain, averaged = last
    assert averaged[:-1] == plain[:-1]
    assert averaged[-1] == pytest.approx(sum(plain) / 20, rel=1e-12)
    assert plain[-1] != plain[0]


def test_the_mean_of_another_network_is_refused(small: MakeSmall) -> None:
    s, trainer = small(1), build_trainer({**SETTINGS, "average": 0.5})
    saved = trainer.start(s.problem, s.theta()).state_dict()
    del saved["mean"]["0.layers.0.weight"]
    with pytest.raises(ValueError, match=r"expected the keys 0\.layers"):
        trainer.restore(s.problem, s.theta(), saved)
