"""EMNIST, CIFAR-10 and SVHN: synthetic files in their formats, and the errors for wrong ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import savemat

from nsvm_cli.datasets import DATASETS
from nsvm_cli.datasets.base import as_float
from nsvm_cli.datasets.cifar10 import CIFAR10, FOLDER, NAMES
from nsvm_cli.datasets.emnist import CLASSES, EMNIST
from nsvm_cli.datasets.image_files import ImageFiles
from nsvm_cli.datasets.scaling import fit_scaling
from nsvm_cli.datasets.svhn import SVHN
from nsvm_cli.memory import memory_limit
from tests.datasets.helpers import load, refusal, sizes
from tests.datasets.https_server import Authority, reply
from tests.datasets.test_mnist import idx

Use = Callable[..., None]
"""Register a subclass of a data set with other class attributes, under the name "fake"."""


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    def register(source: type[ImageFiles], **attributes: Any) -> None:
        monkeypatch.setitem(DATASETS, "fake", type("Fake", (source,), attributes))

    return register


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def pixels(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


# CIFAR-10

ARCHIVE = CIFAR10.archive
IMAGES = np.concatenate([pixels(n, 20, 3, 32, 32) for n in range(6)])
LABELS = np.arange(120, dtype=np.uint8) % 10


def cifar_files() -> dict[str, bytes]:
    records = np.column_stack([LABELS, IMAGES.reshape(120, -1)])
    return dict(zip([*CIFAR10.sums][1:], map(bytes, np.split(records, 6)), strict=True))


def cifar_archive(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for name, content in {"readme.html": b"<html>", **files}.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture
def cifar(use: Use, tmp_path: Path) -> Path:
    """A folder with the archive."""
    files = cifar_files()
    (tmp_path / ARCHIVE).write_bytes(cifar_archive(files))
    sums = {name: sha256(content) for name, content in files.items()}
    use(CIFAR10, images=20, sums={**sums, ARCHIVE: sha256((tmp_path / ARCHIVE).read_bytes())})
    return tmp_path


@pytest.mark.parametrize("form", ["archive", "files"])
def test_cifar10(cifar: Path, form: str) -> None:
    if form == "files":
        (cifar / ARCHIVE).unlink()
        (cifar / FOLDER).mkdir()
        for name, content in cifar_files().items():
            (cifar / FOLDER / name).write_bytes(content)
    data = load("fake", root=str(cifar))
    np.testing.assert_array_equal(data.splits["train"].x, IMAGES[:100])
    np.testing.assert_array_equal(data.splits["test"].x, IMAGES[100:])
    np.testing.assert_array_equal(data.splits["all"].y, LABELS)
    assert (data.task.classes, data.official_split, data.global_scaling) == (NAMES, True, True)


def test_some_classes_by_their_names(cifar: Path) -> None:
    data = load("fake", root=str(cifar), classes=["dog", "cat"], validation=2)
    assert data.task.classes == ("dog", "cat")
    assert sizes(data) == {"train": 16, "validation": 4, "test": 4, "all": 24}
    chosen = LABELS[np.isin(LABELS, (3, 5))]
    np.testing.assert_array_equal(data.splits["all"].y, np.where(chosen == 5, -1, 1))
    message = refusal("fake", root=str(cifar), classes=["dog", "cta"])
    assert message.startswith("dataset.classes: there is no class 'cta'; did you mean cat?")
    for classes in (["dog"], ["dog", "dog"]):
        assert "expected two or more different classes" in refusal("cifar10", classes=classes)


@pytest.mark.parametrize("form", ["archive", "files"])
def test_a_damaged_file_is_refused(cifar: Path, form: str) -> None:
    if form == "files":
        (cifar / FOLDER).mkdir()
        for name, content in cifar_files().items():
            (cifar / FOLDER / name).write_bytes(content[:-1])
    else:
        (cifar / ARCHIVE).write_bytes((cifar / ARCHIVE).read_bytes()[:-1])
    message = refusal("fake", root=str(cifar))
    assert "is damaged (it is not the published file, expected SHA-256 " in message
    assert "name a folder that holds cifar-10-batches-bin/*.bin or cifar-10-binary.tar.gz" in message


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"data_batch_1.bin": b"short"}, "expected 61460 bytes, got 5"),
        (
            {name: content for name, content in cifar_files().items() if "4" not in name},
            "no data_batch_4.bin",
        ),
        ({"data_batch_1.bin": bytes(100_000)}, "expected 61460 bytes, got 61461"),
    ],
)
def test_an_archive_of_other_files(use: Use, tmp_path: Path, files: dict[str, bytes], says: str) -> None:
    content = cifar_archive(files)
    (tmp_path / ARCHIVE).write_bytes(content)
    use(CIFAR10, images=20, sums={ARCHIVE: sha256(content)})
    assert says in refusal("fake", root=str(tmp_path))


def test_bytes_are_scaled_and_summed_as_the_numbers_that_they_stand_for(cifar: Path) -> None:
    """To the bit: a model file and a run directory of floats stay valid."""
    data = load("fake", root=str(cifar))
    pixels, numbers = data.splits["train"].x, torch.from_numpy(IMAGES[:100] / 255)
    assert pixels.dtype == torch.uint8
    assert as_float(pixels).equal(numbers)
    scaling, expected = (fit_scaling(x, global_scaling=True) for x in (pixels, numbers))
    assert (scaling.mean.item(), scaling.std.item()) == (expected.mean.item(), expected.std.item())
    for dtype in (torch.float32, torch.float64):
        assert scaling(pixels, dtype).equal(expected(numbers, dtype))
    assert data.sha256 == sha256((IMAGES / 255).tobytes() + LABELS.astype(np.float64).tobytes())


def test_images_are_measured_before_they_become_floats(cifar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsvm_cli.memory.MEMORY_BUDGET", 2)
    with memory_limit(2):
        message = refusal("fake", root=str(cifar))
    assert message.startswith("CIFAR10, 120 images, needs about 3 MiB of memory, more than memory_budget=2: ")


# EMNIST

COUNTS = dict.fromkeys(CLASSES, (200, 100))


def emnist_files(subset: str) -> dict[str, np.ndarray]:
    first, C = int(subset == "letters"), len(CLASSES[subset])
    files = {}
    for part, m in zip(("train", "test"), COUNTS[subset], strict=True):
        files[f"emnist-{subset}-{part}-images-idx3-ubyte"] = pixels(m, m, 28, 28) // 32
        files[f"emnist-{subset}-{part}-labels-idx1-ubyte"] = (np.arange(m) % C + first).astype(np.uint8)
    return files


def emnist_archive(subset: str, change: Callable[[bytes], bytes] = bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, array in emnist_files(subset).items():
            archive.writestr(f"gzip/{name}.gz", gzip.compress(change(idx(array)), compresslevel=1))
    return packed.getvalue()


@pytest.mark.parametrize("form", ["archive", "packed", "unpacked"])
@pytest.mark.parametrize("subset", ["digits", "letters"])
def test_emnist(use: Use, tmp_path: Path, form: str, subset: str) -> None:
    raw = tmp_path / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    files = emnist_files(subset)
    if form == "archive":
        (raw / "gzip.zip").write_bytes(emnist_archive(subset))
    for name, array in files.items() if form != "archive" else ():
        if form == "packed":
            (raw / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (raw / name).write_bytes(idx(array))
    packed = sha256((raw / "gzip.zip").read_bytes()) if form == "archive" else ""
    use(EMNIST, images=COUNTS, sums={EMNIST.archive: packed})
    data = load("fake", root=str(tmp_path), subset=subset)
    images, labels, tested, _ = files.values()
    np.testing.assert_array_equal(data.splits["train"].x[:, 0], images.transpose(0, 2, 1))
    np.testing.assert_array_equal(data.splits["test"].x[:, 0], tested.transpose(0, 2, 1))
    assert data.task.classes == tuple(CLASSES[subset])
    np.testing.assert_array_equal(data.splits["train"].y, labels - int(subset == "letters"))


def test_classes_of_emnist() -> None:
    sizes = {"balanced": 47, "byclass": 62, "bymerge": 47, "digits": 10, "letters": 26, "mnist": 10}
    assert {subset: len(names) for subset, names in CLASSES.items()} == sizes
    assert refusal("emnist", subset="balancd").startswith("dataset.subset ")
    assert EMNIST.images.keys() == CLASSES.keys()


def test_digits_and_letters_are_chosen_by_name(use: Use, tmp_path: Path) -> None:
    raw = tmp_path / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    for name, array in emnist_files("mnist").items():
        (raw / name).write_bytes(idx(array))
    use(EMNIST, images=COUNTS)
    data = load("fake", root=str(tmp_path), subset="mnist", classes=[7, "1"])
    assert data.task.classes == ("7", "1")
    assert "there is no class 'AB'" in refusal("fake", root=str(tmp_path), classes=["AB", "B"])


@pytest.mark.parametrize("changed", ["one bit", "one file short"])
def test_a_damaged_archive_of_emnist(use: Use, tmp_path: Path, changed: str) -> None:
    raw = tmp_path / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    content = emnist_archive("mnist", (lambda data: data[:-1]) if changed == "one file short" else bytes)
    (raw / "gzip.zip").write_bytes(content)
    use(
        EMNIST,
        images=COUNTS,
        sums={EMNIST.archive: sha256(content) if changed == "one file short" else "0" * 64},
    )
    message = refusal("fake", root=str(tmp_path), subset="mnist")
    assert message.startswith(f"{raw / 'gzip.zip'} is damaged (")
    assert ("it is shorter" if changed == "one file short" else "not the published file") in message


# SVHN


def mat(m: int) -> bytes:
    file = io.BytesIO()
    labels = (np.arange(m) % 10 + 1).astype(np.uint8)[:, None]  # 1 to 9, and 10 for the digit 0
    savemat(file, {"X": pixels(m, 32, 32, 3, m), "y": labels}, do_compression=True)
    return file.getvalue()


def test_svhn(use: Use, tmp_path: Path) -> None:
    contents = {"train_32x32.mat": mat(40), "test_32x32.mat": mat(20)}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    use(SVHN, sums={name: sha256(content) for name, content in contents.items()})
    data = load("fake", root=str(tmp_path))
    np.testing.assert_array_equal(data.splits["train"].x, pixels(40, 32, 32, 3, 40).transpose(3, 2, 0, 1))
    np.testing.assert_array_equal(data.splits["test"].y, (np.arange(20) + 1) % 10)
    (tmp_path / "test_32x32.mat").write_bytes(contents["test_32x32.mat"][:-1])
    assert "test_32x32.mat is damaged (it is not the published file" in refusal("fake", root=str(tmp_path))


# What all have in common


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("cifar10", "cifar-10-batches-bin/data_batch_1.bin and no cifar-10-binary.tar.gz: "),
        ("svhn", "train_32x32.mat: "),
        ("emnist", "EMNIST/raw/emnist-balanced-train-images-idx3-ubyte[.gz] and no EMNIST/raw/gzip.zip: "),
    ],
)
def test_missing_files_are_named(tmp_path: Path, name: str, missing: str) -> None:
    message = refusal(name, root=str(tmp_path))
    assert message.startswith(f"dataset.root={tmp_path} has no {missing}name a folder that holds ")
    assert "dataset=digits" in message


@pytest.mark.parametrize("source", [CIFAR10, EMNIST, SVHN])
def test_downloads_are_https_and_have_checksums(source: type[ImageFiles]) -> None:
    assert all(mirror.startswith("https://") and mirror.endswith("/") for mirror in source.mirrors)
    assert all(len(known) == 64 for known in source.sums.values())


def test_a_missing_archive_is_downloaded_once(
    cifar: Path, trusted: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cifar / "cache"))
    asked = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        reply(request, 200, (cifar / ARCHIVE).read_bytes())

    with trusted.serving(answer) as address:
        monkeypatch.setattr(DATASETS["fake"], "mirrors", (address,))
        first, second = load("fake"), load("fake")
    assert asked == [f"/{ARCHIVE}"]
    assert first.sha256 == second.sha256
    assert (cifar / "cache" / "nsvm" / "CIFAR10" / ARCHIVE).is_file()
