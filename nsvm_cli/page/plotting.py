"""matplotlib as all pictures use it: its default style, whatever a matplotlibrc says, and without logging."""

from __future__ import annotations

import base64
import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from nsvm_cli.output import printable
from nsvm_cli.storage.files import write_atomically

if TYPE_CHECKING:
    from matplotlib import RcParams
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GRAY = "#1f5fa8", "#c8641e", "#777777"
SERIES = (
    *(BLUE, ORANGE, "#2f7d4a", "#7a4fa3", "#b83245"),
    *("#137a86", "#8a5a2b", "#b2478f", "#6d7a12", "#5b6676"),
)
"""The colours of series and classes."""

POINT, SMALLEST, LARGEST = 4 / 3, 0.75, 1.2
"""A point in pixels, and the scale of a figure that its page may choose: below, it scrolls."""


@contextlib.contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """Yield a figure of this size, in inches, to draw on within the context."""
    with plain_matplotlib():
        from matplotlib.figure import Figure

        yield Figure(figsize=(width, height), dpi=150, layout="constrained")


def write_figure(file: Path, figure: Figure) -> Path:
    """Write a figure as PNG or PDF, as the name of the file ends, and return the file; see
    ``write_atomically``.
    """
    form, buffer = file.suffix[1:], io.BytesIO()
    with plain_matplotlib() as parameters:
        from matplotlib.backend_bases import get_registered_canvas_class

        parameters["pdf.fonttype"] = 42  # text, where the default would be drawings of letters
        canvas: Any = get_registered_canvas_class(form)(figure)
        # figure.savefig would draw twice, for the layout first
        getattr(canvas, f"print_{form}")(buffer, metadata={"CreationDate": None})
    write_atomically(file, buffer.getvalue())
    return file


def to_svg(figure: Figure, label: str) -> Markup:
    """Return a figure as an ``img`` element that holds its SVG, without a background.

    Args:
        label: what it shows, for those who cannot see it.
    """
    written = io.BytesIO()
    with plain_matplotlib() as parameters:
        parameters.update({"svg.fonttype": "none", "svg.hashsalt": label})
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(written, format="svg", transparent=True, metadata=no_metadata)
    width = 72 * POINT * figure.get_figwidth()
    style = f"min-width: {SMALLEST * width:.0f}px; width: {LARGEST * width:.0f}px"
    content = base64.b64encode(written.getvalue()).decode()
    element = '<img class="drawing" src="data:image/svg+xml;base64,{}" alt="{}" style="{}">'
    return Markup(element).format(content, printable(label), style)


@contextlib.contextmanager
def plain_matplotlib() -> Iterator[RcParams]:
    """Use matplotlib's default style, take a $ in a text for a $, and keep its messages to itself.

    Yields matplotlib's parameters, which may be changed within the context.
    """
    log = logging.getLogger("matplotlib")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)  # it tells of fonts and caches, which Hydra's logging would print
    try:
        with contextlib.chdir(Path(__file__).parent):  # importing it reads ./matplotlibrc
            import matplotlib
        with warnings.catch_warnings(), matplotlib.rc_context():
            warnings.simplefilter("ignore")  # of characters that the font does not have
            matplotlib.rcdefaults()
            matplotlib.rcParams["text.parse_math"] = False
            yield matplotlib.rcParams
    finally:
        log.setLevel(level)


def style_axis(axis: Axes, title: str, across: str = "", up: str = "") -> None:
    """Apply the common style of all plots to an axis, and name its two directions."""
    axis.set_title(title, loc="left", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    if across or up:
        axis.set_xlabel(across, fontsize=8)
        axis.set_ylabel(up, fontsize=8)
