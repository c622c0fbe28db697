"""``nsvm columns``, and what ``nsvm predict`` writes beside predictions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsvm_cli.datasets import unlabelled
from tests.cli.process import nsvm, refusal, trained

pytestmark = pytest.mark.usefixtures("unchecked")

ROWS = 60
TABLE = pd.DataFrame(
    {
        "id": np.arange(ROWS),
        "age": np.where(np.arange(ROWS) % 6 == 0, np.nan, np.resize([20.5, 30, 41], ROWS)),
        "city": np.resize(["Ulm", "Köln"], ROWS),
        "since": np.resize(["2024-02-01", "2024-02-03"], ROWS),
        "plan": "basic",
        "code": np.resize(["01", "02", ""], ROWS),
        "left": np.resize(["yes", "no", "no", "yes"], ROWS),
    }
)
WORDS = [
    "algorithm=pegasos",
    "algorithm.steps=60",
    "curves=false",
    "threads=1",
    "dataset=csv",
    "dataset.label=left",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("columns")
    TABLE.to_csv(folder / "table.csv", index=False)
    trained(*WORDS, "dataset.path=table.csv", cwd=folder)
    return folder


def test_a_summary_before_any_training(folder: Path) -> None:
    done = nsvm("columns", "table.csv", "--label", "left", "--json", cwd=folder, code=0)
    found = {column.pop("name"): column for column in json.loads(done.stdout)}
    assert found == {
        "id": {"kind": "id", "categories": None, "missing": 0, "example": "0"},
        "age": {"kind": "number", "categories": None, "missing": 10, "example": "30"},
        "city": {"kind": "text", "categories": 2, "missing": 0, "example": "Ulm"},
        "since": {"kind": "date", "categories": None, "missing": 0, "example": "2024-02-02"},
        "plan": {"kind": "constant", "categories": 1, "missing": 0, "example": "basic"},
        "code": {"kind": "number", "categories": None, "missing": 20, "example": "1.5"},
        "left": {"kind": "label", "categories": 2, "missing": 0, "example": "yes"},
    }
    shown = nsvm("columns", "table.csv", "--label", "left", cwd=folder, code=0).stdout
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in shown.splitlines()}
    assert lines["column"] == "kind missing example"
    assert lines["id"] == "id, left out 0"
    assert lines["age"] == "number 10 30"
    assert lines["city"] == "text, 2 values Ulm"
    assert not [path for path in folder.iterdir() if path.name not in ("table.csv", "run", "cache")]


def test_a_file_that_has_no_such_columns(folder: Path, tmp_path: Path) -> None:
    assert "there is no column" not in refusal("columns", "none.csv", cwd=folder)
    says = "--label: table.csv has no column 'lft'; did you mean left?"
    assert refusal("columns", "table.csv", "--label", "lft", cwd=folder).startswith(says)
    TABLE.to_csv(tmp_path / "other.csv", index=False, sep=";", decimal=",", encoding="latin-1")
    assert (
        refusal("columns", "other.csv", cwd=tmp_path) == "other.csv has 1 column: is --separator ';' meant?"
    )
    words = ["columns", "other.csv", "--separator", ";"]
    assert "name its encoding, such as cp1252, latin-1 or utf-16" in refusal(*words, cwd=tmp_path)
    done = nsvm(*words, "--encoding", "latin-1", cwd=tmp_path, code=0)
    assert done.stderr == "numbers with commas are read as text: is --decimal , meant? age\n"
    done = nsvm(*words, "--encoding", "latin-1", "--decimal", ",", "--json", cwd=tmp_path, code=0)
    assert [column["example"] for column in json.loads(done.stdout)][1:3] == ["30", "Ulm"]


def test_columns_beside_predictions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unlabelled, "TABLE_ROWS", 7)
    new = TABLE.assign(city=np.resize(["Ulm", "Paris"], ROWS)).drop(columns="left")
    new["name"] = np.resize(["007", "NA", ""], ROWS)
    new.to_csv(folder / "new.csv", index=False)
    words = ["predict", "run", "new.csv", "--keep", "name", "code", "name", "age", "--output"]
    done = nsvm(*words, "out.csv", cwd=folder, code=0)
    unseen = "categories unseen in training: city: 30 cells\n"
    assert done.stderr == f"{unseen}60 predictions in out.csv\n"
    written = pd.read_csv(folder / "out.csv", dtype=str, keep_default_na=False)
    assert [*written] == ["name", "code", "age", "prediction", "score"]
    assert [*written["name"]] == [*new["name"]], "no feature, so as it is written"
    assert [*written["code"]] == [*np.resize(["1", "2", ""], ROWS)], "a feature, as it is read"
    nsvm(*words, "out.parquet", cwd=folder, code=0)
    other = pd.read_parquet(folder / "out.parquet")
    assert [*other["name"]] == [*new["name"]]
    assert [*map(str, other.dtypes[["code", "age", "score"]])] == ["float64"] * 3
    assert nsvm("predict", "run", "new.csv", cwd=folder, code=0).stderr == unseen
    new.replace("Ulm", "Köln").to_csv(folder / "latin.csv", index=False, encoding="utf-8")
    warned = nsvm("predict", "run", "latin.csv", "--encoding", "latin-1", cwd=folder, code=0).stderr
    assert warned == "all 60 cells of city are unseen in training: is the file in another encoding?\n"


def test_columns_of_parquet_keep_their_types(folder: Path) -> None:
    new = TABLE.assign(since=pd.to_datetime(TABLE["since"]), code=TABLE["code"].replace("", None))
    new.to_parquet(folder / "new.parquet")
    words = ["predict", "run", "new.parquet", "--keep", "since", "id", "--output", "out.parquet"]
    nsvm(*words, cwd=folder, code=0)
    out = pd.read_parquet(folder / "out.parquet")
    pd.testing.assert_frame_equal(out[["since", "id"]], new[["since", "id"]])
    from_csv = nsvm("predict", "run", "table.csv", cwd=folder, code=0).stdout.splitlines()[1:]
    assert [line.split(",")[0] for line in from_csv] == [*out["prediction"]]


def test_columns_that_cannot_be_kept(folder: Path) -> None:
    TABLE.assign(score=1).to_csv(folder / "score.csv", index=False)
    says = "--keep: table.csv has no column 'idd'; did you mean id?"
    assert refusal("predict", "run", "table.csv", "--keep", "idd", cwd=folder).startswith(says)
    says = "--keep: predictions have a column score, too"
    assert refusal("predict", "run", "score.csv", "--keep", "score", cwd=folder) == says
