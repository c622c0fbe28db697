"""The curves of finished runs, drawn last, so that a failure to draw does not affect the run."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from nsvm_cli.errors import InputError, message_of
from nsvm_cli.output import flash, say
from nsvm_cli.storage.run_directory import CURVES, read_config


def draw_missing(directories: Sequence[Path]) -> None:
    """Draw the curves of those finished runs whose settings ask for them and that have none."""
    missing = [directory for directory in directories if _lacks_curves(directory)]
    for number, directory in enumerate(missing, 1):
        draw(directory)
        flash(f"drawing curves: {number}/{len(missing)}")


def _lacks_curves(directory: Path) -> bool:
    with contextlib.suppress(InputError):
        return not (directory / CURVES).exists() and bool(read_config(directory).get("curves"))
    return False


def draw(directory: Path) -> None:
    """Draw the curves of a finished run; warn if they cannot be drawn."""
    try:
        from nsvm_cli.page.curves import draw_curves  # slow to import: the result is shown first

        draw_curves(directory)
    except Exception as error:
        say(f"nsvm: warning: the curves could not be drawn: {' '.join(message_of(error).split())}")
