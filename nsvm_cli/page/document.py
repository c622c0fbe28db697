"""Pages: sections of text, tables and pictures as one self-contained HTML file without scripts.

Texts may come from untrusted files, so markup and unprintable characters are escaped.
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
    """A command line, shown as code."""

    text: str


@dataclass(frozen=True)
class Table:
    """A table with the name of each row in the first column.

    Attributes:
        numbers: the indices of the columns of numbers.
        shades: the darkness, from 0 to 1, of each cell after the name; empty for no shades.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Container[int] = ()
    shades: Sequence[Sequence[float]] = ()


@dataclass(frozen=True)
class Picture:
    """The content of a PNG file, its description and, for a plot, its width on the page in pixels."""

    png: bytes
    text: str
    width: int = 0

    @property
    def address(self) -> str:
        """The picture as a data URL."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


@dataclass(frozen=True)
class Images:
    """Pictures of samples, in rows."""

    caption: str
    images: Sequence[Picture]


Block: TypeAlias = str | Mapping[str, str] | Command | Table | Picture | Images
"""A paragraph, important values by name, or an object with a macro in blocks.html.jinja."""

Blocks: TypeAlias = Iterable[Block | list[Block]]
"""The blocks of a section from top to bottom. The blocks of a list are side by side."""


@dataclass(frozen=True)
class Section:
    """A part of a page under a heading.

    Attributes:
        lacks: a sentence that says why content is missing; empty if the section is complete.
        folded: whether the content is hidden until a click.
    """

    title: str
    blocks: Sequence[Block | list[Block]]
    lacks: str = ""
    folded: bool = False


def section(title: str, blocks: Blocks, folded: bool = False) -> list[Section]:
    """Return a list with the section, or an empty list if there are no blocks.

    If creating the blocks raises an error, the section contains the error instead.
    """
    try:
        content = [*blocks]
    except (InputError, RunError) as error:
        return [left_out(title, "This section is", error)]
    return [Section(title, content, folded=folded)] if content else []


def left_out(title: str, what: str, error: Exception) -> Section:
    """Return a section with the sentence "WHAT skipped: ERROR.", for example if ``what`` is "Model is"."""
    sentence = f"{what} skipped: {error}."
    return Section(title, [sentence], sentence)


def render(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Return a page as HTML."""
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
