"""A local https server, and the certificate authority that signs its certificate."""

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
    """Signs the server's certificate; requests trusts it if REQUESTS_CA_BUNDLE names ``bundle``."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.bundle = folder / "authority.pem"
        authority.cert_pem.write_to_path(str(self.bundle))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self._context)

    @contextmanager
    def serving(self, answer: Answer) -> Iterator[str]:
        """Start a server that calls ``answer`` for each request in a new thread; return its address."""
        with listening(answer, self._context) as port:
            yield f"https://127.0.0.1:{port}/"


@contextmanager
def listening(answer: Answer, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Start a server, over plain http without a context, and return its port."""

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
