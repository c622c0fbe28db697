"""Render formulas as MathML while building: pages need neither JavaScript nor a network for them."""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    translator.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def visit_display(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on lines of its own; a wide one scrolls."""
    translator.body.append(f'<div class="formula">{_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def _mathml(node: nodes.Element, as_block: bool) -> str:
    try:
        return str(tex2mathml(node.astext(), as_block=as_block))
    except MathError as error:
        logger.warning("cannot render %r: %s", node.astext(), error, location=node)
        return ""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
