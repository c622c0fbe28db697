"""Helpers for the tests of data sets, including a local HTTP server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from nsvm_cli.datasets import Data, Samples, load_data
from nsvm_cli.errors import InputError


def load(name: str, seed: int = 0, **settings: Any) -> Data:
    return load_data({"name": name, **settings}, seed)


def refusal(name: str, **settings: Any) -> str:
    """Check that loading the data set fails with a one-line error, and return the message."""
    with pytest.raises(InputError) as caught:
        load(name, **settings)
    message = str(caught.value)
    assert message
    assert len(message.splitlines()) == 1
    return message


def labelled(negative: int, positive: int, official_test: int | None = None) -> Samples:
    """Return samples of two classes in random order, whose only feature is their row number."""
    y = np.concatenate([np.full(negative, -1.0), np.full(positive, 1.0)])
    y = np.random.default_rng(3).permutation(y)
    return Samples(np.arange(len(y), dtype=np.float64)[:, None], y, ("no", "yes"), "a table", official_test)


@contextmanager
def serving(content: bytes, status: int = 200, **headers: str) -> Iterator[tuple[str, list[str]]]:
    """Context manager: serve ``content`` at every path; yield the address and a list of requested paths."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            for name, value in {"Content_Length": str(len(content)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", asked
        finally:
            server.shutdown()
            thread.join()
