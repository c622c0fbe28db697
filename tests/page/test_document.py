"""Pages show text from any source as text, and need no other files."""

from __future__ import annotations

import pytest

from nsvm_cli.errors import InputError
from nsvm_cli.output import shortened
from nsvm_cli.page.document import Blocks, Command, Images, Picture, Section, Table, render, section
from nsvm_cli.page.plotting import new_figure, to_picture
from tests.page.reader import Reader

HOSTILE = """<script>alert(1)</script>"><img src=x onerror='alert(2)'>{{ 7 * 7 }}&amp;]]>--></style></svg>"""
INVISIBLE = "\x1b[31m\u202e\ud800\0"


@pytest.mark.parametrize(("text", "shown"), [(HOSTILE, HOSTILE), (INVISIBLE, r"\x1b[31m\u202e\ud800\x00")])
def test_a_text_is_a_text_wherever_it_stands(text: str, shown: str) -> None:
    table = Table(text, ["head", text], [[text, text]], shades=[[0.5]])
    with new_figure(3.0, 2.0) as figure:
        figure.subplots().set_title(shortened(text))
    picture = to_picture(figure, text)
    blocks = [{text: text}, text, Command(text), [table], picture, Images(text, [Picture(b"", text)])]
    html = render(text, text, [Section(text, blocks)])
    reader = Reader(html)
    reader.check()
    tags = ["title", "h1", "a", "h2", "h3", "p", "dt", "dd", "code", "caption", "td", "figcaption"]
    for tag in tags:
        assert shown in [element.text for element in reader.all(tag)], tag
    assert [image.attributes["alt"] for image in reader.all("img")] == [shown, shown]
    assert html.encode()  # raises an error if a lone surrogate is left


def test_what_cannot_be_had_is_one_sentence() -> None:
    def missing() -> Blocks:
        yield "a"
        raise InputError("the file is gone")

    sentence = "This section is skipped: the file is gone."
    assert section("part", missing()) == [Section("part", [sentence], lacks=sentence)]
    assert section("part", []) == []
    assert section("part", ["a"]) == [Section("part", ["a"])]
