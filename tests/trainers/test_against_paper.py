"""Every algorithm compared with a transcription of the paper's pseudocode, on the same draws, in float64.

Most of these tests take steps by ``step`` itself; ``tests/engines`` compares the engines with it.
"""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from nsvm_cli.engines import Engine, for_engine
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import Linear
from nsvm_cli.models.losses import LOSSES as FORMULAS
from nsvm_cli.models.losses import Binary, CrammerSinger, OneVsRest, Residual
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.randomness import Sampler
from nsvm_cli.trainers import Trainer
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.alg2 import Alg2
from nsvm_cli.trainers.alg3 import Alg3
from nsvm_cli.trainers.alg4 import Alg4
from nsvm_cli.trainers.base import Problem
from nsvm_cli.trainers.pegasos import Pegasos
from tests import reference
from tests.conftest import MakeSmall, Small, parameters, train

LAM = 0.01


KINDS = {Binary: "binary", CrammerSinger: "crammer_singer", OneVsRest: "one_vs_rest", Residual: "residual"}
NAMES = {formula: name for name, formula in FORMULAS.items()}


class Transcribed:
    """The input of the functions in ``tests/reference.py``, with a separate copy of theta."""

    def __init__(self, small: Small, lr: float, k: int = 1, lam: float = LAM) -> None:
        p = small.problem
        self.network = deepcopy(small.network)
        self.data = reference.Data(p.x, p.y, self.network)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr, 0.9, weight_decay=0.01)
        sampler = Sampler(p.seed, self.data.m, k)
        self.draw = lambda t: sampler(t).tolist()
        self.K = reference.rbf(1.0)
        names = KINDS[type(p.loss)], NAMES[type(p.loss.l)]
        self.problem = reference.Problem(self.data, self.draw, lam, self.K, *names, p.task.outputs)

    def features(self) -> list[torch.Tensor]:
        with torch.no_grad():
            return [self.data.F(j) for j in range(self.data.m)]


def assert_same_theta(F: FeatureMap, theirs: Transcribed) -> None:
    ours, expected = parameters(F.network), parameters(theirs.network)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10)


def assert_same_model(
    s: Small, theirs: Transcribed, F: FeatureMap, g: Expansion, alpha: torch.Tensor, T: int
) -> None:
    """Check that theta, and g at one sample, equal the reference."""
    assert_same_theta(F, theirs)
    z = theirs.features()
    expected = reference.decision(alpha, s.problem.y, z, z[3], LAM, T, theirs.K)
    torch.testing.assert_close(g(s.problem.K, z[3][None])[0], expected, rtol=0, atol=1e-9)


def dense(problem: Problem, state: object) -> torch.Tensor:
    """Return the paper's alpha_j for all samples."""
    return torch.from_numpy(state.coefficients.alpha) * problem.y  # type: ignore[attr-defined]


def test_pegasos(small: MakeSmall) -> None:
    s, T = small(0), 400
    theirs = Transcribed(s, lr=0)
    alpha = reference.algorithm_0(theirs.features(), s.problem.y, theirs.draw, T, LAM, theirs.K)
    state, g = train(Pegasos(T, LAM), s.problem, F := s.theta())
    assert torch.equal(dense(s.problem, state), alpha)
    assert 5 < state.violations == alpha.sum() - 1 < T - 10
    assert_same_model(s, theirs, F, g, alpha, T)


def test_algorithm_1(small: MakeSmall) -> None:
    s, T, lr = small(0), 300, 2e-3
    theirs = Transcribed(s, lr)
    alpha, y, z = reference.algorithm_1(theirs.data, theirs.optimizer, theirs.draw, T, LAM, theirs.K)
    state, g = train(Alg1(T, LAM), s.problem, F := s.theta(lr))
    support = [t for t in range(T) if alpha[t]]
    assert len(g.alpha) == len(support)
    assert 5 < state.violations == len(support) - 1 < T - 10
    assert g.alpha.tolist() == [alpha[t] * y[t] for t in support]
    torch.testing.assert_close(g.z, torch.stack([z[t] for t in support]), rtol=0, atol=1e-10)
    assert_same_theta(F, theirs)
    assert (parameters(F.network) - parameters(s.network)).abs().max() > 1e-2
    terms = (torch.tensor(alpha), torch.tensor(y, dtype=torch.float64), z)
    x = theirs.features()[3]
    expected = reference.decision(*terms, x, LAM, T, theirs.K)
    torch.testing.assert_close(g(s.problem.K, x[None])[0], expected, rtol=0, atol=1e-9)


def test_algorithm_2(small: MakeSmall) -> None:
    s, T, lr = small(0), 300, 2e-3
    theirs = Transcribed(s, lr)
    alpha = reference.algorithm_2(theirs.data, theirs.optimizer, theirs.draw, T, LAM, theirs.K)
    state, g = train(Alg2(T, LAM), s.problem, F := s.theta(lr))
    assert torch.equal(dense(s.problem, state), alpha)
    assert 5 < state.violations == alpha.sum() - 1 < T - 10
    assert (parameters(F.network) - parameters(s.network)).abs().max() > 1e-2
    assert_same_model(s, theirs, F, g, alpha, T)


def test_algorithm_3(small: MakeSmall) -> None:
    s, T, k, lr = small(0, network={"name": "mlp", "widths": [8, 6]}), 120, 4, 0.05
    theirs = Transcribed(s, lr, k)
    args = (theirs.draw, T, LAM, 0.7, k, theirs.K)
    alpha = reference.algorithm_3(theirs.data, theirs.optimizer, *args)
    state, g = train(Alg3(T, LAM, 0.7, k), s.problem, F := s.theta(lr))
    torch.testing.assert_close(dense(s.problem, state), alpha, rtol=0, atol=1e-12)
    assert torch.equal(dense(s.problem, state) > 0, alpha > 0)
    assert 5 < state.violations == round(float(alpha.sum() * k)) - k < T * k - 10
    assert_same_model(s, theirs, F, g, alpha, T)


@pytest.mark.parametrize("loss", ["squared", "linear"])
def test_algorithm_4(small: MakeSmall, loss: str) -> None:
    s, T, k, lr = small(0, network={"name": "mlp", "widths": [8, 6]}), 60, 6, 0.05
    L = {"squared": lambda b, c: (b - c) ** 2, "linear": lambda b, c: -c}[loss]
    theirs = Transcribed(s, lr, k)
    reference.algorithm_4_part_1(theirs.data, theirs.optimizer, theirs.draw, T, L, theirs.K)
    trainer = Alg4(T, k, loss=loss, solver_steps=300, lam=LAM)
    state, g = train(trainer, s.problem, F := s.theta(lr))
    assert state.t == T + 300
    draw = Transcribed(s, lr).draw
    alpha = reference.algorithm_0(theirs.features(), s.problem.y, draw, 300, LAM, theirs.K)
    assert torch.equal(dense(s.problem, state.part_2), alpha)  # type: ignore[attr-defined]
    assert_same_model(s, theirs, F, g, alpha, 300)


@pytest.mark.parametrize("trainer", [Alg1(300, LAM), Alg2(300, LAM)])
@pytest.mark.parametrize("fixed", ["rate 0", "identity"])
def test_algorithms_1_and_2_with_a_fixed_network_are_algorithm_0(
    small: MakeSmall, trainer: Trainer, fixed: str
) -> None:
    s = small(3) if fixed == "rate 0" else small(3, network={"name": "identity"})
    _, expected = train(Pegasos(300, LAM), s.problem, s.theta())
    _, g = train(trainer, s.problem, F := s.theta(lr=0))
    z = F(s.problem.x)
    torch.testing.assert_close(g(s.problem.K, z), expected(s.problem.K, z), rtol=0, atol=1e-12)
    assert g.alpha.abs().sum() == expected.alpha.abs().sum()


@pytest.fixture(params=["literal", "torch"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


@pytest.mark.parametrize("trainer", [Pegasos(2, 1.0), Alg1(2, 1.0), Alg2(2, 1.0), Alg3(2, 1.0, 1.0, 2)])
def test_a_margin_of_exactly_1_is_not_a_violation(engine: Engine, trainer: Trainer) -> None:
    """For x = y = +-1, a linear kernel and lambda = 1, all margins are 1 at t = 2, and 1/2 at t = 3."""
    y = torch.tensor([-1.0, 1.0] * 5, dtype=torch.float64)
    problem = Problem(y[:, None].clone(), y, Linear(), seed=0)
    F = Small(problem, torch.nn.Flatten().eval()).theta()
    trainer = for_engine(engine, trainer)
    state, g = train(trainer, problem, F)
    assert state.violations == 0
    torch.testing.assert_close(g(problem.K, problem.x), 0.5 * y)  # 1/(lambda T) with T = 2
    trainer.advance(problem, state, state.t + 1)
    assert state.violations == state.sampler.k


def test_a_step_without_a_violation_changes_nothing(engine: Engine, small: MakeSmall) -> None:
    """Without a violation, no bit of theta changes, even with momentum and weight decay."""
    for trainer in (for_engine(engine, Alg1(300, LAM)), for_engine(engine, Alg2(300, LAM))):
        s = small(0)
        state, quiet = trainer.start(s.problem, F := s.theta(2e-3)), 0
        for _ in range(299):
            before, violations = parameters(F.network), state.violations
            trainer.advance(s.problem, state, state.t + 1)
            moved = not torch.equal(before, parameters(F.network))
            assert moved == (state.violations > violations)
            quiet += not moved
        assert quiet > 10


def test_algorithm_2_with_the_objective_of_algorithm_1(small: MakeSmall) -> None:
    s, T, lr = small(0), 150, 2e-3
    theirs = Transcribed(s, lr)
    data, y, alpha = theirs.data, s.problem.y, torch.zeros(len(s.problem.y), dtype=torch.float64)
    alpha[theirs.draw(1)[0]] = 1
    for t in range(2, T + 1):
        i = theirs.draw(t)[0]
        terms = [(float(alpha[j] * y[j]), data.F(j).detach()) for j in range(data.m) if alpha[j] != 0]
        total = sum(a * theirs.K(z, data.F(i)) for a, z in terms)
        if y[i] / (LAM * (t - 1)) * total < 1:
            reference.descend(theirs.optimizer, -y[i] / (LAM * (t - 1)) * total)
            alpha[i] += 1
    state, g = train(Alg2(T, LAM, objective="alg1"), s.problem, F := s.theta(lr))
    assert torch.equal(dense(s.problem, state), alpha)
    assert_same_model(s, theirs, F, g, alpha, T)
