"""A parser of HTML pages, with the checks that every page must pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "img"}


@dataclass
class Element:
    """An element with its attributes and all the text in it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Reader(HTMLParser):
    """The elements of a page in order, and the text of each section by its heading."""

    html: str
    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.html)
        self.close()
        assert not self.open, "expected every element to be closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data

    def all(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]

    @property
    def sections(self) -> dict[str, str]:
        """The text of each section, with single spaces, by its heading."""
        headings = [heading.text for heading in self.all("h2")]
        texts = [" ".join(section.text.split()) for section in self.all("section")]
        return {name: text.removeprefix(name).strip() for name, text in zip(headings, texts, strict=True)}

    def check(self) -> None:
        """Check that the page loads no other file, runs no script, has no broken link and is accessible."""
        assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & {
            element.tag for element in self.elements
        }
        ids = [element.attributes["id"] for element in self.elements if "id" in element.attributes]
        assert len(ids) == len({*ids})
        for element in self.elements:
            for name, value in element.attributes.items():
                assert not name.startswith("on"), name
                if name in ("href", "src"):
                    assert value.startswith("data:image/png;base64,") or value[1:] in ids, value
        assert all(image.attributes["alt"] for image in self.all("img"))
        assert all(head.attributes["scope"] in ("col", "row") for head in self.all("th"))
        (policy,) = (meta for meta in self.all("meta") if "http-equiv" in meta.attributes)
        assert {"default-src 'none'", "img-src data:"} <= {*policy.attributes["content"].split("; ")}
        assert "@import" not in self.html
        assert len(self.html) < 5 * 2**20
