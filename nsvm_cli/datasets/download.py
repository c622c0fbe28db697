"""Downloads over https only, verified before they get their final name."""

from __future__ import annotations

import hashlib
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from nsvm_cli.output import say
from nsvm_cli.storage.files import locked

if TYPE_CHECKING:
    from requests import Session

TIMEOUT = (10, 60)
"""Seconds to wait for a connection and between two reads."""


def cache_folder() -> Path:
    """Return the folder for downloads; on Linux ``$XDG_CACHE_HOME/nsvm``, by default ``~/.cache/nsvm``."""
    return platformdirs.user_cache_path("nsvm", appauthor=False)


def _session() -> Session:
    """Return a session of requests that has no way to send anything but https, also when redirected."""
    from requests import Session  # slow to import, and most runs download nothing

    session = Session()
    del session.adapters["http://"]
    return session


def fetch(folder: Path, sums: Mapping[str, str], mirrors: Sequence[str]) -> None:
    """Download the files that a folder lacks.

    If several processes need them, one downloads and the others wait.

    Args:
        sums: the name and the SHA-256 checksum of each file.
        mirrors: base addresses, tried in this order.

    Raises:
        OSError: no mirror has the right files, or the folder cannot be written to.
    """
    with locked(folder, wait=True), _session() as session:
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
                    _retrieve(session, mirror + name, partial / name, known)
                    (partial / name).replace(folder / name)
                return
            except (OSError, ValueError) as error:  # requests' errors are OSErrors
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
    content = bytearray()
    with _session() as session, session.get(address, stream=True, timeout=TIMEOUT) as response:
        response.raise_for_status()
        for chunk in response.iter_content(2**16):
            content += chunk
            if len(content) > limit:
                raise ValueError(f"{address}: expected at most {limit} bytes")
    return content.decode()


def _retrieve(session: Session, address: str, file: Path, known: str) -> None:
    """Download a file.

    Raises:
        OSError: it cannot be downloaded.
        ValueError: its SHA-256 checksum is another one.
    """
    digest = hashlib.sha256()
    as_stored = {"Accept-Encoding": "identity"}
    with (
        session.get(address, headers=as_stored, stream=True, timeout=TIMEOUT) as response,
        file.open("wb") as target,
    ):
        response.raise_for_status()
        # some servers send .gz files with an encoding that requests would undo
        response.raw.headers.pop("content-encoding", None)
        for chunk in response.iter_content(2**16):
            target.write(chunk)
            digest.update(chunk)
    if digest.hexdigest() != known:
        raise ValueError(f"{address}: expected SHA-256 {known}, got {digest.hexdigest()}")


def reason(error: Exception) -> str:
    """Return the cause of a failure in a few words, without urllib3's text about connections and retries."""
    from urllib3.exceptions import NewConnectionError

    cause = getattr(error.args[0], "reason", error) if error.args else error
    if isinstance(cause, NewConnectionError):
        cause = cause.__cause__ or cause
    return textwrap.shorten(str(cause) or type(cause).__name__, 200, placeholder=" ...")
