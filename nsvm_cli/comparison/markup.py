"""Markdown and LaTeX, as tables have them."""

from __future__ import annotations

import re
from collections.abc import Sequence


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with these column heads."""
    lines = [head, ["---"] * len(head), *rows]
    cells = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


ESCAPES = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
ESCAPES |= {c: f"\\{c}" for c in "&%$#_{}"}
ESCAPES |= {"±": r"$\pm$", "²": "$^2$", "<": "$<$", ">": "$>$", "|": r"\textbar{}"}
ESCAPES |= {"[": "{[}", "*": "{*}"}  # at the beginning of a row, these would belong to the \\ before it

LATIN = re.compile("[ -~À-ÏÑ-Ýß-ïñ-ýÿ]")
"""The letters that every engine of LaTeX has, in any encoding of fonts."""


def latex(text: str) -> str:
    r"""Return LaTeX for a text.

    Of other letters than Latin ones, lualatex and xelatex, which alone have \Umathcode, get the letter itself
    and pdflatex gets its number.
    """
    return "".join(ESCAPES.get(c) or (c if LATIN.match(c) else _other(c)) for c in text)


def _other(letter: str) -> str:
    return rf"\ifdefined\Umathcode {letter}\else U+{ord(letter):04X}\fi{{}}"
