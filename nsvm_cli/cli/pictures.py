"""Pictures of finished runs, drawn last, so that a failure to draw does not affect the run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nsvm_cli.errors import InputError, message_of
from nsvm_cli.output import flash, say
from nsvm_cli.plugins import load_plugins, plugin_error

if TYPE_CHECKING:
    from nsvm_cli.datasets import Data, SampleCache

RUNS_PER_PROCESS = 8
"""Runs whose pictures take as long as it takes a process to import torch and matplotlib, about."""


def draw_all(directories: Sequence[Path], plugins: Sequence[str]) -> None:
    """Draw the pictures of finished runs, those of many runs in several processes; see ``draw``.

    Args:
        plugins: the user's modules that the models may need.
    """
    from concurrent.futures import as_completed

    from nsvm_cli.parallel.workers import Workers, cores, outcome

    count = min(cores(), len(directories) // RUNS_PER_PROCESS)
    with _warning("the pictures"), contextlib.ExitStack() as stack:
        if count < 2:
            load_plugins(plugins if directories else ())  # only the launcher's processes may have them
            drawn: Iterator[None] = map(_draw_next, directories)
        else:
            workers = stack.enter_context(Workers(count, partial(load_plugins, plugins)))
            futures = [workers.submit(_draw_next, directory) for directory in directories]
            drawn = map(outcome, as_completed(futures))
        for number, _ in enumerate(drawn, 1):
            flash(f"drawing curves: {number}/{len(directories)}")


def _draw_next(directory: Path) -> None:
    from nsvm_cli.datasets import shared_samples

    draw(directory, samples=shared_samples("pictures"))


def draw(directory: Path, data: Data | None = None, samples: SampleCache | None = None) -> None:
    """Draw the pictures of a finished run, the curves last; warn of what cannot be drawn."""
    with _warning("the mistakes"):
        from nsvm_cli.page.mistakes import draw_mistakes  # slow to import: the result is shown first

        draw_mistakes(directory, data, samples)
    with _warning("the confusion matrix"):
        from nsvm_cli.page.confusion_picture import draw_confusion

        draw_confusion(directory)
    with _warning("the curves"):
        from nsvm_cli.page.curves import draw_curves

        draw_curves(directory)


@contextlib.contextmanager
def _warning(what: str) -> Iterator[None]:
    """Turn an error in the block into a warning."""
    try:
        yield
    except Exception as error:
        reason = message_of(plugin_error(error) or error)
        say(f"nsvm: warning: {what} could not be drawn: {' '.join(reason.split())}")


def lacks_pictures(directory: Path) -> bool:
    """Return whether the settings of a finished run ask for curves that are missing."""
    from nsvm_cli.storage.run_directory import CURVES, read_config

    try:
        return not (directory / CURVES).exists() and bool(read_config(directory).get("curves"))
    except InputError:
        return False
