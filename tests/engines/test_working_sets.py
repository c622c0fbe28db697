"""The working-set solver compared with scikit-learn's SVC and SVR, and with the reference SMO."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("numba")

from sklearn.svm import SVC, SVR

from nsvm_cli.engines.numba.kernel_rows import Rows
from nsvm_cli.engines.numba.working_sets import WorkingSets
from nsvm_cli.models.composed_kernels import build_kernel, learnt, with_initial_parameters
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.trainers.dual import Dual, DualState, classification, regression, smo_step

KERNELS: list[dict[str, Any]] = [
    {"name": "rbf", "gamma": 0.3},
    {"name": "rbf", "gamma": 0.05},
    {"name": "laplacian", "gamma": 0.2},
    {"name": "linear"},
    {"name": "polynomial", "degree": 2, "gamma": 0.1},
    {"name": "rbf", "normalize": True, "bias": True},
    {"name": "polynomial", "degree": 3, "gamma": 0.3, "normalize": True},
]

RADIAL = 3
"""Number of radial kernels, which come first. With other kernels, a large C would take millions of steps."""

LARGE = 160
"""First seed of problems with up to 5,000 samples, for which LIBSVM would take minutes if C were far above
100 or the kernel were not radial."""

SEEDS = [pytest.param(seed, marks=() if seed < 28 else pytest.mark.thorough) for seed in range(200)]


def draw(seed: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, np.ndarray, np.ndarray, Any]:
    """Return features with duplicates and a constant column, labels, C of each sample, and the generator."""
    rng = np.random.default_rng(seed)
    m, n = int(rng.integers(2, 150 if seed < LARGE else 5000)), int(rng.choice([1, 2, 7, 30]))
    z = rng.standard_normal((m, n))
    z[rng.integers(0, m, m // 10)] = z[0]
    z[:, rng.integers(0, n)] = 3.0
    y = np.where(np.sin(2 * z).sum(1) + rng.standard_normal(m) > 1, 1.0, -1.0)
    y[:2] = 1, -1
    most = 1 if kernel_number(seed) >= RADIAL else 6 if seed < LARGE else 2
    C = 10 ** rng.uniform(-3, most) * (rng.uniform(0.2, 2, m) if seed % 3 == 0 else np.ones(m))
    return torch.from_numpy(z).to(dtype), y, C, rng


def kernel_number(seed: int) -> int:
    return seed % (len(KERNELS) if seed < LARGE else RADIAL)


def solved(dual: Dual, K: Kernel, z: Tensor, tol: float = 1e-6, budget: int = 100) -> DualState:
    return iterated(WorkingSets(dual, Rows(K, z, budget), tol))


def iterated(solver: WorkingSets, most: int = 10_000) -> DualState:
    """Return the state once the solver has ended, or after ``most`` iterations."""
    state = solver.dual.start()
    while not state.done and state.iterations < most:
        solver.step(state)
    return state


def beta_of(dual: Dual, state: DualState, m: int) -> np.ndarray:
    """Return the coefficient sum_k y_k a_k of each sample."""
    return np.bincount(dual.s, dual.y * state.alpha, minlength=m)[:m]


def assert_equal_to(machine: Any, decide: Any, dual: Dual, state: DualState, G: np.ndarray) -> None:
    """Check that the dual value and the decision values equal scikit-learn's, and that the gap is small."""
    theirs = np.zeros(len(G))
    theirs[machine.support_] = machine.dual_coef_[0]
    other = replace(state, alpha=np.maximum(dual.y * theirs[dual.s], 0), g=G @ theirs)
    ours = replace(state, g=G @ beta_of(dual, state, len(G)))
    assert state.gap < 1e-6
    least = pytest.approx(dual.value(other), rel=1e-6, abs=1e-9)
    assert dual.value(state) >= dual.value(other) or dual.value(state) == least
    assert gap(dual, ours) < 2e-6
    if gap(dual, other) < 1e-5:  # not for large C, since LIBSVM uses float32
        assert dual.value(state) == least
        np.testing.assert_allclose(ours.g + dual.bias_and_gap(ours)[0], decide(G), atol=1e-3)


def gap(dual: Dual, state: DualState) -> float:
    *_, first, last = dual.optimality(state)
    return last - first


@pytest.mark.parametrize("seed", SEEDS)
def test_classification_is_that_of_scikit_learn(seed: int) -> None:
    z, y, C, _ = draw(seed)
    K = build_kernel(KERNELS[kernel_number(seed)])
    G = K(z, z).numpy()
    machine = SVC(kernel="precomputed", tol=1e-6, C=1).fit(G, y, sample_weight=C)
    dual = classification(y, C)
    assert_equal_to(machine, machine.decision_function, dual, solved(dual, K, z), G)


@pytest.mark.parametrize("seed", SEEDS)
def test_regression_is_that_of_scikit_learn(seed: int) -> None:
    z, _, C, rng = draw(seed)
    K = build_kernel(KERNELS[kernel_number(seed)])
    G, t = K(z, z).numpy(), np.sin(z.numpy()).sum(1) + 0.3 * rng.standard_normal(len(z))
    machine = SVR(kernel="precomputed", tol=1e-6, epsilon=0.1).fit(G, t, sample_weight=C)
    dual = regression(t, 0.1, C)
    assert_equal_to(machine, machine.predict, dual, solved(dual, K, z), G)


@pytest.mark.parametrize("seed", SEEDS)
def test_squared_hinge_is_scikit_learns_svc_with_another_diagonal(seed: int) -> None:
    """The dual problem is the one of C-SVC without upper bounds, and with 1/(2C) added to K(z_j, z_j)."""
    z, y, C, _ = draw(seed)
    K, C = build_kernel(KERNELS[kernel_number(seed)]), np.minimum(C, 10)
    G, D = K(z, z).numpy(), 1 / (2 * C)
    dual = classification(y, C, curvature=2.0)
    state = solved(dual, K, z)
    machine = SVC(kernel="precomputed", tol=1e-6, C=1e9).fit(G + np.diag(D), y)
    beta = beta_of(dual, state, len(G))
    g = G @ beta + dual.bias_and_gap(state)[0]
    np.testing.assert_allclose(g + D * beta, machine.decision_function(G + np.diag(D)), atol=1e-3)
    xi = np.maximum(0, 1 - y * g)
    primal = beta @ G @ beta / 2 + (C * xi**2).sum()
    value, gap_of_values = dual.value(state), dual.bias_and_gap(state)[1]
    assert primal == pytest.approx(value, rel=1e-4, abs=1e-6)
    assert primal - value == pytest.approx(gap_of_values, abs=1e-6 * primal)


@pytest.mark.parametrize("seed", SEEDS)
def test_squared_loss_is_kernel_ridge_regression_with_a_bias(seed: int) -> None:
    """The coefficients and the bias solve a system of linear equations."""
    z, _, C, rng = draw(seed)
    K, C = build_kernel(KERNELS[kernel_number(seed)]), np.minimum(C, 10)
    G, t, one = K(z, z).numpy(), rng.standard_normal(len(z)), np.ones((len(z), 1))
    dual = regression(t, 0.0, C, curvature=1.0)
    state = solved(dual, K, z)
    system = np.block([[G + np.diag(1 / C), one], [one.T, np.zeros((1, 1))]])
    *beta, bias = np.linalg.solve(system, np.append(t, 0))
    np.testing.assert_allclose(beta_of(dual, state, len(G)), beta, atol=1e-4 * C.max())
    assert dual.bias_and_gap(state)[0] == pytest.approx(bias, abs=1e-4)


@pytest.mark.parametrize("seed", range(8))
def test_working_sets_equal_smo_by_the_book(seed: int) -> None:
    z, y, C, rng = draw(seed)
    bias = seed % 2 == 0
    K = build_kernel(KERNELS[kernel_number(seed)])
    G = K(z, z).numpy()
    for dual in (
        classification(y, np.minimum(C, 10), bias),
        regression(y + rng.standard_normal(len(y)), 0.1, np.minimum(C, 10), bias),
        classification(y, np.minimum(C, 10), bias, curvature=2.0),
        regression(y + rng.standard_normal(len(y)), 0.0, np.minimum(C, 10), bias, curvature=1.0),
    ):
        literal = dual.start()
        whole = np.pad(G, (0, 0 if bias else 1))
        while not literal.done and literal.steps < 20_000:
            smo_step(dual, literal, whole, 1e-6)
        state = solved(dual, K, z)
        assert max(literal.gap, state.gap) < 1e-6
        assert dual.value(state) == pytest.approx(dual.value(literal), rel=1e-6, abs=1e-9)
        assert dual.bias_and_gap(state) == pytest.approx(dual.bias_and_gap(literal), abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [3, 31, 100])
@pytest.mark.parametrize("section", KERNELS, ids=str)
def test_a_row_has_the_same_bits_whatever_is_computed_with_it(
    section: dict[str, Any], n: int, dtype: torch.dtype
) -> None:
    z = torch.randn(203, n, generator=torch.Generator().manual_seed(n)).to(dtype)
    rng = np.random.default_rng(n)
    rows = Rows(build_kernel(section), z, 1)
    first = np.zeros((204, rows.width), rows.dtype)
    rows.formula.write(np.arange(203), rows.formula.columns, first, np.arange(203))
    for size in (1, 2, 3, 7, 64, 130, 200):
        samples = rng.permutation(203)[:size]
        out = np.zeros((size, rows.width), rows.dtype)
        rows.formula.write(samples, rows.formula.columns, out, np.arange(size))
        assert (out[:, :203] == first[samples, :203]).all()
    K = build_kernel(section)(z.double(), z.double()).numpy()
    np.testing.assert_allclose(first[:203, :203], K, rtol=1e-4, atol=1e-5 * np.abs(K).max())


@pytest.mark.parametrize("name", ["rbf", "laplacian", "linear"])
def test_rows_of_a_kernel_with_learnt_factors(name: str) -> None:
    z = torch.randn(70, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    K = with_initial_parameters(build_kernel({"name": name, "ard": True}), z)
    rho = torch.tensor([0.5, -1.0, 0.1], dtype=torch.float64)
    learnt(K)["ard"].data += rho
    rows = Rows(K, z, 1)
    out = np.zeros((70, rows.width), rows.dtype)
    rows.formula.write(np.arange(70), rows.formula.columns, out, np.arange(70))
    factors = rho.exp()
    expected = build_kernel({"name": name, "gamma": 1 / 3} if name != "linear" else {"name": name})
    np.testing.assert_allclose(out[:, :70], expected(z * factors, z * factors).numpy(), atol=1e-12)


@pytest.mark.parametrize("n", [5, 40, 200])
def test_rows_of_distant_clusters_keep_their_digits(n: int) -> None:
    z = torch.randn(203, n, generator=torch.Generator().manual_seed(n))
    z[::2] += 300
    z[1::2] -= 300
    y = np.sign(z[:, 0].numpy() - np.where(np.arange(203) % 2, -300, 300))
    K, dual = build_kernel({"name": "rbf", "gamma": 1 / n}), classification(y, np.full(203, 100.0))
    G, rows = K(z.double(), z.double()).numpy(), Rows(K, z, 1)
    first = np.zeros((203, rows.width), rows.dtype)
    rows.formula.write(np.arange(203), rows.formula.columns, first, np.arange(203))
    np.testing.assert_allclose(first[:, :203], G, rtol=0, atol=1e-4)
    state = solved(dual, K, z, 1e-3)
    assert state.gap < 1e-3
    assert gap(dual, replace(state, g=G @ beta_of(dual, state, 203))) < 2e-3


@pytest.mark.parametrize(
    ("name", "n", "dtype"),
    [
        *(("rbf", 5, torch.float64), ("rbf", 40, torch.float32)),
        *(("laplacian", 5, torch.float64), ("laplacian", 200, torch.float32)),
    ],
)
def test_neither_the_cache_nor_an_interruption_changes_bits(name: str, n: int, dtype: torch.dtype) -> None:
    z = torch.randn(2500, n, generator=torch.Generator().manual_seed(1)).to(dtype)
    y = np.sign(np.sin(3 * z[:, 0].double().numpy()) + z[:, 1].double().numpy() * z[:, 2].double().numpy())
    dual, K = classification(y, np.full(2500, 10.0)), build_kernel({"name": name, "gamma": 1 / n})
    state = solved(dual, K, z, 1e-3)
    assert state.gap < 1e-3
    rows = Rows(K, z, 10 if dtype == torch.float32 else 20)
    tiny = WorkingSets(dual, rows, 1e-3)
    half = iterated(tiny, state.iterations // 2)
    resumed = copy.deepcopy(half)
    for solver, other in ((tiny, half), (WorkingSets(dual, Rows(K, z, 100), 1e-3), resumed)):
        while not other.done:
            solver.step(other)
        for name, value in vars(state).items():
            np.testing.assert_array_equal(getattr(other, name), value, name)
    assert rows.most == 1024


@pytest.mark.parametrize(
    ("C", "dtype"),
    [
        *((1e6, torch.float32), (1e12, torch.float64), (1e98, torch.float64)),
        *((1e305, torch.float32), (1e305, torch.float64)),
    ],
)
def test_extreme_problems_end(C: float, dtype: torch.dtype) -> None:
    z, y, _, _ = draw(5, dtype)
    for section in KERNELS[:4]:
        dual = classification(y, np.full(len(y), C))
        state = iterated(WorkingSets(dual, Rows(build_kernel(section), z, 1), 1e-3), most=8)
        assert ((state.alpha >= 0) & (state.alpha <= C)).all()


def test_errors_of_rows_in_float32_are_found_and_removed() -> None:
    z = torch.randn(800, 30, generator=torch.Generator().manual_seed(2))
    y = np.where(z[:, 0].numpy() * z[:, 1].numpy() > 0.3, 1.0, -1.0)
    dual, K = classification(y, np.full(800, 1e5)), build_kernel({"name": "rbf", "gamma": 1e-3})
    rough, exact = solved(dual, K, z, 1e-3), solved(dual, K, z.double(), 1e-3)
    assert max(rough.gap, exact.gap) < 1e-3
    assert rough.refreshed > 0
    assert dual.value(rough) == pytest.approx(dual.value(exact), rel=1e-5)
    g = K(z.double(), z.double()).numpy() @ beta_of(dual, rough, 800)
    assert gap(dual, replace(rough, g=g)) < 2e-3
