"""Data sets of OpenML: from a local copy, from a server that plays OpenML, and from the package's cache."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nsvm_cli.datasets import Data, openml
from nsvm_cli.datasets.base import Table
from nsvm_cli.datasets.openml import PUBLISHED, sha256_of_rows
from tests.conftest import real
from tests.datasets.fake_openml import FakeOpenML
from tests.datasets.helpers import load, refusal, sizes
from tests.datasets.https_server import Authority

HEADER = "a,b,colour,answer\n"
ROWS = [f"{i},{i % 7}.5,{'red' if i % 3 else 'blue'},{'yes' if i % 2 else 'no'}\n" for i in range(60)]


def test_a_local_copy_with_its_label_last(tmp_path: Path) -> None:
    file = tmp_path / "copy.csv"
    file.write_text(HEADER + "".join(ROWS))
    data = load("openml", id=5, path=str(file))
    assert data.task.classes == ("no", "yes")
    assert data.columns == ("a", "b", "colour")
    assert data.origins == ("OpenML 5",)
    assert sizes(data)["all"] == 60
    other = load("openml", id=5, path=str(file), label="colour", drop=["a"])
    assert (other.task.classes, other.columns) == (("blue", "red"), ("b", "answer"))
    assert "has no column 'colours'; did you mean colour?" in refusal(
        "openml", id=5, path=str(file), label="colours"
    )


def test_the_published_rows_of_ringnorm(tmp_path: Path) -> None:
    published = real("ringnorm/ringnorm.csv")
    headed = tmp_path / "r.csv"
    headed.write_text(",".join([*(f"V{i + 1}" for i in range(20)), "Class"]) + "\n" + published.read_text())
    table = np.loadtxt(published, delimiter=",")
    for file in (published, headed):
        data = load("openml", id=1496, path=str(file), validation=200)
        everything = data.splits["all"]
        np.testing.assert_array_equal(everything.x, table[:, :-1])
        np.testing.assert_array_equal(everything.y, 2 * table[:, -1] - 1)
        assert data.task.classes == ("0", "1")
        assert [len(data.splits[name]) for name in ("train", "validation", "test")] == [6260, 400, 740]


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
    published = load("openml", id=1496, path=str(real("ringnorm/ringnorm.csv"))).splits["all"]
    x = np.rint(np.rint(published.x.numpy() * SCALES + MEANS) / 10)
    for _ in range(3):
        x = np.where(x % 10 == 0, x / 10, x) + 0.0
    y = np.where(published.y.numpy() > 0, "2", "1")
    for order in (slice(None), slice(None, None, -1)):
        assert sha256_of_rows(as_table(x[order], y[order])) == PUBLISHED[1496]
    assert sha256_of_rows(as_table(x[1:], y[1:])) != PUBLISHED[1496]


def as_table(x: np.ndarray, y: np.ndarray) -> Table:
    import pandas as pd

    return Table(pd.DataFrame(x), pd.Series(y, dtype=object), ("memory",))


# OpenML, played by a server of ours; the openml package has a configuration and a cache of its own


class Home:
    """Loads from the server in a mood, each of which has a configuration and a cache of its own."""

    def __init__(self, folder: Path, fake: FakeOpenML, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.fake, self.patch = folder, fake, patch

    def turn_to(self, mood: str) -> None:
        home = self.folder / mood
        (home / "openml").mkdir(parents=True, exist_ok=True)
        (home / "openml" / "config").write_text(
            f"server = {self.fake.url(mood)}\ncachedir = {home / 'cache'}\nconnection_n_retries = 1\n"
        )
        self.patch.setenv("XDG_CONFIG_HOME", str(home))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the packages that openml imports
            importlib.reload(importlib.import_module("openml.config"))

    def load(self, mood: str) -> Data:
        self.turn_to(mood)
        return load("openml", id=1496)

    def refusal(self, mood: str) -> str:
        self.turn_to(mood)
        return refusal("openml", id=1496)


@pytest.fixture
def home(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    for name in os.environ:
        if name in ("OPENML_CACHE_DIR", "OPENML_SKIP_PARQUET") or "proxy" in name.lower():
            monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.bundle))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 20)).round(5), np.repeat(["1", "2"], [25, 35])
    monkeypatch.setitem(openml.PUBLISHED, 1496, sha256_of_rows(as_table(x, y)))
    fake = FakeOpenML(x, y)
    with authority.serving(fake) as fake.base:
        yield Home(tmp_path, fake, monkeypatch)


def test_what_openml_serves_is_kept_in_its_cache(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    data = home.load("arff")
    assert (data.task.classes, data.source, len(data.splits["all"])) == (("1", "2"), "OpenML 1496", 60)
    assert capfd.readouterr() == ("", f"Downloading OpenML 1496 from {home.fake.url('arff')}\n")
    assert not [path for path in home.fake.asked if path.endswith(".pq")]  # got over plain http
    home.fake.asked.clear()
    assert home.load("arff").sha256 == data.sha256
    assert home.fake.asked == []
    (cached,) = (home.folder / "arff").rglob("dataset.arff")
    (cached.parent / "dataset.pkl.py3").unlink()
    cached.write_text("".join(cached.read_text().splitlines(keepends=True)[:-5]))  # as a kill leaves it
    assert home.load("arff").sha256 == data.sha256
    assert home.fake.asked


@pytest.mark.parametrize(
    ("mood", "says"),
    [
        ("not-found", "Unknown dataset"),
        ("garbage", ""),
        ("wrong-md5", "Checksum of downloaded file is unequal"),
        ("no-target", ""),
        ("changed", "its rows are not the published ones, SHA-256 "),
        ("plain-http", "/plain-http/ringnorm.arff is not https"),
    ],
)
def test_an_unusable_answer_is_refused(home: Home, mood: str, says: str) -> None:
    assert says in (message := home.refusal(mood))
    for way in ("dataset.path=FILE.csv", "dataset=ringnorm (generated)", "dataset=digits"):
        assert way in message
