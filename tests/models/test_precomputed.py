"""The kernel that takes its values from a matrix in a file."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nsvm_cli.errors import InputError
from nsvm_cli.models import kernels
from nsvm_cli.models.composed_kernels import build_kernel
from nsvm_cli.models.kernels import Kernel, Precomputed
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.storage.files import file_sha256
from tests.small_runs import small_settings


@pytest.fixture
def save(tmp_path: Path) -> Callable[[np.ndarray], str]:
    def file_of(matrix: np.ndarray) -> str:
        np.save(tmp_path / "K.npy", matrix)
        return str(tmp_path / "K.npy")

    return file_of


def gram(m: int = 20) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=(m, 4))
    return np.asarray(x @ x.T)


def built(path: str, **settings: Any) -> Kernel:
    return build_kernel({"name": "precomputed", "path": path, **settings})


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", "<i8", "|u1"])
@pytest.mark.parametrize("dtype_of_features", [torch.float32, torch.float64])
def test_it_takes_blocks_of_the_matrix(
    dtype: str, dtype_of_features: torch.dtype, save: Callable[[np.ndarray], str]
) -> None:
    matrix = (100 + 10 * gram()).astype(dtype)
    K, i, j = built(save(matrix)), [3, 19, 3], [0, 7]
    a, b = (torch.tensor(rows, dtype=dtype_of_features)[:, None] for rows in (i, j))
    expected = torch.from_numpy(matrix[np.ix_(i, j)].astype(float)).to(dtype_of_features)
    assert K(a, b).equal(expected)
    assert K(torch.stack([a, a]), torch.stack([b, b])).equal(torch.stack([expected, expected]))
    assert K.diag(a).tolist() == torch.from_numpy(matrix.diagonal()[i].astype(float)).to(a).tolist()


def test_it_takes_a_matrix_in_a_file_of_several_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz", K=gram())
    path, a = f"{tmp_path}/many.npz:K", torch.arange(20, dtype=torch.float64)[:, None]
    np.testing.assert_array_equal(built(path)(a, a), gram())
    for name, array in (("x", a.numpy()), ("y", np.arange(20) % 2)):
        np.save(tmp_path / f"{name}.npy", array)
    rows = {"path": str(tmp_path / "x.npy"), "labels": str(tmp_path / "y.npy")}
    settings = small_settings(
        dataset={"name": "npy", "scaling": "none", **rows},
        network={"name": "identity"},
        kernel={"name": "precomputed", "path": path},
        algorithm={"name": "pegasos", "steps": 5},
    )
    assert prepare(settings).kernel_sha256 == file_sha256(str(tmp_path / "many.npz"))


def test_it_is_normalised_and_biased_like_others(save: Callable[[np.ndarray], str]) -> None:
    matrix, a = gram(), torch.arange(20, dtype=torch.float64)[:, None]
    K = built(save(matrix), normalize=True, bias=True)
    root = np.sqrt(matrix.diagonal())
    np.testing.assert_allclose(K(a, a), matrix / root / root[:, None] + 1)


def test_the_file_is_mapped_and_not_read(save: Callable[[np.ndarray], str]) -> None:
    K = Precomputed(save(np.eye(1000, dtype="<f4")))
    assert isinstance(K.G, np.memmap)
    assert not K.G.flags.writeable
    with Path(K.path).open("r+b") as file:
        file.seek(-4, 2)
        file.write(np.float32(7).tobytes())
    last = torch.tensor([[999.0]])
    assert K(last, last).item() == 7


@pytest.mark.parametrize(
    ("index", "got"),
    [([1.5], "1.5"), ([-1.0], "-1"), ([20.0], "20"), ([np.nan], "nan"), ([1.0, 2.0], "2 fe")],
)
def test_samples_that_are_no_rows_are_refused(
    index: list[float], got: str, save: Callable[[np.ndarray], str]
) -> None:
    a = torch.tensor([index])
    with pytest.raises(
        InputError, match=rf"from 0 to 19, got {got}.*dataset.scaling=none and network=identity"
    ):
        built(save(gram()))(a, a)


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        (
            np.ones((3, 4)),
            r"expected numbers of shape \(m, m\) with m <= 2\^24, got float64 of shape \(3, 4\)$",
        ),
        (np.ones(3), r"got float64 of shape \(3,\)"),
        (np.array(1.0), r"got float64 of shape \(\)"),
        (np.ones((3, 3), complex), "got complex128"),
        (np.triu(np.ones((300, 300))), "expected a symmetric matrix of finite numbers"),
        (np.full((3, 3), np.nan), "expected a symmetric matrix of finite numbers"),
    ],
)
def test_other_arrays_are_refused(matrix: np.ndarray, says: str, save: Callable[[np.ndarray], str]) -> None:
    for make in (built, Precomputed):
        with pytest.raises(InputError, match=says):
            make(save(matrix))


def test_other_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([[{}]]), allow_pickle=True)
    np.savez(tmp_path / "many.npz", np.eye(3))
    (tmp_path / "pickled").write_bytes(pickle.dumps(np.eye(3)))
    np.save(tmp_path / "cut.npy", np.eye(30))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:-1])
    for name in ("objects.npy", "pickled", "cut.npy", "nowhere.npy"):
        with pytest.raises(InputError, match=f"{name} cannot be read as an array: "):
            built(str(tmp_path / name))
    for endless in ("/dev/zero", str(tmp_path)):
        with pytest.raises(InputError, match="it is not a regular file"):
            built(endless)


def test_more_rows_than_float32_can_number_are_refused(
    save: Callable[[np.ndarray], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert np.float32(kernels.MOST_MATRIX_ROWS - 1) != np.float32(kernels.MOST_MATRIX_ROWS)
    assert np.float32(kernels.MOST_MATRIX_ROWS) == np.float32(kernels.MOST_MATRIX_ROWS + 1)
    monkeypatch.setattr(kernels, "MOST_MATRIX_ROWS", 19)
    with pytest.raises(InputError, match="m <= 2\\^24"):
        built(save(gram()))
