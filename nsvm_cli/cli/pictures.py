"""The curves of finished runs, drawn last, so that a failure to draw does not affect the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nsvm_cli.errors import message_of
from nsvm_cli.output import flash, say
from nsvm_cli.storage.run_directory import CURVES, has_records, read_config


def draw_missing(directories: Sequence[Path]) -> None:
    """Draw the curves of those finished runs whose settings ask for them and that have none.

    A method without steps has nothing to draw.
    """
    for number, directory in enumerate(directories, 1):
        try:
            if (directory / CURVES).exists() or not read_config(directory).get("curves"):
                continue
            if not has_records(directory):
                continue
            flash(f"drawing curves: {number}/{len(directories)}")
            from nsvm_cli.page.curves import draw_curves  # slow to import: the result is shown first

            draw_curves(directory)
        except Exception as error:
            say(f"nsvm: warning: the curves could not be drawn: {' '.join(message_of(error).split())}")
