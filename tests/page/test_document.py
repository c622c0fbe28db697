"""Pages: what may come from anyone stays text, and a page needs nothing but itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markupsafe import Markup

from nsvm_cli.errors import InputError
from nsvm_cli.output import shortened
from nsvm_cli.page.document import (
    Block,
    Code,
    Grid,
    Image,
    Images,
    KeyFigures,
    Note,
    Page,
    Picture,
    Section,
    Table,
    render,
    section,
    write_page,
)
from nsvm_cli.page.plotting import new_figure, to_svg
from tests.page.reader import Reader

HOSTILE = """<script>alert(1)</script>"><img src=x onerror='alert(2)'>{{ 7 * 7 }}&amp;]]>--></style></svg>"""
INVISIBLE = "\x1b[31m\u202e\ud800\0"
PIXEL = "data:image/png;base64,AAAA"


def page(*blocks: Block) -> Page:
    return Page("title", "subtitle", [Section("part", blocks)])


def drawn(label: str, text: str = "") -> Markup:
    with new_figure(3.0, 2.0) as figure:
        axis = figure.subplots()
        axis.plot([1, 2], [3, 4], "o", label=shortened(text, 1000))
        axis.plot([1, 2], [4, 3], color="black")
        axis.imshow([[0, 1]], interpolation="none")
        axis.set_title(shortened(text, 1000))
        axis.legend()
    return to_svg(figure, label)


SHOWN = r"\x1b[31m\u202e\ud800\x00"


@pytest.mark.parametrize(
    ("text", "shown"), [(HOSTILE, HOSTILE), (INVISIBLE, SHOWN)], ids=["html", "invisible"]
)
def test_a_text_is_a_text_wherever_it_stands(text: str, shown: str) -> None:
    table = Table(text, ["head", text], [[text, text]], marks={0: text}, shades=[[0.5]])
    blocks: list[Block] = [
        *(KeyFigures({text: text}), Note(text), Code(text), Grid([table]), Picture(drawn("a", text), text)),
        Images(text, [Image(PIXEL, text)]),
    ]
    html = render(Page(text, text, [Section(text, blocks)]))
    reader = Reader(html)
    reader.check()
    for tag in ("title", "h1", "a", "h2", "dt", "dd", "code", "caption", "td", "small", "figcaption", "text"):
        assert shown in [element.text for element in reader.all(tag)], tag
    assert html.encode(), "no lone surrogate is left"


def test_a_table_says_what_each_cell_is() -> None:
    sentence = "the decision function is not finite at step 7"
    rows = [["x", "1", "2"], ["y", sentence, "3"]]
    table = Table("what", ["name", "a", "b"], rows, numbers={2}, marks={0: "new"})
    reader = Reader(render(page(table)))
    heads = [(cell.attributes.get("scope"), cell.text) for cell in reader.all("th")]
    assert heads == [("col", "name"), ("col", "a"), ("col", "b"), ("row", "x new"), ("row", "y")]
    kinds = [cell.attributes.get("class") for cell in reader.all("td")]
    assert kinds == [None, "number", "sentence", "number"]
    region = next(element for element in reader.all("div") if element.attributes.get("role") == "region")
    assert (region.attributes["aria-label"], region.attributes["tabindex"]) == ("what", "0")


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, as WCAG defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_are_legible_on_light_and_on_dark_pages() -> None:
    light, dark = render(page()).split("prefers-color-scheme: dark")
    for part in (light, dark):
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part))
        for background in (colours["surface"], colours["page"]):
            assert contrast(colours["text"], background) > 10
            assert contrast(colours["muted"], background) > 4.5
            assert contrast(colours["accent"], background) > 4.5


def test_what_cannot_be_had_is_one_sentence() -> None:
    def missing() -> list[Block]:
        raise InputError("the file is gone")

    found = section("part", missing)
    assert found == [Section("part", [Note("This part is left out: the file is gone.", lacks=True)])]
    assert Page("", "", found).lacks == ["part: This part is left out: the file is gone."]
    assert page(Note("a")).lacks == []
    assert section("part", list) == []
    assert section("part", lambda: [Note("a")]) == [Section("part", [Note("a")])]


def test_a_page_replaces_an_older_one(tmp_path: Path) -> None:
    for text in ("old", "new"):
        write_page(tmp_path / "page.html", page(Note(text)))
    assert "new" in (tmp_path / "page.html").read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
