"""The published draw of Ringnorm: from a file, from OpenML and from the openml package's cache."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import socket
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nsvm_cli.datasets import Samples, ringnorm_openml
from nsvm_cli.datasets.ringnorm_openml import SORTED_ROWS, sha256_of_rows
from nsvm_cli.errors import InputError
from tests.conftest import real
from tests.datasets.fake_openml import FakeOpenML
from tests.datasets.helpers import load, refusal, sizes
from tests.datasets.https_server import Authority

HEADER = ",".join([*(f"V{i + 1}" for i in range(20)), "Class"]) + "\n"


@pytest.fixture(scope="module")
def drawn() -> Samples:
    """7400 other samples from the same distribution as the published draw."""
    rng = np.random.default_rng(0)
    y = np.repeat([-1.0, 1.0], [3664, 3736])
    return Samples(rng.normal(size=(7400, 20)).round(5), rng.permutation(y), ("1", "2"), "drawn")


def rows_of(samples: Samples, classes: tuple[str, str] = ("1", "2")) -> list[str]:
    return [
        ",".join([*map(repr, x), classes[int(y > 0)]]) + "\n"
        for x, y in zip(samples.x.tolist(), samples.y.tolist(), strict=True)
    ]


@pytest.mark.parametrize("header", ["", HEADER], ids=["bare", "header"])
@pytest.mark.parametrize("classes", [("1", "2"), ("0", "1"), ("-1", "1"), ("A", "B")])
def test_a_file_with_or_without_a_header(
    drawn: Samples, tmp_path: Path, header: str, classes: tuple[str, str]
) -> None:
    file = tmp_path / "r.csv"
    file.write_text(header + "".join(rows_of(drawn, classes)))
    data = load("ringnorm_openml", path=str(file))
    assert data.sha256 == drawn.sha256
    assert data.task.classes == classes
    assert sizes(data) == {"train": 6660, "validation": 0, "test": 740, "all": 7400}
    assert not data.global_scaling


@pytest.mark.parametrize("header", ["", HEADER], ids=["bare", "header"])
@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (slice(7399), "expected 7400 rows of 20 features and a class, got 7399 rows of 21 columns"),
        (slice(100), "got 100 rows of 21 columns; use dataset=csv for another table"),
        (slice(0), ""),
    ],
)
def test_a_file_with_too_few_rows(
    drawn: Samples, tmp_path: Path, rows: slice, header: str, says: str
) -> None:
    file = tmp_path / "r.csv"
    file.write_text(header + "".join(rows_of(drawn)[rows]))
    message = refusal("ringnorm_openml", path=str(file))
    assert str(file) in message
    assert says in message


def test_a_file_with_other_rows_or_columns(drawn: Samples, tmp_path: Path) -> None:
    file, rows = tmp_path / "r.csv", rows_of(drawn)
    file.write_text("".join([*rows, rows[0]]))
    assert "got 7401 rows of 21 columns" in refusal("ringnorm_openml", path=str(file))
    file.write_text("".join("0," + row for row in rows))
    assert "got 7400 rows of 22 columns" in refusal("ringnorm_openml", path=str(file))
    file.write_text("".join(row.partition(",")[2] for row in rows))
    assert "got 7400 rows of 20 columns" in refusal("ringnorm_openml", path=str(file))


@pytest.mark.parametrize("cut", [2, 10, 100, 400_000])
@pytest.mark.parametrize("header", ["", HEADER], ids=["bare", "header"])
def test_a_truncated_file_is_refused(drawn: Samples, tmp_path: Path, cut: int, header: str) -> None:
    file, content = tmp_path / "r.csv", header + "".join(rows_of(drawn))
    file.write_text(content[:-cut])
    assert str(file) in refusal("ringnorm_openml", path=str(file))


@pytest.mark.parametrize(
    ("at", "cell", "says"),
    [
        (0, "text", "column {}, row 7000: expected a number, got 'text'"),
        (5, "", "column {}, row 7000: expected a number, got an empty cell"),
        (19, "inf", "column {}, row 7000: expected a number, got inf"),
        (20, "", "row 7000 has no label"),
        (20, "3", "expected at least 2 samples of class 3, found 1"),
    ],
)
@pytest.mark.parametrize("header", ["", HEADER], ids=["bare", "header"])
def test_a_bad_cell(drawn: Samples, tmp_path: Path, at: int, cell: str, says: str, header: str) -> None:
    file, rows = tmp_path / "r.csv", rows_of(drawn)
    cells = rows[6999].rstrip().split(",")
    rows[6999] = ",".join([*cells[:at], cell, *cells[at + 1 :]]) + "\n"
    file.write_text(header + "".join(rows))
    message = refusal("ringnorm_openml", path=str(file))
    assert says.format(f"V{at + 1}" if header else at) in message


def test_a_path_without_a_readable_file_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "none.csv")
    assert refusal("ringnorm_openml", path=path) == (
        f"dataset.path={path} does not exist: expected a CSV file"
    )
    assert "is not a file" in refusal("ringnorm_openml", path=str(tmp_path))
    (tmp_path / "empty.csv").touch()
    assert "cannot be read as CSV" in refusal("ringnorm_openml", path=str(tmp_path / "empty.csv"))


# The published rows


@pytest.mark.parametrize("header", ["", HEADER], ids=["bare", "header"])
def test_the_published_rows(tmp_path: Path, header: str) -> None:
    published = real("ringnorm/ringnorm.csv")
    file = tmp_path / "r.csv"
    file.write_text(header + published.read_text())
    data = load("ringnorm_openml", path=str(file), validation=200)
    table = np.loadtxt(published, delimiter=",")
    everything = data.splits["all"]
    np.testing.assert_array_equal(everything.x, table[:, :-1])
    np.testing.assert_array_equal(everything.y, 2 * table[:, -1] - 1)
    assert [int((everything.y == label).sum()) for label in (-1, 1)] == [3664, 3736]
    assert data.task.classes == ("0", "1")
    assert [len(data.splits[name]) for name in ("train", "validation", "test")] == [6260, 400, 740]


@pytest.mark.parametrize("cut", [3, 40, 200_000])
def test_truncated_published_rows_are_refused(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "r.csv"
    file.write_text(real("ringnorm/ringnorm.csv").read_text()[:-cut])
    assert str(file) in refusal("ringnorm_openml", path=str(file))


# The published file has 10000 x = scale * standardised + mean; there x has four decimals. OpenML has the same
# draw rounded to three decimals, half to even, and written without trailing zeros and without the point.
SCALES = (
    *(15840.1735, 15776.7635, 16237.277, 15813.448, 15731.4785, 16079.7165, 16111.2945, 15809.884),
    *(16203.465, 15757.094, 15944.2455, 15934.4155, 15983.4745, 15788.3605, 16048.1835, 16070.6005),
    *(15827.19, 16290.949, 15632.5905, 15717.2625),
)
MEANS = (
    *(2391.75, 2521.36, 2135.23, 2454.99, 2150.06, 2141.95, 2284.86, 2484.52),
    *(2155.32, 2568.82, 2385.94, 2170.7, 2173.25, 2123.03, 2400.72, 2267.35),
    *(2301.06, 1993.84, 2216.06, 2284.26),
)


def test_the_checksum_is_that_of_the_published_draw_in_openmls_form() -> None:
    published = load("ringnorm_openml", path=str(real("ringnorm/ringnorm.csv"))).splits["all"]
    x = np.rint(np.rint(published.x.numpy() * SCALES + MEANS) / 10)
    for _ in range(3):
        x = np.where(x % 10 == 0, x / 10, x)
    assert sha256_of_rows(Samples(x + 0.0, published.y.numpy(), ("1", "2"), "")) == SORTED_ROWS


@pytest.mark.parametrize(("rows", "same"), [(slice(None, None, -1), True), (slice(1, None), False)])
def test_the_checksum_does_not_depend_on_the_order(drawn: Samples, rows: slice, same: bool) -> None:
    other = Samples(drawn.x[rows], drawn.y[rows], drawn.classes, "other")
    assert (sha256_of_rows(other) == sha256_of_rows(drawn)) == same
    other = Samples(drawn.x, -drawn.y, drawn.classes, "other classes")
    assert sha256_of_rows(other) != sha256_of_rows(drawn)


# OpenML, played by a server of ours; the openml package has a configuration and a cache of its own

LOADED = ("arff", "no-parquet", "backwards")
REFUSED = {
    "not-found": "Unknown dataset",
    "page-404": "",
    "broken": "",
    "garbage": "",
    "other-xml": "",
    "no-arff": "",
    "wrong-md5": "Checksum of downloaded file is unequal",
    "no-target": "",
    "other-target": "Outcome",
    "small": "OpenML 1496: expected 7400 rows of 20 features and a class, got 30 rows",
    "changed": "its rows are not the published ones, SHA-256 ",
    "plain-http": "/plain-http/ringnorm.arff is not https",
    "redirect": "/no-parquet/ringnorm.arff is not https",
}


@dataclass
class Rounds:
    """The results of loading in each mood: first from the server, then from the resulting cache, which was
    damaged in some moods, and finally, for some, without the server."""

    first: dict[str, Any]
    again: dict[str, Any]
    alone: dict[str, Any]
    said: list[str]
    asked: list[str]


class Jobs:
    """Load in each mood, each with an openml configuration and cache of its own."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.home, self.said = home, io.StringIO()
        self._patch = patch
        self._connections = 0
        self._count(socket, "getaddrinfo")
        self._count(socket.socket, "connect")

    def _count(self, owner: object, name: str) -> None:
        function = getattr(owner, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            self._connections += 1
            return function(*arguments, **options)

        self._patch.setattr(owner, name, counted)

    def run(self, fake: FakeOpenML, *moods: str) -> dict[str, Any]:
        with contextlib.redirect_stderr(self.said), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the packages that openml imports
            return {mood: self._load(fake, mood) for mood in moods}

    def _load(self, fake: FakeOpenML, mood: str) -> dict[str, Any]:
        folder = self.home / mood
        (folder / "openml").mkdir(parents=True, exist_ok=True)
        (folder / "openml" / "config").write_text(
            f"server = {fake.url(mood)}\ncachedir = {folder / 'cache'}\nconnection_n_retries = 1\n"
        )
        self._patch.setenv("XDG_CONFIG_HOME", str(folder))
        importlib.reload(importlib.import_module("openml.config"))
        self._connections = 0
        try:
            data = load("ringnorm_openml")
            result = {"sha256": data.sha256, "classes": data.task.classes, "source": data.source}
        except InputError as error:
            result = {"refused": str(error)}
        except Exception as error:
            result = {"crashed": repr(error)}
        return {**result, "connections": self._connections}

    def cached(self, mood: str, name: str) -> Path:
        (file,) = (self.home / mood).rglob(name)
        return file


def cut(file: Path) -> None:
    """Truncate a file to its first half, or a text file to the end of a line."""
    content = file.read_bytes()
    half = len(content) // 2
    file.write_bytes(content[: content.find(b"\n", half) + 1 or half])


@pytest.fixture(scope="module")
def rounds(
    drawn: Samples, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rounds]:
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("openml")
        for name in os.environ:
            if name in ("OPENML_CACHE_DIR", "OPENML_SKIP_PARQUET") or "proxy" in name.lower():
                patch.delenv(name)
        for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
            patch.setenv(name, str(home))
        patch.setenv("REQUESTS_CA_BUNDLE", str(authority.bundle))
        patch.setattr(ringnorm_openml, "SORTED_ROWS", sha256_of_rows(drawn))
        jobs = Jobs(home, patch)
        fake = FakeOpenML(drawn.x, np.where(drawn.y > 0, "2", "1"))
        with authority.serving(fake) as fake.base:
            first = jobs.run(fake, *LOADED, "cut", "half a pickle", "damaged", *REFUSED)
            cut(jobs.cached("cut", "dataset.arff"))
            jobs.cached("cut", "dataset.pkl.py3").unlink()
            cut(jobs.cached("half a pickle", "dataset.pkl.py3"))
            again = jobs.run(fake, "cut", "half a pickle", "changed")
        cut(jobs.cached("damaged", "dataset.pkl.py3"))
        alone = jobs.run(fake, "arff", "cut", "damaged", "down")
        yield Rounds(first, again, alone, jobs.said.getvalue().splitlines(), fake.asked)


def assert_gives_advice(message: str) -> None:
    assert message.startswith("dataset=ringnorm_openml: OpenML 1496 cannot be obtained (")
    assert len(message.splitlines()) == 1
    for way in ("dataset.path=FILE.csv", "dataset=ringnorm (generated)", "dataset=digits"):
        assert way in message


@pytest.mark.parametrize("mood", ["arff", "no-parquet"])
def test_samples_are_those_that_openml_serves(rounds: Rounds, drawn: Samples, mood: str) -> None:
    expected = {"sha256": drawn.sha256, "classes": ("1", "2"), "source": "OpenML 1496"}
    assert rounds.first[mood] == {**expected, "connections": rounds.first[mood]["connections"]}
    assert rounds.first[mood]["connections"] > 0


def test_rows_may_come_in_another_order(rounds: Rounds, drawn: Samples) -> None:
    assert rounds.first["backwards"]["sha256"] != drawn.sha256


def test_parquet_is_never_requested_because_openml_gets_it_over_plain_http(rounds: Rounds) -> None:
    assert "/arff/ringnorm.arff" in rounds.asked
    assert not [path for path in rounds.asked if path.endswith(".pq")]


@pytest.mark.parametrize("mood", REFUSED)
def test_unusable_answers_are_refused(rounds: Rounds, mood: str) -> None:
    assert "crashed" not in rounds.first[mood]
    assert_gives_advice(rounds.first[mood]["refused"])
    assert REFUSED[mood] in rounds.first[mood]["refused"]


@pytest.mark.parametrize("mood", ["arff", "cut"])
def test_the_cache_suffices_without_a_network(rounds: Rounds, drawn: Samples, mood: str) -> None:
    result = rounds.alone[mood]
    assert result.get("sha256") == drawn.sha256
    assert result["connections"] == 0


@pytest.mark.parametrize("mood", ["cut", "half a pickle"])
def test_a_damaged_cache_is_replaced(rounds: Rounds, drawn: Samples, mood: str) -> None:
    assert rounds.again[mood].get("sha256") == drawn.sha256
    assert rounds.again[mood]["connections"] > 0


def test_other_rows_are_refused_from_the_cache_too(rounds: Rounds) -> None:
    assert rounds.again["changed"]["refused"] == rounds.first["changed"]["refused"]


def test_no_network(rounds: Rounds) -> None:
    assert_gives_advice(rounds.alone["down"]["refused"])


def test_a_damaged_cache_and_no_network(rounds: Rounds) -> None:
    assert_gives_advice(rounds.alone["damaged"]["refused"])


def test_each_download_prints_one_line_and_nothing_else(rounds: Rounds) -> None:
    assert all(line.startswith("Downloading OpenML 1496 from https://") for line in rounds.said)
    assert len(rounds.said) == len(rounds.first) + len(rounds.again) + len({"damaged", "down"})
