"""Every compiled term against the definition that it speeds up."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

import numba
from numba.core.codegen import JITCPUCodegen

from nsvm_cli.engines.numba import columns as compiled_columns
from nsvm_cli.engines.numba import kernels as compiled_kernels
from nsvm_cli.engines.numba import losses as compiled_losses
from nsvm_cli.engines.numba import masks as compiled_masks
from nsvm_cli.engines.numba import networks as compiled_networks
from nsvm_cli.engines.numba import objectives as compiled_objectives
from nsvm_cli.engines.numba import optimizers as compiled_optimizers
from nsvm_cli.engines.numba.compiler import LinkedCode
from nsvm_cli.engines.numba.jit import OPTIONS
from nsvm_cli.engines.numba.theta import Theta, kernel_form
from nsvm_cli.models import objectives as definitions
from nsvm_cli.models.dropout import Masks, dropout_masks
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF, Kernel
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.tasks import MulticlassClassification
from tests.conftest import sloped


class Called:
    """The functions of a module, compiled for calls from Python; its constants are as they are."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.module, name)
        if not callable(function):
            return function
        called = numba.njit(**OPTIONS)(lambda *arguments: function(*arguments))
        setattr(self, name, called)
        return called


columns: Any = Called(compiled_columns)
kernels: Any = Called(compiled_kernels)
losses: Any = Called(compiled_losses)
masks: Any = Called(compiled_masks)
networks: Any = Called(compiled_networks)
objectives: Any = Called(compiled_objectives)
optimizers: Any = Called(compiled_optimizers)


@pytest.fixture(autouse=True)
def linked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile as the process does that compiles for runs."""
    monkeypatch.setattr(JITCPUCodegen, "_library_class", LinkedCode)


KERNELS = [RBF(0.7), RBF(None)]


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("dtype", "lowest", "error"), [(np.float32, -126, 3e-7), (np.float64, -1022, 1e-15)])
def test_exp2(dtype: Any, lowest: float, error: float) -> None:
    x = -np.random.default_rng(0).exponential(20, (1, 10_000)).astype(dtype)
    powers = exp2(x)
    exact = np.exp2(x.astype(np.longdouble))
    far = x <= lowest
    assert np.abs(powers - exact)[~far].max() < error
    assert (np.abs(powers / exact - 1)[~far] < 2 * error).all()
    edges = exp2(np.array([[0.0, -np.inf, np.nan, -1e30, -1.0, lowest]], dtype))
    np.testing.assert_array_equal(edges, np.array([[1, 0, np.nan, 0, 0.5, 0]], dtype))


def exp2(x: np.ndarray) -> np.ndarray:
    """2^x, as the kernel without a bias has it."""
    powers, K = x.copy(), kernel_form(RBF(1.0), torch.from_numpy(x))
    kernels.of_exponents(K, powers, 0)
    return powers


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("K", KERNELS, ids=str)
def test_kernels(K: Kernel, normalized: bool) -> None:
    a, b = normal(1, 5, 4) + 3, normal(2, 1000, 4) + 3
    form = kernel_form(K, a, normalized)
    K_ab = K(a, b)
    np.testing.assert_allclose(kernels.values(form, a.numpy(), b.numpy()), K_ab, rtol=1e-12, atol=1e-13)
    for C in (1, 3):
        w = normal(3, 1000, C)
        np.testing.assert_allclose(kernels.sums(form, a.numpy(), b.numpy(), w.numpy()), K_ab @ w, rtol=1e-10)
        b_columns = columns.columns_of(b[:600].numpy(), 1000)
        for j in range(600, 1000):
            columns.set_column(b_columns, j, b[j].numpy())
        sums = columns.column_sums(form, a.numpy(), b_columns, w.numpy())
        np.testing.assert_allclose(sums, K_ab @ w, rtol=1e-10)
    G = normal(4, 5, 1000)
    by_a = kernels.gradient(form, a.numpy(), b.numpy(), K_ab.numpy(), G.numpy())
    expected = Kernel.gradient(K, a, b, K_ab, G)
    np.testing.assert_allclose(by_a, expected, rtol=1e-9, atol=1e-11)
    by_a = np.zeros((5, 4))
    for block, (first, last) in enumerate([(0, kernels.COLUMNS), (kernels.COLUMNS, 1000)]):
        K_block = columns.column_values(form, a.numpy(), b_columns, block, last - first)
        G_block = G[:, first:last].numpy().copy()
        columns.column_gradient(form, a.numpy(), b_columns, block, K_block, G_block, by_a)
    np.testing.assert_allclose(by_a, expected, rtol=1e-9, atol=1e-11)


def test_float32_far_from_0() -> None:
    """Features that are far from 0 keep the digits of their distances."""
    a, b = (normal(seed, 300, 4).float() + 1000 for seed in (1, 2))
    for far, error in ((0, 5e-6), (1000, 2e-5)):  # of one of them from the others
        b[0] += far
        values = kernels.values(kernel_form(RBF(1.0), a), a.numpy(), b.numpy())
        exact = RBF(1.0)(a.double(), b.double())
        np.testing.assert_allclose(values, exact, atol=error)
        fixed = columns.columns_of(b.numpy(), 300)
        centred = columns.centre(kernel_form(RBF(1.0), a), a.numpy(), fixed, 300)
        values = columns.column_values(kernel_form(RBF(1.0), a), centred, fixed, 0, 300)
        np.testing.assert_allclose(values, exact, atol=error)


@pytest.mark.parametrize("rows", [1, 4])
def test_float32_of_few_samples(rows: int) -> None:
    """Few samples keep all digits of their distances, wherever they are, and of the gradient."""
    spread = 1e5 * normal(1, 500, 4)
    a, b = spread[:rows].float(), spread.float()
    b[:rows] = (a.double() + 0.3 * normal(2, rows, 4)).float()
    K, G = RBF(0.5), normal(3, rows, 500)
    form, exact = kernel_form(K, a), K(a.double(), b.double())
    values = kernels.values(form, a.numpy(), b.numpy())
    np.testing.assert_allclose(values, exact, rtol=1e-5, atol=1e-30)
    by_a = kernels.gradient(form, a.numpy(), b.numpy(), values, G.float().numpy())
    expected = Kernel.gradient(K, a.double(), b.double(), exact, G)
    np.testing.assert_allclose(by_a, expected, rtol=1e-5, atol=1e-30)


SHAPES = {"mlp": (4,), "cnn": (3, 18, 21)}


@pytest.mark.parametrize(("name", "dropout"), [("mlp", 0.0), ("mlp", 0.3), ("cnn", 0.3)])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 2 * networks.ROWS + 50])
def test_network(name: str, dropout: float, shared: bool, normalize: bool, rows: int) -> None:
    widths = {"channels": (2, 7)} if name == "cnn" else {"widths": [7, 6, 5]}
    output = {"dropout": dropout, "shared_dropout": shared, "normalize": normalize, "scale": 1.4}
    net = build_network({"name": name, **widths, **output}, SHAPES[name], seed=1).double()
    with torch.no_grad():
        [*net.parameters()][-1].sub_(0.5 if name == "mlp" else 0.2)
    F, x = FeatureMap(net, SGD(0.1), dropout_seed=3), normal(5, rows, *SHAPES[name])
    x[: rows // 2, ..., : SHAPES[name][-1] // 2] = 0  # so that pixels of a square are equally large
    theta = Theta.of(F, 10, x)
    n = theta.width
    passed, z = networks.room_for(theta.network, rows + 100), np.empty((rows, n))
    of_x = theta.network, x.flatten(1).numpy(), passed, z
    networks.forward(*of_x, None, 0)
    np.testing.assert_allclose(z, F(x), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(networks.features(*of_x[:2]), F(x), rtol=1e-12, atol=1e-14)
    i, columns = np.arange(rows)[::-1][: networks.ROWS], np.empty((n, networks.ROWS + 1))
    networks.feature_columns(*of_x[:2], i, networks.room_for(theta.network, networks.ROWS), columns)
    np.testing.assert_allclose(columns[:, : len(i)].T, F(x)[i.copy()], rtol=1e-12, atol=1e-14)
    net.train(dropout > 0)
    i_of_x = np.arange(rows)[::-1] * 5
    for known in (rows // networks.ROWS * networks.ROWS, 0):
        drawn = masks.masks_for(theta.network, 7, i_of_x)
        networks.forward(*of_x, drawn, known)
        with dropout_masks(Masks(3, 7, i_of_x)):
            expected = net(x)
        np.testing.assert_allclose(z, expected.detach(), rtol=1e-12, atol=1e-14)
    assert rows < 10 or name == "cnn" or (expected == 0).all(1).any()  # features of 0 have no direction
    by_z = normal(6, rows, n)
    expected.backward(by_z)
    by_theta = networks.backward(theta.network, passed, by_z.numpy())
    gradient = torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])
    np.testing.assert_allclose(by_theta, gradient, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("kind", ["two classes", "three classes", "one class"])
def test_alignment(kind: str, centred: bool) -> None:
    y = torch.arange(8.0).double() % 3
    if kind != "three classes":
        y = torch.ones(8).double() if kind == "one class" else y % 2 * 2 - 1
    classes = 3 if kind == "three classes" else 1
    c = MulticlassClassification(("a", "b", "c")).code(y) if classes == 3 else y
    z = normal(9, 8, 4)
    K = RBF(0.5)(z, z)
    value, slope = objectives.alignment(K.numpy(), y.numpy(), classes, centred)
    expected = sloped(lambda K: definitions.alignment(K, c, centred), K)
    np.testing.assert_allclose(value, expected[0], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(slope, expected[1], rtol=1e-10, atol=1e-14)
    same = torch.ones(8, 8).double()
    value, slope = objectives.alignment(same.numpy(), y.numpy(), classes, True)
    assert value == 0
    assert not slope.any()
