"""Downloads from a local https server: the right file in full, or none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from nsvm_cli.datasets.download import fetch
from tests.datasets.https_server import Answer, Authority, listening, reply

CONTENT = b"a.gz" * 50_000
SUM = hashlib.sha256(CONTENT).hexdigest()


class Server:
    """A server of CONTENT, whose answers can change between two requests."""

    def __init__(self) -> None:
        self.address = ""
        self.asked: list[str] = []
        self.answer: Answer = right

    def __call__(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        self.answer(request)


def right(request: BaseHTTPRequestHandler) -> None:
    """A packed file stays packed, whatever the server says of it."""
    reply(request, 200, CONTENT, Content_Encoding="x-gzip")


@pytest.fixture
def server(trusted: Authority) -> Iterator[Server]:
    server = Server()
    with trusted.serving(server) as address:
        server.address = f"{address}a.gz"
        yield server


def test_a_file_is_downloaded_once(server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        file = fetch(server.address, SUM, tmp_path / "deep" / "folder")
        assert file.read_bytes() == CONTENT
    assert server.asked == ["/a.gz"]
    assert capfd.readouterr() == ("", f"Downloading {server.address}\n")
    file.write_bytes(b"damaged")
    assert fetch(server.address, SUM, file.parent).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda request: reply(request, 200, CONTENT[1:]), "does not match the known hash"),
        (
            lambda request: reply(request, 200, CONTENT[1:], Content_Length="200000"),
            "IncompleteRead",
        ),
        (lambda request: reply(request, 404, b"<html>"), "404 Client Error"),
    ],
)
def test_a_bad_download_leaves_no_file(server: Server, tmp_path: Path, answer: Answer, says: str) -> None:
    server.answer = answer
    with pytest.raises((OSError, ValueError), match=rf"^{server.address}: .*{says}"):
        fetch(server.address, SUM, tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_no_network(tmp_path: Path) -> None:
    with listening(right) as port:
        pass
    with pytest.raises(OSError, match=r"Connection refused$"):
        fetch(f"https://127.0.0.1:{port}/a.gz", SUM, tmp_path)
