"""matplotlib's figures as SVG that takes its colours from the page that it stands in."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from markupsafe import Markup

from nsvm_cli.report.plotting import BLUE, GRAY, ORANGE, new_figure, plain_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES = {
    BLUE: "#7fb3ee",
    ORANGE: "#f2a066",
    "#2f7d4a": "#74c78f",
    "#7a4fa3": "#b99be0",
    "#b83245": "#f08a98",
    "#137a86": "#62c3cd",
    "#8a5a2b": "#cfa677",
    "#b2478f": "#ec9bd0",
    "#6d7a12": "#bccb5e",
    "#5b6676": "#a9b4c4",
}
"""The colours of series and classes on a light page, and those that take their place on a dark one."""

VARIABLES = {
    "#000000": "currentColor",
    GRAY: "var(--muted)",
    "#b0b0b0": "var(--line)",  # the grid
    **{light: f"var(--series-{n})" for n, light in enumerate(SERIES)},
}
"""What stands in the SVG for the colours that matplotlib draws with; others stay."""

POINT, SMALLEST, LARGEST = 4 / 3, 0.75, 1.2
"""A point in pixels, and the scale of a figure that its page may choose: below, it scrolls."""

REFERENCE = re.compile(r"#([\w-]+)")


def draw_svg(size: tuple[float, float], plot: Callable[[Figure], object], label: str) -> Markup:
    """Return what ``plot`` draws on a figure of this size, in inches; see ``to_svg``."""
    return to_svg(new_figure(size, plot), label)


def to_svg(figure: Figure, label: str) -> Markup:
    """Return a figure as an ``svg`` element to be placed in an HTML page, without a background.

    Args:
        figure: the figure.
        label: what it shows, for those who cannot see it; another one for each figure of a page, as the
            names of what it refers to derive from it.
    """
    written = io.BytesIO()
    with plain_matplotlib() as parameters:
        parameters.update({"svg.fonttype": "none", "svg.hashsalt": label})
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(written, format="svg", transparent=True, metadata=no_metadata)
    root = ElementTree.fromstring(written.getvalue())
    _take_style_of_page(root)
    _keep_ids_that_are_used(root)
    width = POINT * float(root.get("viewBox", "").split()[2])
    size = f"min-width: {SMALLEST * width:.0f}px; width: {LARGEST * width:.0f}px; max-width: 100%"
    root.attrib |= {"role": "img", "aria-label": label, "fill": "currentColor", "style": size}
    for name in ("width", "height", "version"):
        del root.attrib[name]
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _take_style_of_page(root: ElementTree.Element) -> None:
    """Put variables of the page in place of colours, and leave out fonts and namespaces: HTML has none."""
    for parent in [*root.iter()]:
        for child in [child for child in parent if child.tag.endswith(("}metadata", "}style"))]:
            parent.remove(child)  # the style is in the page, once
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
        if written := element.get("style"):
            pairs = [declaration.partition(":") for declaration in written.split(";")]
            style = [(name.strip(), value.strip()) for name, _, value in pairs]
            kept = [
                f"{name}: {VARIABLES.get(value, value)}" for name, value in style if name != "font-family"
            ]
            element.set("style", "; ".join(kept))


def _keep_ids_that_are_used(root: ElementTree.Element) -> None:
    """Remove the ids that nothing refers to, such as ``axes_1``, which every figure has."""
    values = (value for element in root.iter() for value in element.attrib.values())
    used = {name for value in values for name in REFERENCE.findall(value)}
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
