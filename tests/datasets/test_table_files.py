"""Files of tables: archives are unpacked, damaged ones are refused, and a bomb is measured, not read."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.datasets.helpers import load, refusal

TABLE = "a,label\n" + "".join(f"{i},{'xy'[i % 2]}\n" for i in range(40))


def zipped(*contents: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, content in enumerate(contents):
            archive.writestr(f"{number}.csv", content)
    return buffer.getvalue()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "t.csv.zip": zipped,
    "t.CSV.GZ": gzip.compress,
    "t.csv.bz2": bz2.compress,
    "t.csv.xz": lzma.compress,
}


@pytest.mark.parametrize("name", PACKED)
def test_a_table_in_an_archive(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(PACKED[name](TABLE.encode()))
    data = load("csv", path=str(tmp_path / name))
    np.testing.assert_array_equal(data.splits["all"].x[:, 0], np.arange(40))
    assert data.origins == (hashlib.sha256(TABLE.encode()).hexdigest(),), "that of the table as a plain file"


DAMAGED = [
    *((name, b"no archive") for name in PACKED),
    ("cut.csv.gz", gzip.compress(TABLE.encode())[:-30]),
    ("cut.zip", zipped(TABLE.encode())[:-30]),
    ("two.zip", zipped(TABLE.encode(), TABLE.encode())),
    ("t.csv.zst", b"\x28\xb5\x2f\xfd" + bytes(20)),
]


@pytest.mark.parametrize(("name", "content"), DAMAGED, ids=lambda value: str(value)[:12])
def test_a_damaged_archive_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    said = refusal("csv", path=str(tmp_path / name))
    assert said.startswith(f"dataset.path={tmp_path / name} cannot be read as CSV: ")


def test_a_compression_that_needs_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "t.csv.zst").write_bytes(b"any")
    assert refusal("csv", path=str(tmp_path / "t.csv.zst")) == (
        f"dataset.path={tmp_path}/t.csv.zst cannot be read as CSV: .zst needs zstandard: "
        "pip install zstandard, or unpack the file"
    )


@pytest.mark.parametrize("content", [b"\0" * 2**20, b"1,1,1,1\n" * 2**17])
def test_a_bomb_is_measured_before_it_is_read(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(400 * gzip.compress(content))
    said = refusal("csv", path=str(path))
    assert said.startswith(f"dataset.path={path} needs about ")
    assert "MiB of memory, more than memory_budget=1024" in said
