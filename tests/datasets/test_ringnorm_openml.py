"""The published draw of Ringnorm: from a file, from OpenML, from the openml package's cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nsvm_cli
from nsvm_cli.datasets import Samples
from tests.conftest import real
from tests.datasets.fake_openml import FakeOpenML, serving
from tests.datasets.helpers import load, refusal, sizes

HEADER = ",".join([*(f"V{i + 1}" for i in range(20)), "Class"]) + "\n"


@pytest.fixture(scope="module")
def drawn() -> Samples:
    """Values like those of the published draw, another 7400 samples."""
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
    assert data.classes == classes
    assert sizes(data) == {"train": 6660, "validation": 0, "test": 740, "all": 7400}
    assert not data.by_pixel


@pytest.mark.parametrize("header", ["", HEADER], ids=["bare", "header"])
@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (slice(7399), "expected 7400 rows of 20 features and a class, got 7399 rows of 21 columns"),
        (slice(100), "got 100 rows of 21 columns; another table goes with dataset=csv"),
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
def test_a_file_cut_short(drawn: Samples, tmp_path: Path, cut: int, header: str) -> None:
    file, content = tmp_path / "r.csv", header + "".join(rows_of(drawn))
    file.write_text(content[:-cut])
    assert str(file) in refusal("ringnorm_openml", path=str(file))


@pytest.mark.parametrize(
    ("at", "cell", "says"),
    [
        (0, "text", "column {}, row 7000: expected a number, got 'text'"),
        (5, "", "column {}, row 7000: expected a number"),
        (19, "inf", "sample 7000 holds NaN or an infinite value"),
        (20, "", "row 7000 has no label"),
        (20, "3", "exactly 2 classes, found 3: 1, 2, 3"),
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


def test_a_file_that_is_none(tmp_path: Path) -> None:
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
    everything = data.parts["all"]
    np.testing.assert_array_equal(everything.x, table[:, :-1])
    np.testing.assert_array_equal(everything.y, 2 * table[:, -1] - 1)
    assert [int((everything.y == label).sum()) for label in (-1, 1)] == [3664, 3736]
    assert data.classes == ("0", "1")
    assert [len(data.parts[name]) for name in ("train", "validation", "test")] == [6260, 400, 740]


@pytest.mark.parametrize("cut", [3, 40, 200_000])
def test_the_published_rows_cut_short(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "r.csv"
    file.write_text(real("ringnorm/ringnorm.csv").read_text()[:-cut])
    assert str(file) in refusal("ringnorm_openml", path=str(file))


# OpenML, played by a server of ours; the openml package runs in a process and a cache of its own

JOBS = """
import importlib, json, os, sys

connections = []
sys.addaudithook(lambda event, args: connections.append(str(args[1])) if event == "socket.connect" else None)

import openml

from nsvm_cli.datasets import load_data
from nsvm_cli.errors import InputError

results = {}
for mood, folder in json.loads(sys.argv[1]).items():
    os.environ["XDG_CONFIG_HOME"] = folder
    importlib.reload(openml.config)
    connections.clear()
    try:
        data = load_data({"name": "ringnorm_openml"}, 0)
        result = {"sha256": data.sha256, "classes": data.classes, "source": data.source}
    except InputError as error:
        result = {"refused": str(error)}
    except Exception as error:
        result = {"crashed": repr(error)}
    results[mood] = {**result, "connections": len(connections)}
print(json.dumps(results))
"""

LOADED = ("arff", "parquet", "fallback")
REFUSED = (
    *("not-found", "page-404", "broken", "garbage", "other-xml", "no-arff", "wrong-md5"),
    *("no-target", "other-target"),
)


@dataclass
class Rounds:
    """What came of loading in each mood: first from the server, then with the server gone."""

    first: dict[str, Any]
    second: dict[str, Any]
    said: str
    asked: list[str]


def run_jobs(home: Path, fake: FakeOpenML, moods: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    """Loads in each mood, each with an openml configuration and cache of its own."""
    folders = {mood: home / mood for mood in moods}
    for mood, folder in folders.items():
        (folder / "openml").mkdir(parents=True, exist_ok=True)
        (folder / "openml" / "config").write_text(
            f"server = {fake.url(mood)}\ncachedir = {folder / 'cache'}\nconnection_n_retries = 1\n"
        )
    unwanted = {"OPENML_CACHE_DIR", "OPENML_SKIP_PARQUET"}
    env = {k: v for k, v in os.environ.items() if k not in unwanted and "proxy" not in k.lower()}
    env |= {"HOME": str(home), "XDG_CACHE_HOME": str(home), "XDG_CONFIG_HOME": str(folders[moods[0]])}
    env |= {"PYTHONPATH": str(Path(nsvm_cli.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    arguments = json.dumps({mood: str(folder) for mood, folder in folders.items()})
    done = subprocess.run(
        [sys.executable, "-c", JOBS, arguments],
        env=env,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def rounds(drawn: Samples, tmp_path_factory: pytest.TempPathFactory) -> Rounds:
    home = tmp_path_factory.mktemp("openml")
    fake = FakeOpenML(drawn.x, np.where(drawn.y > 0, "2", "1"))
    with serving(fake):
        first, said = run_jobs(home, fake, (*LOADED, "small", "damaged", *REFUSED))
    (damaged,) = (home / "damaged").rglob("*.pq")
    damaged.write_bytes(damaged.read_bytes()[:1000])
    second, said_then = run_jobs(home, fake, ("arff", "parquet", "damaged", "down"))
    return Rounds(first, second, said + said_then, fake.asked)


def assert_says_ways_on(message: str) -> None:
    assert message.startswith("dataset=ringnorm_openml: OpenML 1496 cannot be had (")
    assert len(message.splitlines()) == 1
    for way in ("dataset.path=FILE.csv", "dataset=ringnorm (generated)", "dataset=digits"):
        assert way in message


@pytest.mark.parametrize("mood", LOADED)
def test_openml_gives_what_is_served(rounds: Rounds, drawn: Samples, mood: str) -> None:
    expected = {"sha256": drawn.sha256, "classes": ["1", "2"], "source": "OpenML 1496"}
    assert rounds.first[mood] == {**expected, "connections": rounds.first[mood]["connections"]}
    assert rounds.first[mood]["connections"] > 0


def test_parquet_is_preferred_to_arff(rounds: Rounds) -> None:
    assert "/parquet/ringnorm.arff" not in rounds.asked
    assert "/fallback/ringnorm.arff" in rounds.asked


@pytest.mark.parametrize("mood", ["arff", "parquet"])
def test_the_cache_is_enough_the_second_time(rounds: Rounds, drawn: Samples, mood: str) -> None:
    result = rounds.second[mood]
    assert result.get("sha256") == drawn.sha256
    assert result["connections"] == 0


@pytest.mark.parametrize("mood", REFUSED)
def test_answers_that_are_of_no_use(rounds: Rounds, mood: str) -> None:
    assert "crashed" not in rounds.first[mood]
    assert_says_ways_on(rounds.first[mood]["refused"])


def test_no_network(rounds: Rounds) -> None:
    assert_says_ways_on(rounds.second["down"]["refused"])


def test_a_damaged_cache(rounds: Rounds) -> None:
    assert_says_ways_on(rounds.second["damaged"]["refused"])


def test_another_table_than_ringnorm(rounds: Rounds) -> None:
    message = rounds.first["small"]["refused"]
    assert message.startswith("OpenML 1496: expected 7400 rows of 20 features and a class, got 30 rows")


def test_openml_says_nothing_on_the_side(rounds: Rounds) -> None:
    assert rounds.said == ""
