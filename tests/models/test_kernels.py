"""Kernels compared with scikit-learn's, and their mathematical and numerical properties."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import pairwise

from nsvm_cli.errors import InputError
from nsvm_cli.models import kernels
from nsvm_cli.models.composed_kernels import build_kernel, with_initial_parameters
from nsvm_cli.models.kernels import RBF, Kernel, Laplacian, Linear, Normalized, Polynomial, kernel_sums

pytestmark = pytest.mark.usefixtures("shapes")

Points = tuple[torch.Tensor, torch.Tensor]
Settings = dict[str, object]

SETTINGS: list[Settings] = [
    {"name": "rbf", "gamma": 0.7},
    {"name": "rbf"},
    {"name": "laplacian", "gamma": 0.3},
    {"name": "laplacian"},
    {"name": "linear"},
    {"name": "polynomial", "degree": 2, "gamma": 0.5, "c": 1.5},
    {"name": "polynomial"},
]
OF: list[Settings] = [{"name": "rbf", "gamma": 0.7}, {"name": "linear", "normalize": True}]
COMPOSED: list[Settings] = [
    {"name": "sum", "of": OF},
    {"name": "sum", "of": OF, "weights": [0.5, 2.0]},
    {"name": "product", "of": [*OF, {"name": "laplacian", "bias": True}]},
]


@pytest.fixture
def points() -> Points:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(p, 7, generator=generator, dtype=torch.float64) for p in (12, 9))
    return a, b


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("settings", SETTINGS)
def test_agrees_with_scikit_learn(
    settings: Settings, few: bool, points: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_few", lambda a, b: few)
    a, b = points
    options = {{"c": "coef0"}.get(key, key): value for key, value in settings.items() if key != "name"}
    theirs = pairwise.pairwise_kernels(a, b, metric=settings["name"], **options)
    torch.testing.assert_close(build_kernel(settings)(a, b), torch.from_numpy(theirs))


def test_sums_and_products(points: Points) -> None:
    a, b = points
    parts = [build_kernel(settings)(a, b) for settings in (*OF, {"name": "laplacian", "bias": True})]
    for settings, expected in zip(
        COMPOSED,
        (parts[0] + parts[1], 0.5 * parts[0] + 2 * parts[1], parts[0] * parts[1] * parts[2]),
        strict=True,
    ):
        torch.testing.assert_close(build_kernel(settings)(a, b), expected)
    with pytest.raises(InputError, match="expected 2 weights, one for each kernel, got 1"):
        build_kernel({"name": "sum", "of": OF, "weights": [1.0]})
    with pytest.raises(InputError, match="there is no kernel 'rbff'; did you mean rbf"):
        build_kernel({"name": "product", "of": [{"name": "rbff"}]})


@pytest.mark.parametrize("settings", [*SETTINGS, *COMPOSED])
@pytest.mark.parametrize("normalize", [False, True])
def test_a_gram_matrix(settings: Settings, normalize: bool, points: Points) -> None:
    """The matrix is symmetric and positive semidefinite, and its gradient is finite, even where a = b."""
    K, a = build_kernel({**settings, "normalize": normalize}), points[0].requires_grad_()
    gram = K(a, a)
    gram.sum().backward()
    assert a.grad.isfinite().all()
    torch.testing.assert_close(gram, gram.T)
    torch.testing.assert_close(K.diag(a), gram.diagonal())
    assert torch.linalg.eigvalsh(gram).min() > -1e-9


class Quadratic(Kernel):
    """A kernel that implements only ``__call__``."""

    def __call__(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a @ b.mT) ** 2


@pytest.mark.parametrize("kernel", [RBF, Laplacian, Linear, Polynomial, Quadratic])
def test_normalized_is_the_formula_of_the_paper(kernel: type[Kernel], points: Points) -> None:
    (a, b), K = points, kernel()
    expected = K(a, b) / (K(a, a).diagonal().sqrt()[:, None] * K(b, b).diagonal().sqrt()[None, :])
    torch.testing.assert_close(Normalized(K)(a, b), expected)


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize(("p", "q"), [(12, 9), (1, 9), (12, 1), (1, 0)])
def test_the_closed_form_of_the_gradient_is_autograds(
    p: int, q: int, few: bool, points: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    if q:
        monkeypatch.setattr(kernels, "_few", lambda a, b: few)
    K, a, b = RBF(0.7), points[0][:p], points[1][:q]
    G = torch.randn(p, q, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gram = K(a, b)
    torch.testing.assert_close(K.gradient(a, b, gram, G), Kernel.gradient(K, a, b, gram, G))


@pytest.mark.parametrize("outputs", [(), (3,)])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (1000, 1000)])
def test_sums_do_not_depend_on_the_blocks(
    shape: tuple[int, int], outputs: tuple[int, ...], points: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    K, (a, b) = build_kernel({"name": "rbf", "gamma": 0.1}), points
    monkeypatch.setattr(kernels, "block_shape", lambda *_: shape)
    w = torch.randn(9, *outputs, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(kernel_sums(K, a, b, w), K(a, b) @ w)
    assert torch.equal(kernel_sums(K, a, b[:0], w[:0]), torch.zeros(12, *outputs, dtype=torch.float64))
    assert kernel_sums(K, a[:0], b, w).shape == (0, *outputs)


def test_no_block_is_larger_than_the_memory_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block takes at most a quarter of the budget. Temporary arrays of this size take the rest."""
    sizes = []

    class Watched(Kernel):
        def __call__(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            sizes.append(len(a) * len(b) * a.element_size())
            return a @ b.T

    a, b = torch.ones(3000, 2), torch.ones(2000, 2)
    torch.testing.assert_close(kernel_sums(Watched(), a, b, torch.ones(2000), 1), torch.full((3000,), 4000.0))
    assert max(sizes) <= 2**20 / 4
    assert len(sizes) < 200


@pytest.mark.parametrize("p", [1, 20, 100])
def test_values_and_gradients_far_from_the_origin_keep_their_digits(p: int) -> None:
    """In float32, ||a||^2 + ||b||^2 - 2 <a, b> would lose all digits without centring."""
    generator = torch.Generator().manual_seed(0)
    a, b = (1000 + 0.3 * torch.randn(q, 5, generator=generator) for q in (p, 30))
    K, G = build_kernel({"name": "rbf", "gamma": 1.0}), torch.ones(p, 30)
    for other in (a, b):
        values = torch.exp(-torch.cdist(a.double(), other.double()).square())
        torch.testing.assert_close(K(a, other).double(), values, atol=1e-4, rtol=0)
    exact = K.gradient(a.double(), b.double(), K(a.double(), b.double()), G.double())
    ours = K.gradient(a, b, K(a.double(), b.double()).float(), G)
    torch.testing.assert_close(ours.double(), exact, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("learn", [[], ["gamma"]])
def test_values_of_distant_clusters_do_not_depend_on_the_batch(learn: list[str]) -> None:
    """In float32, ||a||^2 + ||b||^2 - 2 <a, b> has errors of 1 if each feature is 300 from its mean."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(200, 40, generator=generator) + torch.tensor([300.0, -300.0]).repeat(100)[:, None]
    K = with_initial_parameters(build_kernel({"name": "rbf", "gamma": 0.025, "learn": learn}), z)
    exact = torch.exp(-0.025 * torch.cdist(z.double(), z.double()).square()).float()
    for part in (z, z[:1], z[:7]):
        torch.testing.assert_close(K(part, z), exact[: len(part)], atol=1e-6, rtol=0)


def test_features_with_two_values_have_the_same_laplacian_kernel() -> None:
    """``distances`` uses a matrix product for columns with at most two values in both sets together."""
    rng = np.random.default_rng(0)
    a, b = (rng.choice([-0.5, 2.0], (40, 60)) for _ in range(2))
    a[:, :5], b[:, :5] = rng.normal(size=(2, 40, 5))
    a[:, 5:9] = b[:, 5:9] = 3.0
    a[7], b[:, 9] = b[7], rng.normal(size=40)
    z = torch.from_numpy(a).requires_grad_()
    K = Laplacian(0.05)(z, torch.from_numpy(b))
    np.testing.assert_allclose(K.detach(), pairwise.laplacian_kernel(a, b, 0.05), rtol=1e-12)
    G = torch.from_numpy(rng.normal(size=(40, 40)))
    sign = np.sign(a[:, None] - b)
    expected = -0.05 * np.einsum("ij,ij,ijd->id", G.numpy(), K.detach().numpy(), sign)
    np.testing.assert_allclose(torch.autograd.grad((G * K).sum(), z)[0], expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_is_no_distance_of_the_laplacian_kernel(dtype: torch.dtype) -> None:
    """The last digits of a sample's features may depend on its batch."""
    a = torch.randn(6, 8, generator=torch.Generator().manual_seed(0), dtype=dtype)
    b, K = torch.nextafter(a, torch.full_like(a, torch.inf)), Laplacian(0.5)
    assert torch.equal(K(a, b).diagonal(), torch.ones(6, dtype=dtype))
    assert torch.equal(K.gradient(a, b, K(a, b), torch.eye(6, dtype=dtype)), torch.zeros_like(a))
    torch.testing.assert_close(K(a, a.flip(0)), torch.exp(-0.5 * torch.cdist(a, a.flip(0), p=1)))


def test_a_subclass_with_another_formula_does_not_inherit_the_gradient() -> None:
    class Wider(RBF):
        def __call__(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return super().__call__(a / 2, b / 2)

    a, b = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    G = torch.ones(4, 4, dtype=torch.float64)
    plain, wider = RBF(0.8), Wider(0.8)
    expected = RBF(0.2).gradient(a, b, RBF(0.2)(a, b), G)
    torch.testing.assert_close(wider.gradient(a, b, wider(a, b), G), expected)
    assert not torch.allclose(plain.gradient(a, b, plain(a, b), G), expected)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_bias_adds_1_to_the_kernel(settings: Settings, normalize: bool, points: Points) -> None:
    """The 1 is added after normalisation, and does not change the gradient."""
    a, b = points
    K = build_kernel({**settings, "normalize": normalize})
    biased = build_kernel({**settings, "normalize": normalize, "bias": True})
    torch.testing.assert_close(biased(a, b), K(a, b) + 1)
    torch.testing.assert_close(biased.diag(a), K.diag(a) + 1)
    G = torch.randn(12, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(biased.gradient(a, b, K(a, b) + 1, G), K.gradient(a, b, K(a, b), G))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["linear", "polynomial"])
def test_normalized_is_1_on_the_diagonal_however_small_the_features(name: str, dtype: torch.dtype) -> None:
    settings = {"linear": {}, "polynomial": {"c": 0, "degree": 1}}[name]
    K = build_kernel({"name": name, "normalize": True, **settings})
    lengths = torch.finfo(dtype).tiny ** torch.linspace(0, 0.45, 30, dtype=dtype)
    a = lengths[:, None] * torch.tensor([[0.6, 0.8, 1.0]], dtype=dtype)
    a.requires_grad_()
    gram = K(a, a)
    torch.testing.assert_close(gram, torch.ones_like(gram))
    assert torch.autograd.grad(gram[-1].sum(), a)[0].isfinite().all()
