"""How samples are shown: as images, or as the values of their columns."""

from __future__ import annotations

import base64
import io

import numpy as np
from jaxtyping import Float64, Real

from nsvm_cli.datasets import Split
from nsvm_cli.datasets.encoding import TableEncoder

MOST_COLUMNS = 30
"""The most columns that are shown."""

CHANNELS = {1, 3}
"""Samples of shape (channels, height, width) are images if they have so many: grey, or red, green, blue."""


def are_images(shape: tuple[int, ...]) -> bool:
    """Return whether samples of this shape are images."""
    return len(shape) == 3 and shape[0] in CHANNELS


def range_of(split: Split) -> tuple[float, float]:
    """Return the smallest and the largest value of any sample, between which its pixels are shown."""
    return float(split.x.min()), float(split.x.max())


def pixels(
    image: Real[np.ndarray, "channels height width"], ends: tuple[float, float]
) -> Float64[np.ndarray, "height width *channels"]:
    """Return an image as it is drawn: values from 0 to 1, the channels last; a grey one has none."""
    low, high = ends
    scaled = np.clip(np.moveaxis(image - np.float64(low), 0, -1) / (high - low or 1.0), 0, 1)
    return scaled.squeeze(-1) if scaled.shape[-1] == 1 else scaled


def data_uri(image: Real[np.ndarray, "channels height width"], ends: tuple[float, float]) -> str:
    """Return an image as the address of a picture that is part of it."""
    from PIL import Image  # slow to import, and not needed for tables

    png = io.BytesIO()
    Image.fromarray(np.rint(255 * pixels(image, ends)).astype(np.uint8)).save(png, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"


class Columns:
    """The columns of samples that are no images: those of a table, or of ``width`` features without names.

    Attributes:
        names: those of the first ``MOST_COLUMNS``, and an ellipsis if there are more.
        numbers: how many of the columns, the first ones, hold numbers.
        fills_cells: whether medians take the place of empty cells.
    """

    def __init__(self, encoder: TableEncoder | None, width: int) -> None:
        self.encoder = encoder
        features = [f"feature {n}" for n in range(1, min(width, MOST_COLUMNS + 1) + 1)]
        self.names = _first([*encoder.numbers, *encoder.text] if encoder else features)
        self.numbers = len(encoder.numbers if encoder else self.names)
        self.fills_cells = bool(encoder and encoder.numbers)

    def cells(self, x: Real[np.ndarray, " n"]) -> list[str]:
        """Return the cells of a sample's row, given its features.

        A cell of text that the model does not know is empty, as is one that was empty; an empty cell of
        numbers holds the median.
        """
        at = len(self.encoder.numbers) if self.encoder else MOST_COLUMNS + 1
        row = [f"{value:.10g}" for value in x[:at].tolist()]
        for categories in self.encoder.text.values() if self.encoder else ():
            chosen = np.flatnonzero(x[at : at + len(categories)])
            row.append((categories[chosen[0]] or "") if len(chosen) else "")
            at += len(categories)
        return _first(row)


def _first(cells: list[str]) -> list[str]:
    """Return the first ``MOST_COLUMNS``, and an ellipsis if there are more."""
    return cells if len(cells) <= MOST_COLUMNS else [*cells[:MOST_COLUMNS], "…"]
