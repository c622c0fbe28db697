"""Image data sets: the contents of their files, and the errors for missing or wrong files."""

from __future__ import annotations

import gzip
import hashlib
import io
import socket
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from nsvm_cli.datasets import DATASETS
from nsvm_cli.datasets.image_files import ARCHIVE, CIFAR10, KMNIST, MNIST, FashionMNIST, ImageFiles
from tests.conftest import real
from tests.datasets.helpers import load, refusal

IDX = [*MNIST.sums]
M, N = 600, 100
"""Numbers of training and test images in the generated data sets."""

LABELS = np.arange(M + N, dtype=np.uint8) % 10


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (M + N, *shape), dtype=np.uint8)


def idx(values: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    return gzip.compress(header + values.tobytes(), 1)


def cifar_archive() -> bytes:
    records = np.column_stack([LABELS, pixels(3, 32, 32).reshape(M + N, -1)])
    parts = np.split(records, [M * part // 5 for part in range(1, 6)])
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for name, content in zip(["readme.html", *names], [b"<html>", *map(bytes, parts)], strict=True):
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture(scope="module")
def contents() -> dict[str, bytes]:
    images = pixels(1, 28, 28)[:, 0]
    values = (images[:M], LABELS[:M], images[M:], LABELS[M:])
    return {**{name: idx(v) for name, v in zip(IDX, values, strict=True)}, ARCHIVE: cifar_archive()}


def use(
    source: type[ImageFiles], contents: dict[str, bytes], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Write the files of a data set, register it as ``fake``, and return its ``root``."""
    (folder / source.below).mkdir(parents=True, exist_ok=True)
    for name in source.sums:
        (folder / source.below / name).write_bytes(contents[name])
    sums = {name: hashlib.sha256(contents[name]).hexdigest() for name in source.sums}
    monkeypatch.setitem(DATASETS, "fake", type(source.__name__, (source,), {"sums": sums}))
    return folder


@pytest.fixture
def root(contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return use(MNIST, contents, tmp_path / "root", monkeypatch)


@pytest.mark.parametrize(
    ("source", "shape", "classes"),
    [
        *((source, (1, 28, 28), "0 1 2 3 4 5 6 7 8 9") for source in (MNIST, FashionMNIST, KMNIST)),
        (CIFAR10, (3, 32, 32), "airplane automobile bird cat deer dog frog horse ship truck"),
    ],
)
def test_samples_are_what_the_files_hold(
    source: type[ImageFiles],
    shape: tuple[int, ...],
    classes: str,
    contents: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = load("fake", root=str(use(source, contents, tmp_path, monkeypatch)), classes=None)
    for name, rows in (("train", slice(M)), ("test", slice(M, None))):
        np.testing.assert_array_equal(data.splits[name].x, pixels(*shape)[rows])
        np.testing.assert_array_equal(data.splits[name].y, LABELS[rows])
    assert (data.task.classes, data.samples.official_test) == (tuple(classes.split()), M)
    assert data.global_scaling


@pytest.mark.parametrize(
    ("content", "says"), [(None, "No such file"), (b"other", "is not the published file: its SHA-256")]
)
def test_a_wrong_file_is_named(root: Path, content: bytes | None, says: str) -> None:
    file = root / "MNIST" / "raw" / IDX[3]
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    message = refusal("fake", root=str(root))
    for part in (says, f"a folder that contains MNIST/raw/{IDX[3]}", "remove dataset.root", "=digits"):
        assert part in message


def test_cached_files_need_no_network(
    contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    root = use(MNIST, contents, tmp_path / "nsvm", monkeypatch)
    for connecting in ("socket", "getaddrinfo"):
        monkeypatch.setattr(socket, connecting, lambda *_, **__: pytest.fail("it connects"))
    assert load("fake").samples.sha256 == load("fake", root=str(root)).samples.sha256


def test_what_cannot_be_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "nsvm").touch()
    message = refusal("mnist")
    assert message.startswith(f"the files cannot be downloaded: {MNIST.address}{IDX[0]}: ")
    assert "dataset=digits, which requires no download" in message
    assert "omit" not in message


def test_the_papers_zeros_and_ones() -> None:
    data = load("mnist", root=str(real("mnist")))
    assert (len(data.splits["train"]), len(data.splits["test"])) == (12665, 2115)
    x = data.splits["all"].x
    assert x.shape == (14780, 1, 28, 28)
    assert (x.dtype, x.min().item(), x.max().item()) == (torch.uint8, 0, 255)
    assert data.samples.sha256 == "27e4b436c0a59ec12259e6fa7afd0c6274848251f97ebe2019481dd1090c7577"


@pytest.mark.parametrize("classes", [(1, 0), (7, 0, 3), None])
def test_digits_are_enlarged_but_otherwise_unchanged(classes: tuple[int, ...] | None) -> None:
    digits, chosen = load_digits(), classes or range(10)
    rows = np.isin(digits.target, chosen)
    data = load("digits", classes=classes)
    assert (data.task.classes, data.global_scaling) == (tuple(map(str, chosen)), True)
    assert data.samples.origins == (), "the name of the data set should be the only origin"
    part = data.splits["all"]
    labels = [chosen.index(label) for label in digits.target[rows].tolist()]
    np.testing.assert_array_equal(data.task.index(part.y), labels)
    x, original = part.x[:, 0].numpy(), digits.images[rows] / 16
    np.testing.assert_allclose(x.mean((1, 2)), original.mean((1, 2)), atol=0.01)
    corners = np.ix_(range(len(x)), [0, -1], [0, -1])
    np.testing.assert_allclose(x[corners], original[corners])
    # at the centres of the small image's pixels, 3.5 pixels apart, the large image has nearly their values
    centres = np.round(3.5 * np.arange(8) + 1.25).astype(int)
    assert np.abs(x[:, centres][:, :, centres] - original).mean() < 0.05
