"""The curves of finished runs, drawn last, so that a failure to draw does not affect the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nsvm_cli.errors import InputError, message_of
from nsvm_cli.output import flash, say


def draw_all(directories: Sequence[Path]) -> None:
    """Draw the curves of finished runs; see ``draw``."""
    for number, directory in enumerate(directories, 1):
        draw(directory)
        flash(f"drawing curves: {number}/{len(directories)}")


def draw(directory: Path) -> None:
    """Draw the curves of a finished run; warn if they cannot be drawn."""
    try:
        from nsvm_cli.page.curves import draw_curves  # slow to import: the result is shown first

        draw_curves(directory)
    except Exception as error:
        say(f"nsvm: warning: the curves could not be drawn: {' '.join(message_of(error).split())}")


def lacks_pictures(directory: Path) -> bool:
    """Return whether the settings of a finished run ask for curves that are missing."""
    from nsvm_cli.storage.run_directory import CURVES, read_config

    try:
        return not (directory / CURVES).exists() and bool(read_config(directory).get("curves"))
    except InputError:
        return False
