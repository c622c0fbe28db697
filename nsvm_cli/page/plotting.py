"""Common functions for plots in matplotlib's default style, regardless of any matplotlibrc."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsvm_cli.page.document import Picture
from nsvm_cli.storage.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GRAY = "#1f5fa8", "#c8641e", "#777777"
SERIES = (
    *(BLUE, ORANGE, "#2f7d4a", "#7a4fa3", "#b83245"),
    *("#137a86", "#8a5a2b", "#b2478f", "#6d7a12", "#5b6676"),
)
"""The colours of series and classes."""


@contextlib.contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """Context manager: yield a figure to draw on, with width and height in inches."""
    with _plain_matplotlib():
        from matplotlib.figure import Figure

        yield Figure(figsize=(width, height), dpi=150, layout="constrained")


def write_figure(file: Path, figure: Figure) -> Path:
    """Write a figure as PNG or PDF, depending on the suffix of the file, and return the file."""
    write_atomically(file, _drawn(figure, format=file.suffix[1:]))
    return file


def to_picture(figure: Figure, text: str) -> Picture:
    """Return a figure as a picture for a page. ``text`` describes the picture to blind readers."""
    png = _drawn(figure, format="png", dpi=200, transparent=True)
    return Picture(png, text, round(96 * figure.get_figwidth()))


def _drawn(figure: Figure, **options: Any) -> bytes:
    buffer = io.BytesIO()
    with _plain_matplotlib():
        figure.savefig(buffer, metadata={"CreationDate": None}, **options)
    return buffer.getvalue()


@contextlib.contextmanager
def _plain_matplotlib() -> Iterator[None]:
    """Context manager: use matplotlib's default style, without mathtext, warnings and logging."""
    logging.getLogger("matplotlib").setLevel(logging.CRITICAL + 1)  # hides messages about fonts and caches
    from matplotlib import style

    # with fonttype 42, PDF files contain text instead of drawings of letters
    settings = {"text.parse_math": False, "pdf.fonttype": 42}
    # the warnings are about characters that the font lacks
    with warnings.catch_warnings(action="ignore"), style.context(settings, after_reset=True):
        yield


def style_axis(axis: Axes, title: str, across: str, up: str = "") -> None:
    """Apply the common style of plots to an axis, with a title and labels."""
    axis.set_title(title, loc="left", fontsize=10)
    axis.set_xlabel(across, fontsize=8)
    axis.set_ylabel(up, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.3)
