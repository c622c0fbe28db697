"""Downloads from a local https server: the right files in full, or none."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from nsvm_cli.datasets import download
from nsvm_cli.datasets.download import fetch
from tests.datasets.https_server import Answer, Authority, listening, reply

FILES = {name: name.encode() * 50_000 for name in ("a.gz", "b.gz", "c.gz")}
SUMS = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}


class Files:
    """A server of FILES, whose behaviour can change between two requests."""

    def __init__(self) -> None:
        self.address = ""
        self.asked: list[str] = []
        self.ways: Answer = right

    def __call__(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path[1:])
        self.ways(request)


def right(request: BaseHTTPRequestHandler) -> None:
    reply(request, 200, FILES[request.path[1:]])


def changed(change: Callable[[bytes], bytes]) -> Answer:
    return lambda request: reply(request, 200, change(FILES[request.path[1:]]))


def half(request: BaseHTTPRequestHandler) -> None:
    """Send half of the promised bytes, and then nothing."""
    content = FILES[request.path[1:]]
    reply(request, 200, content[: len(content) // 2], Content_Length=str(len(content)))


class Halfway:
    """Send half of a file, and the rest when the test says so."""

    def __init__(self) -> None:
        self.reached, self.released = threading.Event(), threading.Event()

    def __call__(self, request: BaseHTTPRequestHandler) -> None:
        half(request)
        self.reached.set()
        assert self.released.wait(60)
        content = FILES[request.path[1:]]
        request.wfile.write(content[len(content) // 2 :])


@pytest.fixture
def server(trusted: Authority) -> Iterator[Files]:
    files = Files()
    with trusted.serving(files) as files.address:
        yield files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "folder"


def held(folder: Path) -> dict[str, bytes]:
    """Return the content of the folder, apart from the lock."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def refused(folder: Path, *mirrors: str) -> str:
    with pytest.raises(OSError, match=r"\S") as caught:
        fetch(folder, SUMS, mirrors)
    return str(caught.value)


@pytest.mark.parametrize("encoded", [{}, {"Content_Encoding": "x-gzip"}])
def test_the_right_files_arrive(
    server: Files, folder: Path, encoded: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    """A packed file stays packed, whatever the server says of it."""
    server.ways = lambda request: reply(request, 200, FILES[request.path[1:]], **encoded)
    fetch(folder, SUMS, [server.address])
    assert held(folder) == FILES
    assert capfd.readouterr() == ("", f"Downloading a.gz, b.gz, c.gz from {server.address}\n")


def test_only_missing_files_are_requested(
    server: Files, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir(parents=True)
    (folder / "b.gz").write_bytes(FILES["b.gz"])
    for _ in range(2):
        fetch(folder, SUMS, [server.address])
    assert server.asked == ["a.gz", "c.gz"]
    assert held(folder) == FILES
    assert capfd.readouterr().err.count("\n") == 1


BAD: dict[str, tuple[Answer, str]] = {
    "a flipped bit": (changed(lambda content: bytes([content[0] ^ 1]) + content[1:]), "expected SHA-256"),
    "empty": (changed(lambda _: b""), "expected SHA-256"),
    "cut in the middle": (half, "IncompleteRead"),
    "not found": (lambda request: reply(request, 404, b"<html>"), "404 Client Error"),
    "for ever elsewhere": (lambda request: reply(request, 302, Location=request.path), "30 redirects"),
    "to nowhere": (
        lambda request: reply(request, 302, Location="ftp://127.0.0.1/"),
        "No connection adapters",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_download_leaves_no_files(server: Files, folder: Path, kind: str) -> None:
    server.ways, says = BAD[kind]
    message = refused(folder, server.address)
    assert message.startswith(f"{server.address}: ")
    assert says in message
    assert held(folder) == {}
    server.ways = right
    fetch(folder, SUMS, [server.address])
    assert held(folder) == FILES


@pytest.mark.parametrize("at", ["the first request", "a redirect", "the end of redirects"])
def test_nothing_is_sent_over_plain_http(server: Files, folder: Path, at: str) -> None:
    plain: list[str] = []
    with listening(lambda request: plain.append(request.path)) as port:
        address = f"http://127.0.0.1:{port}/"

        def redirect(request: BaseHTTPRequestHandler) -> None:
            first = at == "the end of redirects" and "again" not in request.path
            reply(request, 302, Location="/again" if first else address + "a.gz")

        server.ways = redirect
        message = refused(folder, address if at == "the first request" else server.address)
    assert f"No connection adapters were found for '{address}a.gz'" in message
    assert plain == []
    assert held(folder) == {}


def test_a_redirect_to_https_is_followed(server: Files, trusted: Authority, folder: Path) -> None:
    with trusted.serving(
        lambda request: reply(request, 301, Location=server.address + request.path[1:])
    ) as a:
        fetch(folder, SUMS, [a])
    assert held(folder) == FILES


def test_an_untrusted_certificate_is_refused(
    server: Files, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    assert "certificate verify failed" in refused(folder, server.address)
    assert server.asked == []


def test_no_network(folder: Path) -> None:
    with listening(right) as port:
        pass
    address = f"https://127.0.0.1:{port}/"
    assert refused(folder, address) == f"{address}: [Errno 111] Connection refused"


def test_the_next_mirror_is_tried_if_the_first_fails(server: Files, trusted: Authority, folder: Path) -> None:
    server.ways = lambda request: half(request) if request.path == "/b.gz" else right(request)
    second = Files()
    with trusted.serving(second) as second.address:
        fetch(folder, SUMS, [server.address, second.address])
    assert (server.asked, second.asked) == (["a.gz", "b.gz"], ["b.gz", "c.gz"])
    assert held(folder) == FILES


def test_every_mirror_is_named_if_all_fail(server: Files, trusted: Authority, folder: Path) -> None:
    server.ways = half
    with trusted.serving(lambda request: reply(request, 404)) as second:
        message = refused(folder, server.address, second)
    assert server.address in message
    assert second in message


def test_a_folder_that_cannot_be_created(server: Files, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in refused(tmp_path / "file" / "folder", server.address)
    assert server.asked == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_truncated_download_is_refused(
    server: Files, folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("hashlib.sha256", fail)  # before the file is complete
        with pytest.raises((KeyboardInterrupt, OSError)) as caught:
            fetch(folder, SUMS, [server.address])
    if isinstance(caught.value, OSError):
        assert "No space left on device" in str(caught.value)
    assert held(folder) == {}
    fetch(folder, SUMS, [server.address])
    assert held(folder) == FILES


# Processes of their own; the file alone, for the package imports torch

FETCH = """
import json, runpy, sys
from pathlib import Path

file, folder, sums, mirror = sys.argv[1:]
fetch = runpy.run_path(file)["fetch"]
print("ready", flush=True)
fetch(Path(folder), json.loads(sums), [mirror])
"""


def start(folder: Path, mirror: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", FETCH, download.__file__, str(folder), json.dumps(SUMS), mirror]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_a_process_killed_during_a_download_leaves_no_harm(server: Files, folder: Path, signum: int) -> None:
    server.ways = halfway = Halfway()
    with start(folder, server.address) as process:
        assert halfway.reached.wait(60)
        os.kill(process.pid, signum)
        process.communicate(timeout=60)
        halfway.released.set()
    assert process.returncode == -signum
    assert not set(FILES) & {file.name for file in folder.iterdir()}
    server.ways = right
    fetch(folder, SUMS, [server.address])
    assert held(folder) == FILES


def test_only_one_of_several_processes_downloads(server: Files, folder: Path) -> None:
    server.ways = halfway = Halfway()
    processes = [start(folder, server.address) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    halfway.released.set()
    said = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, said
    assert sorted(server.asked) == sorted(FILES)
    assert held(folder) == FILES
    assert sum(map(len, (text.splitlines() for text in said))) == 1
