"""A server on this machine that speaks https, and the authority that vouches for it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import trustme

Answer = Callable[[BaseHTTPRequestHandler], None]


class Authority:
    """Signs the servers' certificate; requests trusts it where REQUESTS_CA_BUNDLE names ``bundle``."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.bundle = folder / "authority.pem"
        authority.cert_pem.write_to_path(str(self.bundle))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self._context)

    @contextmanager
    def serving(self, answer: Answer) -> Iterator[str]:
        """The address of a server; ``answer`` is called with each request, in a thread of its own."""
        with listening(answer, self._context) as port:
            yield f"https://127.0.0.1:{port}/"


@contextmanager
def listening(answer: Answer, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of a server, over plain http without a context."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that was killed
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def reply(request: BaseHTTPRequestHandler, status: int, content: bytes = b"", **headers: str) -> None:
    request.send_response(status)
    for name, value in {"Content_Length": str(len(content)), **headers}.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(content)
