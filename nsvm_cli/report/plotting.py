"""matplotlib as all pictures use it: its default style, whatever a matplotlibrc says, and without a word."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsvm_cli.storage.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GRAY = "#1f5fa8", "#c8641e", "#777777"


def draw(file: Path, size: tuple[float, float], plot: Callable[[Figure], object]) -> None:
    """Write what ``plot`` draws on a figure of this size, in inches, as a PNG file."""
    with _plain_matplotlib():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=size, dpi=150, layout="constrained")
        plot(figure)
        buffer = io.BytesIO()
        canvas: Any = FigureCanvasAgg(figure)
        canvas.print_png(buffer)  # figure.savefig would draw twice, for the layout first
    write_atomically(file, buffer.getvalue())


@contextlib.contextmanager
def _plain_matplotlib() -> Iterator[None]:
    """Use matplotlib's default style, take a $ in a text for a $, and keep its messages to itself."""
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
            yield
    finally:
        log.setLevel(level)


def style_axis(axis: Axes, title: str) -> None:
    """Apply the common style of all plots to an axis."""
    axis.set_title(title, loc="left", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
