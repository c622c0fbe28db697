"""Downloads into the user's cache folder."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from nsvm_cli.output import say


def fetch(address: str, sha256: str | None, folder: Path) -> Path:
    """Return the path of a file in a folder, after downloading the file if it is missing or damaged.

    Raises:
        OSError: the file cannot be downloaded.
        ValueError: the file does not have the checksum ``sha256``.
    """
    import pooch  # slow to import, and most runs download nothing

    def keep_packed(response: Any, **_: object) -> None:
        # some servers send .gz files with an encoding that requests would undo
        response.raw.headers.pop("content-encoding", None)

    def download(address: str, file: str, retrieving: object) -> None:
        say(f"Downloading {address}")
        as_stored = {"headers": {"Accept-Encoding": "identity"}, "hooks": {"response": keep_packed}}
        timeout = (10, 60)  # seconds to connect, and between two reads
        pooch.HTTPDownloader(chunk_size=2**16, timeout=timeout, **as_stored)(address, file, retrieving)

    pooch.get_logger().setLevel("WARNING")
    try:
        return Path(pooch.retrieve(address, sha256, address.rpartition("/")[2], folder, downloader=download))
    except (OSError, ValueError) as error:  # requests raises OSErrors
        raise type(error)(f"{address}: {reason(error)}") from None


def reason(error: Exception) -> str:
    """Return the cause of a failed download, without the details of the packages that requests uses."""
    cause = getattr(error.args[0], "reason", error) if error.args else error
    cause = getattr(cause, "__cause__", None) or cause
    return textwrap.shorten(str(cause) or type(cause).__name__, 200, placeholder=" ...")
