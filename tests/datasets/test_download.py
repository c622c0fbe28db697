"""Downloads from a local server: the file is complete and correct, or absent."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from nsvm_cli.datasets.download import fetch
from tests.datasets.helpers import serving

CONTENT = b"a.gz" * 50_000
SUM = hashlib.sha256(CONTENT).hexdigest()


def test_a_file_is_downloaded_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A compressed file stays compressed even if the server declares a content encoding."""
    with serving(CONTENT, Content_Encoding="x-gzip") as (address, asked):
        for _ in range(2):
            file = fetch(f"{address}a.gz", SUM, tmp_path / "deep" / "folder")
            assert file.read_bytes() == CONTENT
        assert asked == ["/a.gz"]
        assert capfd.readouterr() == ("", f"Downloading {address}a.gz\n")
        file.write_bytes(b"damaged")
        assert fetch(f"{address}a.gz", SUM, file.parent).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"content": CONTENT[1:]}, "does not match the known hash"),
        ({"content": CONTENT[1:], "Content_Length": "200000"}, "IncompleteRead"),
        ({"content": b"<html>", "status": 404}, "404 Client Error"),
    ],
)
def test_a_bad_download_leaves_no_file(tmp_path: Path, answer: Any, says: str) -> None:
    with (
        serving(**answer) as (address, _),
        pytest.raises((OSError, ValueError), match=rf"^{address}a.gz: .*{says}"),
    ):
        fetch(f"{address}a.gz", SUM, tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_no_network(tmp_path: Path) -> None:
    with serving(CONTENT) as (address, _):
        pass
    with pytest.raises(OSError, match=r"Connection refused$"):
        fetch(f"{address}a.gz", SUM, tmp_path)
