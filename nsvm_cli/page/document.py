"""Pages: sections of text, tables and pictures as one HTML file that needs nothing else, and runs no script.

Texts may come from files of others: the template escapes them, and those that a browser should not obey
either, such as a change of the direction of writing, are shown as escapes.
"""

from __future__ import annotations

import base64
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from markupsafe import Markup

from nsvm_cli import __version__
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.output import printable


@dataclass(frozen=True)
class Command:
    text: str


@dataclass(frozen=True)
class Table:
    """A table, each row of which begins with its name.

    Attributes:
        numbers: the columns that hold numbers.
        shades: how dark the background of the cells after the names is, from 0 to 1.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Container[int] = ()
    shades: Sequence[Sequence[float]] = ()


@dataclass(frozen=True)
class Picture:
    """A PNG file, what it shows, and for a figure its width in pixels of the page."""

    png: bytes
    text: str
    width: int = 0

    @property
    def address(self) -> str:
        """The address of the picture, which holds all of it."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


@dataclass(frozen=True)
class Images:
    """Pictures of samples in rows."""

    caption: str
    images: Sequence[Picture]


Block: TypeAlias = str | Mapping[str, str] | Command | Table | Picture | Images
"""A paragraph, the most important figures by their names, or what blocks.html.jinja has a macro for."""

Blocks: TypeAlias = Iterable[Block | list[Block]]
"""What a section shows: blocks one below the other, and lists of those that stand side by side."""


@dataclass(frozen=True)
class Section:
    """A part of a page under a heading; ``lacks`` is the sentence in place of what cannot be had, and a part
    that is ``folded`` is shown at a click.
    """

    title: str
    blocks: Sequence[Block | list[Block]]
    lacks: str = ""
    folded: bool = False


def section(title: str, blocks: Blocks, folded: bool = False) -> list[Section]:
    """Return a section, with a sentence in place of what cannot be had; none if there is nothing to show."""
    try:
        shown = [*blocks]
    except (InputError, RunError) as error:
        return [left_out(title, "This part is", error)]
    return [Section(title, shown, folded=folded)] if shown else []


def left_out(title: str, what: str, error: Exception) -> Section:
    """Return a section with nothing but a sentence that says what is left out, and why."""
    sentence = f"{what} left out: {error}."
    return Section(title, [sentence], sentence)


def render(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Return a page as HTML, with the subtitle below its title."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow to import

    environment = Environment(
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
        loader=PackageLoader("nsvm_cli.page"),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    page = {"title": title, "subtitle": subtitle, "sections": sections, "version": __version__}
    return environment.get_template("page.html.jinja").render(page)
