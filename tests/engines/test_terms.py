"""Compiled kernels, networks and objectives compared with the definitions that they speed up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

import numba
from numba.core import config
from numba.core.codegen import JITCPUCodegen

from nsvm_cli.engines.numba import kernels, networks, objectives
from nsvm_cli.engines.numba.code import code_folder
from nsvm_cli.engines.numba.compiler import LinkedCode
from nsvm_cli.engines.numba.forms import kernel_form, network_form
from nsvm_cli.engines.numba.jit import JIT_OPTIONS
from nsvm_cli.models import objectives as definitions
from nsvm_cli.models.dropout import Masks, dropout_masks
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF, Kernel
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.tasks import MulticlassClassification
from tests.conftest import sloped


def called(function: Any) -> Any:
    """Compile a function for calls from Python, and cache its code in the folder of the units."""
    compiled: Any = numba.njit(**JIT_OPTIONS)(function)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(config, "CACHE_DIR", str(code_folder() / "terms"))
        compiled.enable_caching()
    return compiled


of_exponents = called(lambda *arguments: kernels.of_exponents(*arguments))
alignment = called(lambda *arguments: objectives.alignment(*arguments))


class Linked(LinkedCode):
    """Code that is compiled as in the compiling process. Code loaded from the cache contains no functions."""

    @property
    def _is_called_from_python(self) -> bool:
        return super()._is_called_from_python or not [*self._final_module.functions]


@pytest.fixture(autouse=True)
def linked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JITCPUCodegen, "_library_class", Linked)


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("dtype", "lowest", "error"), [(np.float32, -126, 3e-7), (np.float64, -1022, 1e-15)])
def test_exp2(dtype: Any, lowest: float, error: float) -> None:
    x = -np.random.default_rng(0).exponential(20, (1, 10_000)).astype(dtype)
    powers, edges = x.copy(), np.array([[0.0, -np.inf, np.nan, -1e30, -1.0, lowest]], dtype)
    for exponents in (powers, edges):
        of_exponents(exponents, 0)
    exact = np.exp2(x.astype(np.longdouble))
    far = x <= lowest
    assert np.abs(powers - exact)[~far].max() < error
    assert (np.abs(powers / exact - 1)[~far] < 2 * error).all()
    np.testing.assert_array_equal(edges, np.array([[1, 0, np.nan, 0, 0.5, 0]], dtype))


@called
def terms(K: Any, a: Any, b: Any, G: Any, blocks: Any, centred: bool, w: Any) -> Any:
    """Return K(a_i, b_j), and the gradient and sums of these values, computed by rows and then by columns.

    The gradient of sum_ij G_ij K(a_i, b_j) is with respect to a. The sums are sum_j w_j K(a_i, b_j). By
    columns, ``blocks`` replaces G, and only the values of the last block are returned.
    """
    K_ab = kernels.values(K, a, b)
    by_rows = K_ab, kernels.gradient(K, a, b, K_ab, G), kernels.sums(K, a, b, w)
    kept, by_a = kernels.columns_of(b[:200], len(b)), np.zeros_like(a)
    for j in range(200, len(b)):
        kernels.set_column(kept, j, b[j])
    if centred:
        a = kernels.centre(K, a, kept, len(b))
    for block in range(len(blocks)):
        K_block = kernels.column_values(K, a, kept, block, blocks[block].shape[1])
        kernels.column_gradient(K, a, kept, block, K_block, blocks[block], by_a)
    return by_rows, (K_block, by_a, kernels.column_sums(K, a, kept, w))


def terms_of(
    K: Kernel, a: Any, b: Any, G: Any, w: Any, centred: bool = False, normalized: bool = False
) -> Any:
    form = kernel_form(K, a, normalized)
    return terms(form, *(part.numpy() for part in (a, b, G)), blocks(G), centred, w.numpy())


def blocks(G: torch.Tensor) -> tuple[np.ndarray, ...]:
    return tuple(block.numpy().copy() for block in G.split(kernels.COLUMNS, dim=1))


@pytest.mark.parametrize(("K", "normalized"), [(RBF(0.7), False), (RBF(None), True)])
def test_kernels(K: Kernel, normalized: bool) -> None:
    a, b, G = normal(1, 5, 4) + 3, normal(2, 1000, 4) + 3, normal(4, 5, 1000)
    K_ab = K(a, b)
    for w in (normal(3, 1000, C) for C in (1, 3)):
        by_rows, by_columns = terms_of(K, a, b, G, w, normalized=normalized)
        for (values, by_a, sums), expected in ((by_rows, K_ab), (by_columns, K_ab[:, kernels.COLUMNS :])):
            np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-13)
            np.testing.assert_allclose(by_a, Kernel.gradient(K, a, b, K_ab, G), rtol=1e-9, atol=1e-11)
            np.testing.assert_allclose(sums, K_ab @ w, rtol=1e-10)


@pytest.mark.thorough
def test_float32_far_from_0() -> None:
    """Distances keep their digits if features are far from 0."""
    a, b = (normal(seed, 300, 4).float() + 1000 for seed in (1, 2))
    G = torch.ones(300, 300)
    for far, error in ((0, 5e-6), (1000, 2e-5)):  # shift of b_0 away from the others
        b[0] += far
        exact = RBF(1.0)(a.double(), b.double())
        for values, *_ in terms_of(RBF(1.0), a, b, G, G, centred=True):
            np.testing.assert_allclose(values, exact, atol=error)


@pytest.mark.thorough
@pytest.mark.parametrize("rows", [1, 4])
def test_float32_of_few_samples(rows: int) -> None:
    """With few samples, kernel values and gradients keep all digits, wherever the features are."""
    spread = 1e5 * normal(1, 500, 4)
    a, b = spread[:rows].float(), spread.float()
    b[:rows] = (a.double() + 0.3 * normal(2, rows, 4)).float()
    K, G = RBF(0.5), normal(3, rows, 500)
    (values, by_a, _), _ = terms_of(K, a, b, G.float(), G.float().mT.contiguous())
    exact = K(a.double(), b.double())
    np.testing.assert_allclose(values, exact, rtol=1e-5, atol=1e-30)
    expected = Kernel.gradient(K, a.double(), b.double(), exact, G)
    np.testing.assert_allclose(by_a, expected, rtol=1e-5, atol=1e-30)


SHAPES = {"mlp": (4,), "cnn": (3, 18, 21)}


@called
def passes(F: Any, x: Any, i: Any, t: int, masked: Any, grad_z: Any) -> Any:
    """Return features without dropout, features with dropout, and the gradient of the latter for ``grad_z``.

    Features without dropout are F_theta(x) from two functions, and F_theta(x_i). Dropout uses the masks of
    samples ``masked`` in step t, with and without reuse of values from the pass without dropout.
    """
    room = networks.ROWS
    passed, z = networks.room_for(F, len(x) + 100), np.empty((len(x), F.width))
    networks.forward(F, x, passed, z, 0, i, 0)
    of_i = np.empty((F.width, room + 1))
    networks.feature_columns(F, x, i, networks.room_for(F, room), of_i)
    with_masks = []
    without = z.copy(), networks.features(F, x), of_i[:, : len(i)].T
    for known in (len(x) // room * room, 0):
        networks.forward(F, x, passed, z, t, masked, known)
        with_masks.append(z.copy())
    return without, with_masks, networks.backward(F, passed, grad_z)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 2 * networks.ROWS + 50])
@pytest.mark.parametrize(
    ("name", "dropout", "shared"), [("mlp", 0.3, False), ("mlp", 0.3, True), ("cnn", 0.0, False)]
)
def test_network(name: str, dropout: float, shared: bool, rows: int, normalize: bool) -> None:
    widths = {"channels": (2, 7)} if name == "cnn" else {"widths": [7, 6, 5]}
    output = {"dropout": dropout, "shared_dropout": shared, "normalize": normalize, "scale": 1.4}
    net = build_network({"name": name, **widths, **output}, SHAPES[name], seed=1).double()
    with torch.no_grad():
        [*net.parameters()][-1].sub_(0.5 if name == "mlp" else 0.2)
    F, x = FeatureMap(net, SGD(0.1), seed=3), normal(5, rows, *SHAPES[name])
    x[: rows // 2, ..., : SHAPES[name][-1] // 2] = 0  # so that some pooled pixels are equal
    form, i = network_form(F, x.shape[1:]), np.arange(rows)[::-1].copy()
    few, masked, grad_z = i[: networks.ROWS], i * 5, normal(6, rows, form.width)
    of_x = form, x.flatten(1).numpy()
    without, with_masks, grad_theta = passes(*of_x, few, 7, masked, grad_z.numpy())
    for z, expected in zip(without, (F(x), F(x), F(x)[few]), strict=True):
        np.testing.assert_allclose(z, expected, rtol=1e-12, atol=1e-14)
    net.train(dropout > 0)
    with dropout_masks(Masks(F.dropout_seed, 7, masked)):
        expected = net(x)
    for z in with_masks:
        np.testing.assert_allclose(z, expected.detach(), rtol=1e-12, atol=1e-14)
    assert rows < 10 or name == "cnn" or (expected == 0).all(1).any()  # a case that normalisation must handle
    expected.backward(grad_z)
    gradient = torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])
    np.testing.assert_allclose(grad_theta, gradient, rtol=1e-9, atol=1e-11)


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
    same = torch.ones(8, 8).double()
    for w in (torch.empty(0).double(), torch.arange(1.0, 9.0).double()):
        value, slope = alignment(K.numpy(), y.numpy(), w.numpy(), classes, centred)
        expected = sloped(lambda K, w=w: definitions.alignment(K, c, centred, w if len(w) else None), K)
        np.testing.assert_allclose(value, expected[0], rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(slope, expected[1], rtol=1e-10, atol=1e-14)
        value, slope = alignment(same.numpy(), y.numpy(), w.numpy(), classes, True)
        assert value == 0
        assert not slope.any()
