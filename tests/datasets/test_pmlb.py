"""Tables of the Penn Machine Learning Benchmarks (PMLB): layouts of folders, and download."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from nsvm_cli.datasets import repositories
from tests.conftest import real
from tests.datasets.conftest import Write
from tests.datasets.helpers import load, refusal, serving

X = np.random.default_rng(0).normal(size=(60, 2)).round(4)
KINDS = np.arange(60) % 3


def table(label: str) -> bytes:
    """Return a compressed table of three classes in the format of PMLB."""
    rows = [f"{a}\t{b}\t{kind}\n" for (a, b), kind in zip(X.tolist(), KINDS.tolist(), strict=True)]
    return gzip.compress("".join([f"a\tb\t{label}\n", *rows]).encode(), mtime=0)


LAYOUTS = {
    "PMLB's own": ("letter/letter.tsv.gz", "target"),
    "first releases": ("classification/letter.csv.gz", "class"),
}


@pytest.mark.parametrize(("path", "label"), LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout(write: Write, tmp_path: Path, path: str, label: str) -> None:
    file = write(table(label), path)
    data = load("pmlb", table="letter", root=str(tmp_path))
    np.testing.assert_array_equal(data.splits["all"].x, X)
    np.testing.assert_array_equal(data.splits["all"].y, KINDS)
    assert (data.task.classes, data.samples.source) == (("0", "1", "2"), file)


@pytest.mark.parametrize("name", ["../letter", "/etc/passwd", "..", "", "a\\b", "letter\n", "x" * 200])
def test_a_name_is_not_a_path(tmp_path: Path, name: str) -> None:
    assert refusal("pmlb", table=name, root=str(tmp_path)).startswith("dataset.table: String should ")


def test_a_misspelt_table(write: Write, tmp_path: Path) -> None:
    write(table("class"), "classification/letter.csv.gz")
    says = f"dataset.table: {tmp_path} has no table 'leter'; did you mean letter?"
    assert refusal("pmlb", table="leter", root=str(tmp_path)).startswith(says)


def test_a_table_without_labels(write: Write, tmp_path: Path) -> None:
    write(table("label"), "letter/letter.tsv.gz")
    says = "has no column 'target'; expected one of: a, b, label"
    assert says in refusal("pmlb", table="letter", root=str(tmp_path))


def test_a_table_is_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with serving(table("target")) as (address, asked):
        monkeypatch.setattr(repositories, "ADDRESS", address.rstrip("/"))
        for _ in range(2):
            np.testing.assert_array_equal(load("pmlb", table="letter").splits["all"].x, X)
    assert asked == ["/letter/letter.tsv.gz"]
    message = refusal("pmlb", table="leter")
    assert message.startswith("dataset.table=leter cannot be downloaded (")
    assert message.endswith("or set dataset.root=FOLDER to read local files")


def test_the_real_letters() -> None:
    data = load("pmlb", table="letter", root=str(real("pmlb")))
    assert data.splits["all"].x.shape == (20_000, 16)
    assert (len(data.task.classes), len(data.splits["test"])) == (26, 2000)
    sizes, tested = (np.bincount(data.splits[name].y.numpy().astype(int)) for name in ("all", "test"))
    assert np.abs(tested - sizes / 10).max() < 1
