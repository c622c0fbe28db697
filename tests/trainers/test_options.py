"""Options beyond the paper's experiments: refreshed features, budgets, projection, and linear Pegasos."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nsvm_cli.errors import InputError
from nsvm_cli.models.kernels import RBF, Biased, Kernel, Linear
from nsvm_cli.models.losses import Binary, EpsilonInsensitive, Loss, Residual, Squared, SquaredHinge
from nsvm_cli.trainers.alg1 import MAINTENANCE, NO_SAMPLE, PLACES, Alg1, Terms, merging, projection
from nsvm_cli.trainers.alg2 import Alg2
from nsvm_cli.trainers.alg3 import Alg3
from nsvm_cli.trainers.pegasos import LinearPegasos, Pegasos
from tests import reference
from tests.conftest import LOSSES, MakeSmall, parameters, train
from tests.trainers.test_against_paper import Transcribed


def test_with_refresh_every_1_stored_evaluations_are_fresh(small: MakeSmall) -> None:
    s = small(0, loss=LOSSES["three classes"])
    trainer, F = Alg1(40, 0.01, refresh_every=1), s.theta(2e-3)
    state = trainer.start(s.problem, F)
    while state.t < trainer.total:
        trainer.step(s.problem, state)
        torch.testing.assert_close(state.z, F(s.problem[state.i.numpy()][0]))
    assert F.theta_steps > 5


@pytest.mark.parametrize("kind", ["two classes", "three classes"])
@pytest.mark.parametrize("how", sorted(MAINTENANCE))
def test_a_budget_is_kept(small: MakeSmall, how: str, kind: str) -> None:
    s = small(0, loss=LOSSES[kind])
    state, g = train(Alg1(100, 0.01, budget=5, maintenance=how), s.problem, s.theta(2e-3))
    assert len(g.alpha) <= state.support_vectors == len(state.z) == 5
    assert state.violations > 10


@pytest.mark.parametrize("kept", [6, 5])
def test_a_method_that_removes_no_terms_or_too_few_values_is_refused(
    kept: int, small: MakeSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAINTENANCE, "none", lambda K, terms: (terms.i[:kept], terms.z, terms.alpha))
    s, got = small(0), f"got {kept} i, 6 z and 6 alpha$"
    with pytest.raises(InputError, match=rf"algorithm.maintenance=none: expected fewer than 6 terms, {got}"):
        train(Alg1(100, 0.01, budget=5, maintenance="none"), s.problem, s.theta(2e-3))


@pytest.mark.parametrize(("how", "kind"), [*zip(sorted(MAINTENANCE), sorted(LOSSES), strict=True)])
def test_a_budget_that_is_never_reached_changes_no_bit(small: MakeSmall, how: str, kind: str) -> None:
    s = small(0, loss=LOSSES[kind])
    plain, ample = Alg1(30, 0.01, batch_size=2), Alg1(30, 0.01, batch_size=2, budget=60, maintenance=how)
    (_, g), (_, f) = (train(t, s.problem, s.theta(2e-3)) for t in (plain, ample))
    for a, b in ((g.i, f.i), (g.z, f.z), (g.alpha, f.alpha)):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_merging_several_classes_degrades_f_least_among_its_places() -> None:
    """An exhaustive search over q and h finds no merge that changes f less in the norm of H."""
    generator = torch.Generator().manual_seed(1)
    z, alpha = (torch.randn(6, n, generator=generator, dtype=torch.float64) for n in (2, 3))
    K, p = RBF(0.3), int((alpha**2).sum(1).argmin())
    merged = merging(K, terms := Terms(torch.arange(6), z.clone(), alpha.clone()))
    assert merged.i.tolist().count(NO_SAMPLE) == 1

    def degradation(points: torch.Tensor, a: torch.Tensor) -> float:
        points, a = torch.cat([terms.z, points]), torch.cat([alpha, -a])
        return float((a * (K(points, points) @ a)).sum())

    least = float("inf")
    for q in {*range(6)} - {p}:
        for h in torch.linspace(0, 1, PLACES).double():
            point = (h * z[p] + (1 - h) * z[q])[None]
            joint = K(point, z[[p, q]]) @ alpha[[p, q]]
            rest = [j for j in range(6) if j not in (p, q)]
            least = min(least, degradation(torch.cat([z[rest], point]), torch.cat([alpha[rest], joint])))
    assert degradation(merged.z, merged.alpha) == pytest.approx(least, rel=1e-9)


TRANSCRIBED = {**LOSSES, "real targets": Residual(EpsilonInsensitive(reference.EPSILON))}


@pytest.mark.parametrize("loss", TRANSCRIBED.values(), ids=TRANSCRIBED)
@pytest.mark.parametrize(
    ("trainer", "transcription"),
    [
        (Alg3(10, 0.1, batch_size=2, objective="derived"), reference.derived_algorithm_3),
        (Alg2(10, 0.1, batch_size=2, projection="exact"), reference.projected_algorithm_2),
    ],
    ids=["derived", "exact"],
)
def test_algorithms_2_and_3_as_derived(
    trainer: Alg2 | Alg3, transcription: Any, loss: Loss, small: MakeSmall
) -> None:
    """Algorithm 2 projects f exactly. Algorithm 3 has the derived objective, with f after its update."""
    s = small(0, m=8, loss=loss)
    literal = Transcribed(s, 2e-3, trainer.k, trainer.lam)
    alpha = transcription(literal.problem, literal.optimizer, trainer.steps)
    _, g = train(trainer, s.problem, F := s.theta(2e-3))
    theta, z = parameters(literal.network), torch.stack(literal.features())
    torch.testing.assert_close(parameters(F.network), theta, rtol=0, atol=1e-8)
    assert (theta - parameters(s.network)).abs().max() > 1e-3
    expected = s.problem.K(z, z) @ alpha / (trainer.lam * trainer.steps)
    torch.testing.assert_close(g(s.problem.K, z), expected, rtol=1e-6, atol=1e-6)


def test_a_coefficient_projected_to_0_can_be_restored(small: MakeSmall) -> None:
    """With a linear kernel, projection sets alpha_j to 0 if z_j is 0, but j stays in the support."""
    s = small(0, K=Linear())
    state = (trainer := Alg2(9, projection="exact")).start(s.problem, F := s.theta())
    state.coefficients.alpha[state.coefficients.support] = 0
    again = trainer.restore(s.problem, F, state.state_dict())
    assert again.coefficients.support.tolist() == state.coefficients.support.tolist()


def test_projection_is_the_nearest_function_of_the_span() -> None:
    z = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    alpha = torch.tensor([1.0, -2.0, 0.1, 1.5, -1.0, 2.0], dtype=torch.float64)
    points = torch.linalg.cholesky(RBF(0.5)(z, z))  # vectors with the inner products of the terms in H
    kept = [0, 1, 3, 4, 5]
    expected = torch.linalg.lstsq(points[kept].mT, (points.mT @ alpha)[:, None]).solution[:, 0]
    found = projection(RBF(0.5), Terms(torch.arange(6), z, alpha))
    assert found.i.tolist() == kept
    torch.testing.assert_close(found.alpha, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", sorted(LOSSES))
def test_algorithm_1_refreshed_at_every_move_is_algorithm_2_with_its_objective(
    small: MakeSmall, kind: str
) -> None:
    """With ``objective="alg1"``, Algorithm 2 differentiates only with respect to the features of x_i_t."""
    s = small(0, loss=LOSSES[kind])
    runs = (Alg1(25, 0.05, 2, refresh_every=1), Alg2(25, 0.05, 2, objective="alg1"))
    (ours, f), (theirs, g) = (train(t, s.problem, s.theta(2e-3)) for t in runs)
    z = ours.F(s.problem.x)
    assert ours.violations == theirs.violations > 5
    torch.testing.assert_close(parameters(ours.F.network), parameters(theirs.F.network), rtol=0, atol=1e-10)
    torch.testing.assert_close(f(s.problem.K, z), g(s.problem.K, z), rtol=0, atol=1e-10)
    stale, _ = train(Alg1(25, 0.05, 2), s.problem, s.theta(2e-3))
    assert (parameters(stale.F.network) - parameters(ours.F.network)).abs().max() > 1e-6


@pytest.mark.parametrize(
    ("loss", "K", "k"),
    [
        *((loss, Linear(), None) for loss in LOSSES.values()),
        *((loss, Biased(Linear()), 4) for loss in LOSSES.values()),
        *((Binary(SquaredHinge()), Linear(), None), (Residual(Squared()), Linear(), 4)),
    ],
    ids=repr,
)
def test_linear_pegasos_is_pegasos(small: MakeSmall, K: Kernel, k: int | None, loss: Loss) -> None:
    s = small(0, K=K, loss=loss)
    (ours, f), (theirs, g) = (train(t(60, 0.01, k), s.problem, s.theta()) for t in (LinearPegasos, Pegasos))
    z = s.theta()(s.problem.x)
    torch.testing.assert_close(f(K, z), g(K, z), rtol=1e-12, atol=1e-12)
    norm, expected = ((e.alpha * (K(e.z, e.z) @ e.alpha)).sum() / e.scale**2 for e in (f, g))
    torch.testing.assert_close(norm, expected, rtol=1e-9, atol=0)
    assert ours.violations == theirs.violations > 5
