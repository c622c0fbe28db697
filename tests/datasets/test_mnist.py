"""MNIST's files: read in either form, verified, and the errors for wrong ones."""

from __future__ import annotations

import gzip
import hashlib
import socket
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest
import torch

from nsvm_cli.datasets import DATASETS
from nsvm_cli.datasets.mnist import IMAGES, KMNIST, MNIST, FashionMNIST
from tests.conftest import real
from tests.datasets.helpers import load, refusal
from tests.datasets.https_server import Authority, reply

FILES = MNIST().files
FEW = {"train": 600, "t10k": 100}
"""Number of images in each file that is not real."""

DRAWN = 30
"""Number of images at the start of each file that are not black; their labels cycle through 0 to 8."""


def _labels(count: int) -> np.ndarray:
    labels = np.full(count, 9, dtype=np.uint8)
    labels[:DRAWN] = np.arange(DRAWN) % 9
    return labels


def _images(count: int) -> np.ndarray:
    images = np.zeros((count, 28, 28), dtype=np.uint8)
    images[:DRAWN] = np.random.default_rng(count).integers(0, 256, (DRAWN, 28, 28))
    return images


def idx(array: np.ndarray) -> bytes:
    return b"\0\0\x08" + bytes([array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()


class Files:
    """Files like MNIST's with a few other images, packed and unpacked, and the class that reads them."""

    def __init__(self, root: Path) -> None:
        self.packed, self.unpacked = root / "packed", root / "unpacked"
        for folder in (self.packed, self.unpacked):
            (folder / "MNIST" / "raw").mkdir(parents=True)
        self.sums: dict[str, str] = {}
        for name in FILES:
            self._write(name)
        self.source = type("Fake", (MNIST,), {"sums": self.sums})

    def _write(self, name: str) -> None:
        count = FEW[name.split("-")[0]]
        array = _images(count) if "images" in name else _labels(count)
        content = idx(array)
        packed = gzip.compress(content, compresslevel=1, mtime=0)
        for folder, file, written in (
            (self.packed, f"{name}.gz", packed),
            (self.unpacked, name, content),
        ):
            (folder / "MNIST" / "raw" / file).write_bytes(written)
            self.sums[file] = hashlib.sha256(written).hexdigest()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("files"))


@pytest.fixture
def files(written: Files, monkeypatch: pytest.MonkeyPatch) -> Files:
    """The files; ``fake`` is the name of the data set that reads them."""
    for part, count in FEW.items():
        monkeypatch.setitem(IMAGES, part, count)
    monkeypatch.setitem(DATASETS, "fake", written.source)
    return written


def linked(root: Path, folder: Path, without: str = "", called: str = "MNIST") -> Path:
    """Return a new root with links to all files in a folder but one."""
    raw = root / called / "raw"
    raw.mkdir(parents=True)
    for file in (folder / "MNIST" / "raw").iterdir():
        if file.name != without:
            (raw / file.name).symlink_to(file)
    return raw


def assert_gives_advice(message: str) -> None:
    for way in ("dataset.root=FOLDER", "MNIST/raw/*-ubyte[.gz]", "dataset=digits"):
        assert way in message


@pytest.mark.parametrize("form", ["packed", "unpacked"])
def test_samples_are_what_the_files_hold(files: Files, form: str) -> None:
    data = load("fake", root=str(getattr(files, form)))
    train, test = (_images(count)[:DRAWN] for count in FEW.values())
    rows = _labels(DRAWN) < 2
    np.testing.assert_array_equal(data.splits["train"].x[:, 0], train[rows])
    np.testing.assert_array_equal(data.splits["test"].x[:, 0], test[rows])
    np.testing.assert_array_equal(data.splits["train"].y, np.where(_labels(DRAWN)[rows] == 1, 1, -1))
    assert data.global_scaling
    assert data.task.classes == ("0", "1")


@pytest.mark.parametrize("classes", [(3, 8), (8, 3), (2, 0, 5), None])
def test_some_classes_or_all(files: Files, classes: tuple[int, ...] | None) -> None:
    data = load("fake", root=str(files.packed), classes=classes)
    chosen = classes or range(10)
    assert data.task.classes == tuple(map(str, chosen))
    labels = [label for label in _labels(FEW["train"]).tolist() if label in chosen]
    assert data.task.index(data.splits["train"].y).tolist() == [chosen.index(label) for label in labels]


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "cut short": (".gz", lambda content: content[: len(content) // 2]),
    "empty": (".gz", lambda _: b""),
    "unpacked, other pixel": ("", lambda content: content[:-1] + bytes([content[-1] ^ 1])),
    "unpacked, still packed": ("", gzip.compress),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files(files: Files, tmp_path: Path, damage: str) -> None:
    (suffix, change), name = DAMAGE[damage], "train-labels-idx1-ubyte"
    folder = files.packed if suffix else files.unpacked
    raw = linked(tmp_path, folder, without=name + suffix)
    (raw / f"{name}{suffix}").write_bytes(change((folder / "MNIST" / "raw" / f"{name}{suffix}").read_bytes()))
    message = refusal("fake", root=str(tmp_path))
    not_published = "is damaged (it is not the published file, expected SHA-256 "
    assert message.startswith(f"{raw / name}{suffix} {not_published}")
    assert_gives_advice(message)


HEADER = "its header is not that of an IDX file of bytes"
WITHOUT_A_SUM: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut short": (lambda content: content[:400], "it is shorter than its header says"),
    "only a header": (lambda content: content[:6], HEADER),
    "empty": (lambda _: b"", HEADER),
    "wrong magic": (lambda content: b"\1" + content[1:], HEADER),
    "other sizes": (lambda content: content[:7] + b"\0" + content[8:], "expected 600 bytes, got 512"),
    "long": (lambda content: content + b"\0", "it is longer than its header says"),
}


@pytest.mark.parametrize(("change", "says"), WITHOUT_A_SUM.values(), ids=WITHOUT_A_SUM)
def test_damaged_files_without_a_published_checksum(
    files: Files, tmp_path: Path, change: Callable[[bytes], bytes], says: str
) -> None:
    name = "train-labels-idx1-ubyte"
    raw = linked(tmp_path, files.unpacked, without=name, called="FashionMNIST")
    (raw / name).write_bytes(change((files.unpacked / "MNIST" / "raw" / name).read_bytes()))
    assert f"{raw / name} is damaged ({says})" in refusal("fashion_mnist", root=str(tmp_path))


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(files: Files, tmp_path: Path, name: str) -> None:
    linked(tmp_path, files.packed, without=f"{name}.gz")
    message = refusal("fake", root=str(tmp_path))
    assert message.startswith(f"dataset.root={tmp_path} has no MNIST/raw/{name}[.gz]: ")
    assert_gives_advice(message)


@pytest.mark.parametrize("root", ["nowhere", "", "file"])
def test_a_root_without_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    message = refusal("mnist", root=root)
    assert "omit dataset.root to download them" in message
    assert message.startswith(f"dataset.root={root} has no MNIST/raw/train-images-idx3-ubyte[.gz]: ")
    assert_gives_advice(message)


def test_a_folder_in_place_of_a_file(files: Files, tmp_path: Path) -> None:
    raw = linked(tmp_path, files.packed, without=f"{FILES[3]}.gz")
    (raw / f"{FILES[3]}.gz").mkdir()
    assert f"has no MNIST/raw/{FILES[3]}[.gz]" in refusal("fake", root=str(tmp_path))


@pytest.mark.parametrize(("name", "source"), [("fashion_mnist", FashionMNIST), ("kmnist", KMNIST)])
def test_related_data_sets_have_their_own_folders_and_checksums(
    files: Files, tmp_path: Path, name: str, source: type[MNIST]
) -> None:
    assert not {*source.sums.values()} & {*MNIST.sums.values()}
    linked(tmp_path, files.packed, called=source.title)
    assert "is not the published file" in refusal(name, root=str(tmp_path))
    (tmp_path / "two").mkdir()
    linked(tmp_path / "two", files.unpacked, called=source.title)
    assert load(name, root=str(tmp_path / "two")).sha256 == load("fake", root=str(files.packed)).sha256


def test_the_published_files_hold_70000_images() -> None:
    assert IMAGES == {"train": 60000, "t10k": 10000}


# Downloads, from a server of ours


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "nsvm"


@pytest.fixture
def asked(files: Files, trusted: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The requests to the only mirror, which has the packed files."""
    asked: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path[1:])
        reply(request, 200, (files.packed / "MNIST" / "raw" / request.path[1:]).read_bytes())

    with trusted.serving(answer) as address:
        monkeypatch.setattr(files.source, "mirrors", (address,))
        yield asked


def test_missing_files_are_downloaded_once(
    files: Files, cache: Path, asked: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = load("fake"), load("fake")
    assert asked == [f"{name}.gz" for name in FILES]
    assert first.sha256 == second.sha256 == load("fake", root=str(files.packed)).sha256
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.startswith("Downloading train-images-idx3-ubyte.gz, ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("form", ["packed", "unpacked"])
def test_a_missing_file_is_added_to_the_cache(files: Files, cache: Path, asked: list[str], form: str) -> None:
    linked(cache, getattr(files, form), without=FILES[2] + (".gz" if form == "packed" else ""))
    assert load("fake").sha256 == load("fake", root=str(files.packed)).sha256
    assert asked == [f"{FILES[2]}.gz"]


def test_a_damaged_cached_file_is_to_be_deleted(files: Files, cache: Path, asked: list[str]) -> None:
    name = f"{FILES[3]}.gz"
    damaged = linked(cache, files.packed, without=name) / name
    damaged.write_bytes(b"\x1f\x8b")
    assert "delete it to download it again" in refusal("fake")
    damaged.unlink()
    load("fake")
    assert asked == [name]


def test_nothing_is_downloaded_into_a_given_root(files: Files, tmp_path: Path, asked: list[str]) -> None:
    refusal("fake", root=str(tmp_path))
    assert asked == []
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_fails(
    files: Files, cache: Path, trusted: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trusted.serving(lambda request: reply(request, 404)) as address:
        monkeypatch.setattr(files.source, "mirrors", (address,))
        message = refusal("fake")
    raw = cache / "MNIST" / "raw"
    assert message.startswith(f"MNIST: {raw} lacks files, and they cannot be downloaded ({address}: 404 ")
    assert_gives_advice(message)
    assert "omit" not in message


def test_a_cache_that_cannot_be_written_to(files: Files, cache: Path, asked: list[str]) -> None:
    cache.mkdir()
    (cache / "MNIST").touch()
    message = refusal("fake")
    assert "cannot be downloaded ([Errno " in message
    assert_gives_advice(message)
    assert asked == []


@pytest.mark.parametrize("source", [MNIST, FashionMNIST, KMNIST])
def test_mirrors_are_https(source: type[MNIST]) -> None:
    assert source.mirrors
    assert all(mirror.startswith("https://") and mirror.endswith("/") for mirror in source.mirrors)


def test_cached_files_need_no_network(files: Files, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package for downloads, which is slow to import, is not imported either."""
    linked(cache, files.packed)
    monkeypatch.setitem(sys.modules, "requests", None)  # to import it is an error now
    for connecting in ("socket", "getaddrinfo"):
        monkeypatch.setattr(socket, connecting, lambda *_, **__: pytest.fail("it connects"))
    assert load("fake").sha256 == load("fake", root=str(files.packed)).sha256


# The real files


def test_the_papers_zeros_and_ones() -> None:
    data = load("mnist", root=str(real("mnist")))
    assert (len(data.splits["train"]), len(data.splits["test"])) == (12665, 2115)
    x = data.splits["all"].x
    assert x.shape == (14780, 1, 28, 28)
    assert (x.dtype, x.min().item(), x.max().item()) == (torch.uint8, 0, 255)
