"""Downloads over https only, verified before they get their final name."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import platformdirs

from nsvm_cli.output import say
from nsvm_cli.storage.files import locked

if TYPE_CHECKING:
    from requests import PreparedRequest, Response, Session

TIMEOUT = (10, 60)
"""Seconds to wait for a connection and between two reads."""


def cache_folder() -> Path:
    """Return the folder for downloads; on Linux ``$XDG_CACHE_HOME/nsvm``, by default ``~/.cache/nsvm``."""
    return platformdirs.user_cache_path("nsvm", appauthor=False)


@contextmanager
def https_only() -> Iterator[None]:
    """Restrict the requests library to https, and give every request a timeout, within the context.

    It patches ``Session.send``, which redirects pass through too.
    """
    from requests import Session  # slow to import, and most runs download nothing
    from requests.exceptions import InvalidSchema

    send = Session.send

    def guarded(self: Session, request: PreparedRequest, **options: Any) -> Response:
        if urlsplit(request.url).scheme != "https":
            raise InvalidSchema(f"{request.url} is not https")
        return send(self, request, **{**options, "timeout": options.get("timeout") or TIMEOUT})

    Session.send = guarded  # type: ignore[method-assign]
    try:
        yield
    finally:
        Session.send = send  # type: ignore[method-assign]


def fetch(folder: Path, sums: Mapping[str, str], mirrors: Sequence[str]) -> None:
    """Download the files that a folder lacks.

    If several processes need them, one downloads and the others wait.

    Args:
        folder: the folder.
        sums: the name and the SHA-256 checksum of each file.
        mirrors: base addresses, tried in this order.

    Raises:
        OSError: no mirror has the right files, or the folder cannot be written to.
    """
    with locked(folder, wait=True), https_only():
        partial = folder / ".partial"
        shutil.rmtree(partial, ignore_errors=True)  # left by a download that was killed
        failures = []
        for mirror in mirrors:
            missing = {name: known for name, known in sums.items() if not (folder / name).is_file()}
            if not missing:
                return
            say(f"Downloading {', '.join(missing)} from {mirror}")
            partial.mkdir()
            try:
                for name, known in missing.items():
                    _retrieve(partial, name, known, mirror).replace(folder / name)
                return
            except (
                OSError,
                ValueError,
            ) as error:  # requests' errors are OSErrors, a wrong sum is a ValueError
                failures.append(f"{mirror}: {reason(error)}")
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        raise OSError("; ".join(failures))


def fetch_text(address: str, limit: int) -> str:
    """Return a text of at most ``limit`` bytes from an address.

    Raises:
        OSError: it cannot be downloaded.
        ValueError: it is longer, or is not UTF-8.
    """
    import requests

    content = bytearray()
    with https_only(), requests.get(address, stream=True, timeout=TIMEOUT) as response:
        response.raise_for_status()
        for chunk in response.iter_content(2**16):
            content += chunk
            if len(content) > limit:
                raise ValueError(f"{address}: expected at most {limit} bytes")
    return content.decode()


def _retrieve(folder: Path, name: str, known: str, mirror: str) -> Path:
    import pooch  # imports requests

    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.HTTPDownloader(
        chunk_size=2**16,
        timeout=TIMEOUT,
        headers={"Accept-Encoding": "identity"},
        hooks={"response": _as_stored},
    )
    return Path(pooch.retrieve(mirror + name, f"sha256:{known}", name, folder, downloader=downloader))


def _as_stored(response: Response, **_: Any) -> None:
    """Drop the content encoding: some servers send .gz files with one, and requests would unpack them."""
    response.raw.headers.pop("content-encoding", None)


def reason(error: Exception) -> str:
    """Return the cause of a failure in a few words, without urllib3's text about connections and retries."""
    from urllib3.exceptions import NewConnectionError

    cause = getattr(error.args[0], "reason", error) if error.args else error
    if isinstance(cause, NewConnectionError):
        cause = cause.__cause__ or cause
    return textwrap.shorten(str(cause) or type(cause).__name__, 200, placeholder=" ...")
