"""Pages: sections of text, tables and pictures as one HTML file that needs nothing else, and runs no script.

Texts may come from files of others: the template escapes them, and those that a browser should not obey
either, such as a change of the direction of writing, are shown as escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from nsvm_cli import __version__
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.output import printable
from nsvm_cli.storage.files import write_atomically

TEMPLATES = Path(__file__).parent / "templates"


class Block:
    """A part of a section."""

    @property
    def kind(self) -> str:
        """The name of the macro of the template that writes it."""
        return type(self).__name__.lower()


@dataclass(frozen=True)
class KeyFigures(Block):
    """The most important figures, by their names."""

    values: Mapping[str, str]


@dataclass(frozen=True)
class Note(Block):
    """A paragraph; ``lacks`` says that it stands in place of what cannot be had."""

    text: str
    lacks: bool = False


@dataclass(frozen=True)
class Code(Block):
    """A command."""

    text: str


@dataclass(frozen=True)
class Table(Block):
    """A table, each row of which begins with its name.

    Attributes:
        numbers: the columns that hold numbers.
        marks: what is said of some of the rows, beside their names.
        shades: how dark the background of the cells after the names is, from 0 to 1.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Container[int] = ()
    marks: Mapping[int, str] = field(default_factory=dict)
    shades: Sequence[Sequence[float]] = ()


@dataclass(frozen=True)
class Picture(Block):
    """A drawing, and what there is to say about it."""

    svg: Markup
    caption: str = ""


@dataclass(frozen=True)
class Image:
    """An image whose pixels are in its address, and what it shows."""

    address: str
    caption: str


@dataclass(frozen=True)
class Images(Block):
    """Images in rows; the ``first`` may stand apart from the others."""

    caption: str
    images: Sequence[Image]
    first: bool = False


@dataclass(frozen=True)
class Grid(Block):
    """Blocks side by side, as many as there is room for."""

    blocks: Sequence[Block]


@dataclass(frozen=True)
class Section:
    """A part of a page under a heading."""

    title: str
    blocks: Sequence[Block]


Blocks = Iterable[Block]


def section(title: str, make: Callable[[], Blocks]) -> list[Section]:
    """Return a section, with a sentence in place of what cannot be had; none if there is nothing to show."""
    try:
        blocks = [*make()]
    except (InputError, RunError) as error:
        return [left_out(title, "This part is", error)]
    return [Section(title, blocks)] if blocks else []


def left_out(title: str, what: str, error: Exception) -> Section:
    """Return a section with nothing but a sentence that says what is left out, and why."""
    return Section(title, [Note(f"{what} left out: {error}.", lacks=True)])


@dataclass(frozen=True)
class Page:
    """A page: its title, the line below it, and its sections."""

    title: str
    subtitle: str
    sections: Sequence[Section]

    @property
    def lacks(self) -> list[str]:
        """The sentences in place of what cannot be had, with the headings of their sections."""
        return [
            f"{section.title}: {block.text}"
            for section in self.sections
            for block in section.blocks
            if isinstance(block, Note) and block.lacks
        ]


def write_page(file: Path, page: Page, named: bool = False) -> None:
    """Write a page; see ``nsvm_cli.storage.files.write_atomically``.

    Raises:
        OSError: the system refused.
    """
    write_atomically(file, render(page).encode(), named)


def render(page: Page) -> str:
    """Return a page as HTML."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # slow to import

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.jinja").render(page=page, version=__version__)


def _shown(value: Any) -> Any:
    return value if isinstance(value, Markup) else printable(str(value))
