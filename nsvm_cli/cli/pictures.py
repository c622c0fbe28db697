"""The pictures of finished runs, which are drawn last: whatever goes wrong, a run stays finished."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nsvm_cli.errors import InputError, message_of
from nsvm_cli.output import say

if TYPE_CHECKING:
    from nsvm_cli.datasets import Data


def draw(directory: Path, data: Data | None = None) -> None:
    """Draw the pictures of a finished run, the curves last; warn of what cannot be drawn.

    Args:
        directory: the run directory.
        data: the data of the run, if they are loaded already.
    """
    with _warning("the mistakes"):
        from nsvm_cli.report.mistakes import draw_mistakes  # slow to import: the result is shown first

        draw_mistakes(directory, data)
    with _warning("the curves"):
        from nsvm_cli.report.curves import draw_curves

        draw_curves(directory)


@contextlib.contextmanager
def _warning(picture: str) -> Iterator[None]:
    """Turn an error in the block into a warning."""
    try:
        yield
    except Exception as error:
        say(f"nsvm: warning: {picture} could not be drawn: {' '.join(message_of(error).split())}")


def lacks_pictures(directory: Path) -> bool:
    """Return whether the settings of a finished run ask for curves that it has not."""
    from nsvm_cli.storage.run_directory import CURVES, read_config

    try:
        return not (directory / CURVES).exists() and bool(read_config(directory).get("curves"))
    except InputError:
        return False
