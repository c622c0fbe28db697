"""Tables of the Penn Machine Learning Benchmarks: the layouts of their folders, and their download."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest

from nsvm_cli.datasets import load_data, pmlb
from nsvm_cli.errors import InputError
from tests.conftest import real
from tests.datasets.helpers import load, refusal
from tests.datasets.https_server import Authority, reply

X = np.random.default_rng(0).normal(size=(60, 2)).round(4)
KINDS = np.arange(60) % 3


def table(label: str) -> bytes:
    """Return a packed table of three classes, as PMLB writes it."""
    rows = [f"{a}\t{b}\t{kind}\n" for (a, b), kind in zip(X.tolist(), KINDS.tolist(), strict=True)]
    return gzip.compress("".join([f"a\tb\t{label}\n", *rows]).encode(), mtime=0)


LAYOUTS = {
    "clone": ("datasets/letter/letter.tsv.gz", "target"),
    "cache of the package": ("letter/letter.tsv.gz", "target"),
    "first releases": ("classification/letter.csv.gz", "class"),
}


def write(root: Path, path: str, content: bytes) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


@pytest.mark.parametrize(("path", "label"), LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout(tmp_path: Path, path: str, label: str) -> None:
    file = write(tmp_path, path, table(label))
    data = load("pmlb", table="letter", root=str(tmp_path))
    np.testing.assert_array_equal(data.splits["all"].x, X)
    np.testing.assert_array_equal(data.splits["all"].y, KINDS)
    assert (data.task.classes, data.source) == (("0", "1", "2"), str(file))


def test_columns_may_be_left_out(tmp_path: Path) -> None:
    write(tmp_path, "letter/letter.tsv.gz", table("target"))
    data = load("pmlb", table="letter", root=str(tmp_path), drop=["b"])
    np.testing.assert_array_equal(data.splits["all"].x, X[:, :1])
    assert "has no column 'c'" in refusal("pmlb", table="letter", root=str(tmp_path), drop=["c"])


@pytest.mark.parametrize(
    "name", ["../letter", "/etc/passwd", "..", ".", "", "a/b", "a\\b", "letter\n", "a b", "x" * 200]
)
def test_a_name_is_not_a_path(tmp_path: Path, name: str) -> None:
    write(tmp_path, "letter/letter.tsv.gz", table("target"))
    (tmp_path / "root").mkdir()
    assert refusal("pmlb", table=name, root=str(tmp_path / "root")).startswith("dataset.table should ")


def test_a_misspelt_table(tmp_path: Path) -> None:
    for name in ("letter", "pendigits"):
        write(tmp_path, f"classification/{name}.csv.gz", table("class"))
    message = refusal("pmlb", table="leter", root=str(tmp_path))
    said = "has no table 'leter'; did you mean letter? (known: letter, pendigits)"
    assert message == f"dataset.table: {tmp_path} {said}"


@pytest.mark.parametrize("root", ["nowhere", "~nobody-of-that-name", "x" * 300])
def test_a_root_without_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert "name a folder that holds its tables" in refusal("pmlb", table="letter", root=root)


def test_the_folder_decides_the_kind_of_task(tmp_path: Path) -> None:
    section = {"name": "pmlb", "root": str(tmp_path)}
    write(tmp_path, "classification/letter.csv.gz", table("class"))
    write(tmp_path, "regression/537_houses.tsv.gz", table("target"))
    with pytest.raises(InputError, match=r"letter.csv.gz has classes: expected task=classification, got"):
        load_data({**section, "table": "letter"}, 0, "regression")
    with pytest.raises(InputError, match=r"houses.tsv.gz has real targets: expected task=regression, got"):
        load_data({**section, "table": "537_houses"}, 0)
    houses = load_data({**section, "table": "537_houses"}, 0, "regression")
    np.testing.assert_array_equal(houses.splits["all"].y, KINDS)


def test_a_clone_without_the_content_of_its_files(tmp_path: Path) -> None:
    write(tmp_path, "datasets/letter/letter.tsv.gz", pointer(b""))
    assert "run git lfs pull in its folder" in refusal("pmlb", table="letter", root=str(tmp_path))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (table("target")[:-20], "cannot be read as CSV"),
        (b"no gzip", "cannot be read as CSV"),
        (table("label"), "expected a column target or class, got a, b, label"),
    ],
)
def test_broken_tables(tmp_path: Path, content: bytes, says: str) -> None:
    write(tmp_path, "letter/letter.tsv.gz", content)
    assert says in refusal("pmlb", table="letter", root=str(tmp_path))


# Downloads, from a server of ours


def pointer(content: bytes) -> bytes:
    """Return what the repository holds in place of a file in Git LFS."""
    return pmlb.POINTER + f"oid sha256:{hashlib.sha256(content).hexdigest()}\nsize {len(content)}\n".encode()


SUMMARY = b"dataset\tn_instances\ttask\nletter\t60\tclassification\n537_houses\t60\tregression\n"


class Repository:
    """A server of PMLB's files, and of the content of those that it keeps elsewhere."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.files = {f"/raw/{pmlb.SUMMARY}": SUMMARY}
        for name in ("letter", "537_houses"):
            path = f"datasets/{name}/{name}.tsv.gz"
            self.files |= {f"/raw/{path}": pointer(table("target")), f"/media/{path}": table("target")}

    def __call__(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        found = self.files.get(request.path)
        reply(request, 404) if found is None else reply(request, 200, found)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "nsvm" / "PMLB"


@pytest.fixture
def repository(cache: Path, trusted: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    files = Repository()
    with trusted.serving(files) as address:
        monkeypatch.setattr(pmlb, "REPOSITORY", f"{address}raw/")
        monkeypatch.setattr(pmlb, "CONTENT", f"{address}media/")
        yield files


def test_a_table_is_downloaded_once(repository: Repository, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        data = load("pmlb", table="letter")
        np.testing.assert_array_equal(data.splits["all"].x, X)
    assert repository.asked == [
        f"/raw/{pmlb.SUMMARY}",
        "/raw/datasets/letter/letter.tsv.gz",
        "/media/datasets/letter/letter.tsv.gz",
    ]
    said = capfd.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith("Downloading https://")


def test_the_summary_tells_which_tables_there_are_and_their_tasks(repository: Repository) -> None:
    message = refusal("pmlb", table="leter")
    assert message == (
        "dataset.table: PMLB has no table 'leter'; did you mean letter? (known: 537_houses, letter)"
    )
    assert repository.asked == [f"/raw/{pmlb.SUMMARY}"]
    assert "has real targets: expected task=regression" in refusal("pmlb", table="537_houses")


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        ("/media/datasets/letter/letter.tsv.gz", table("class"), "does not match the known hash"),
        ("/media/datasets/letter/letter.tsv.gz", None, "404 Client Error"),
        ("/raw/datasets/letter/letter.tsv.gz", b"<html>", "its repository states no checksum"),
        ("/raw/datasets/letter/letter.tsv.gz", b"x" * 2000, "expected at most 1024 bytes"),
        (f"/raw/{pmlb.SUMMARY}", None, "404 Client Error"),
        (f"/raw/{pmlb.SUMMARY}", b"\xff", "can't decode byte"),
    ],
)
def test_a_download_that_fails(
    repository: Repository, cache: Path, path: str, content: bytes | None, says: str
) -> None:
    if content is None:
        del repository.files[path]
    else:
        repository.files[path] = content
    message = refusal("pmlb", table="letter")
    assert message.startswith("dataset.table: letter cannot be downloaded (")
    assert says in message
    assert "name a folder that holds its tables with dataset.root=FOLDER" in message
    assert "omit" not in message
    assert not [*cache.rglob("*.tsv.gz")]


def test_the_addresses_are_https_and_of_one_commit() -> None:
    for address in (pmlb.REPOSITORY, pmlb.CONTENT):
        assert address.startswith("https://")
        assert address.endswith(f"/{pmlb.REVISION}/")


def test_the_real_letters() -> None:
    data = load("pmlb", table="letter", root=str(real("pmlb")))
    assert data.splits["all"].x.shape == (20_000, 16)
    assert (len(data.task.classes), len(data.splits["test"])) == (26, 2000)
    sizes, tested = (np.bincount(data.splits[name].y.numpy().astype(int)) for name in ("all", "test"))
    assert np.abs(tested - sizes / 10).max() < 1
