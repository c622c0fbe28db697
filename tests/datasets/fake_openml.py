"""A server that answers the openml package like OpenML, for one data set, in several moods."""

from __future__ import annotations

import hashlib
from http.server import BaseHTTPRequestHandler

import numpy as np

from tests.datasets.https_server import reply

ID = 1496
NAMES = [f"V{i + 1}" for i in range(20)]
XMLNS = 'xmlns:oml="http://openml.org/openml"'
NO_SUCH_DATA = (
    f"<oml:error {XMLNS}><oml:code>111</oml:code><oml:message>Unknown dataset</oml:message></oml:error>"
)
Answer = tuple[int, bytes]


def arff(x: np.ndarray, classes: np.ndarray) -> str:
    head = ["@RELATION ringnorm", *(f"@ATTRIBUTE {name} REAL" for name in NAMES), "@ATTRIBUTE Class {1,2}"]
    rows = [",".join([*map(repr, row), c]) for row, c in zip(x.tolist(), classes.tolist(), strict=True)]
    return "\n".join([*head, "@DATA", *rows, ""])


def description(base: str, mood: str, md5: str) -> str:
    fields = {
        "id": ID,
        "name": "ringnorm",
        "version": 1,
        "format": "ARFF",
        "url": f"{base}{mood}/ringnorm.arff",
        "parquet_url": f"{base}{mood}/dataset_{ID}.pq",
        "md5_checksum": md5,
        "default_target_attribute": "Class",
    }
    if mood == "plain-http":
        fields["url"] = fields["url"].replace("https", "http")
    if mood == "no-target":
        del fields["default_target_attribute"]
    if mood == "wrong-md5":
        fields["md5_checksum"] = "0" * 32
    lines = [f"<oml:{key}>{value}</oml:{key}>" for key, value in fields.items()]
    return f"<oml:data_set_description {XMLNS}>{''.join(lines)}</oml:data_set_description>"


def features() -> str:
    numeric = "<oml:data_type>numeric</oml:data_type>"
    nominal = "<oml:data_type>nominal</oml:data_type>" + "".join(
        f"<oml:nominal_value>{c}</oml:nominal_value>" for c in "12"
    )
    lines = [
        f"<oml:feature><oml:index>{i}</oml:index><oml:name>{name}</oml:name>{kind}</oml:feature>"
        for i, (name, kind) in enumerate([*((n, numeric) for n in NAMES), ("Class", nominal)])
    ]
    return f"<oml:data_features {XMLNS}>{''.join(lines)}</oml:data_features>"


class FakeOpenML:
    """Return the answer to a path, which starts with the mood: one server serves them all."""

    def __init__(self, x: np.ndarray, classes: np.ndarray) -> None:
        self.asked: list[str] = []
        self.base = ""
        self.arff = arff(x, classes)
        self.changed = arff(np.vstack([x[:-1], x[-1] + 1]), classes)

    def __call__(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        _, mood, rest = request.path.split("?")[0].split("/", 2)
        reply(request, *self._answer(mood, rest))

    def _answer(self, mood: str, rest: str) -> Answer:
        text = self.changed if mood == "changed" else self.arff
        if mood == "not-found":
            return 412, NO_SUCH_DATA.encode()
        if mood == "garbage":
            return 200, b"no XML\nat all"
        if rest == f"api/v1/xml/data/{ID}":
            md5 = hashlib.md5(text.encode()).hexdigest()
            return 200, description(self.base, mood, md5).encode()
        if rest == f"api/v1/xml/data/features/{ID}":
            return 200, features().encode()
        if rest == "ringnorm.arff":
            return 200, text.encode()
        return 404, NO_SUCH_DATA.encode()

    def url(self, mood: str) -> str:
        return f"{self.base}{mood}/api/v1/xml"
