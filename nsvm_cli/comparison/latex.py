"""LaTeX, as the tables of studies have it."""

from __future__ import annotations

import re

ESCAPES = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
ESCAPES |= {c: f"\\{c}" for c in "&%$#_{}"}
ESCAPES |= {"±": r"$\pm$", "²": "$^2$", "<": "$<$", ">": "$>$", "|": r"\textbar{}"}
ESCAPES |= {"[": "{[}", "*": "{*}"}  # at the beginning of a row, these would belong to the \\ before it

LATIN = re.compile("[ -~À-ÏÑ-Ýß-ïñ-ýÿ]")
"""The letters that every engine of LaTeX has, in any encoding of fonts."""


def escaped(text: str) -> str:
    r"""Return LaTeX for a text.

    Of other letters than Latin ones, lualatex and xelatex, which alone have \Umathcode, get the letter itself
    and pdflatex gets its number.
    """
    return "".join(ESCAPES.get(c) or (c if LATIN.match(c) else _other(c)) for c in text)


def _other(letter: str) -> str:
    return rf"\ifdefined\Umathcode {letter}\else U+{ord(letter):04X}\fi{{}}"
