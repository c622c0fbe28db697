"""Files of tables: archives are unpacked, damaged ones are refused, and a bomb is measured, not read."""

from __future__ import annotations

import gzip
import hashlib
import io
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


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("t.csv.zip", zipped),
        ("t.CSV.GZ", gzip.compress),
    ],
)
def test_a_table_in_an_archive(name: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(pack(TABLE.encode()))
    data = load("csv", path=str(tmp_path / name))
    np.testing.assert_array_equal(data.splits["all"].x[:, 0], np.arange(40))
    assert data.origins == (hashlib.sha256(TABLE.encode()).hexdigest(),), "that of the table as a plain file"


DAMAGED = {
    "two.zip": zipped(TABLE.encode(), TABLE.encode()),
    "t.csv.zst": b"\x28\xb5\x2f\xfd" + bytes(20),
    "t.zip": zipped(TABLE.encode())[:-30],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_archive_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(DAMAGED[name])
    said = refusal("csv", path=str(tmp_path / name))
    assert said.startswith(f"dataset.path={tmp_path / name} cannot be read as CSV: ")


@pytest.mark.parametrize("content", [b"\0" * 2**20, b"1,1,1,1\n" * 2**17])
def test_a_bomb_is_measured_before_it_is_read(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(400 * gzip.compress(content))
    said = refusal("csv", path=str(path))
    assert said.startswith(f"dataset.path={path} needs about ")
    assert "MiB of memory, more than memory_budget=1024" in said
