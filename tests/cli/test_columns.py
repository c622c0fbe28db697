"""``nsvm columns``, and the columns that ``nsvm predict --keep`` copies to the predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nsvm_cli.datasets import unlabelled
from tests.cli.process import nsvm, refusal, trained

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
WORDS = ["algorithm=pegasos", "algorithm.steps=60", "curves=false", "dataset=csv", "dataset.label=left"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("columns")
    TABLE.to_csv(folder / "table.csv", index=False)
    trained(*WORDS, "dataset.path=table.csv", cwd=folder)
    return folder


def numbers(values: list[float | None], missing: int) -> dict[str, Any]:
    return {"kind": "number", "categories": None, "missing": missing, "values": values, "remarks": []}


def texts(kind: str, categories: int | None, cells: list[str]) -> dict[str, Any]:
    values = [*np.resize(cells, 6)]
    return {"kind": kind, "categories": categories, "missing": 0, "values": values, "remarks": []}


def test_a_summary_before_any_training(folder: Path) -> None:
    done = nsvm("columns", "table.csv", "--label", "left", "--json", cwd=folder, code=0)
    found = json.loads(done.stdout)
    assert (found["rows"], found["classes"]) == (60, ["no", "yes"])
    columns = {column.pop("name"): column for column in found["columns"]}
    counts_on = "looks like a row number; if it is a time, add dataset.time=id"
    assert columns == {
        "id": texts("id", None, [*"012345"]) | {"remarks": [counts_on]},
        "age": numbers([None, 30, 41, 20.5, 30, 41], 10),
        "city": texts("text", 2, ["Ulm", "Köln"]),
        "since": texts("date", None, ["2024-02-01", "2024-02-03"]),
        "plan": texts("constant", 1, ["basic"]),
        "code": numbers([1, 2, None, 1, 2, None], 20),
        "left": texts("label", 2, ["yes", "no", "no", "yes"]),
    }
    assert found["lines"][-1] == "to train: nsvm train dataset=csv dataset.path=table.csv dataset.label=left"
    shown = nsvm("columns", "table.csv", "--label", "left", cwd=folder, code=0).stdout
    assert shown.startswith("60 rows\n")
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    for line in ("column kind missing cells", "id id, excluded 0 1 2 3 4 5", "code number 20 1 2 1 2"):
        assert line in lines
    assert lines[-len(found["lines"]) :] == found["lines"]
    assert not [path for path in folder.iterdir() if path.name not in ("table.csv", "run", "cache")]


def test_a_label_with_one_class(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("a,label\n1,x\n2,x\n3,x\n")
    assert "expected at least 2 classes, got 1 class: x" in refusal("columns", "one.csv", cwd=tmp_path)


def test_a_file_that_has_no_such_columns(folder: Path, tmp_path: Path) -> None:
    assert "there is no column" not in refusal("columns", "none.csv", cwd=folder)
    says = "--label: table.csv has no column 'lft'; did you mean left?"
    assert refusal("columns", "table.csv", "--label", "lft", cwd=folder).startswith(says)
    TABLE.to_csv(tmp_path / "other.csv", index=False, sep=";", decimal=",", encoding="latin-1")
    for words in ([], ["--separator", ";", "--encoding", "latin-1", "--decimal", ","]):
        done = nsvm("columns", "other.csv", *words, "--label", "left", "--json", cwd=tmp_path, code=0)
        columns = json.loads(done.stdout)["columns"]
        assert [column["values"][1] for column in columns[1:3]] == [30, "Köln"]
    says = "other.csv: expected utf-8, got bytes such as b"
    assert refusal("columns", "other.csv", "--encoding", "utf-8", cwd=tmp_path).startswith(says)


def test_columns_beside_predictions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unlabelled, "TABLE_ROWS", 7)
    new = TABLE.assign(city=np.resize(["Ulm", "Paris"], ROWS)).drop(columns="left")
    new["name"] = np.resize(["007", "NA", ""], ROWS)
    new.to_csv(folder / "new.csv", index=False)
    words = ["predict", "run", "new.csv", "--keep", "name", "code", "name", "age", "--output"]
    done = nsvm(*words, "out.csv", cwd=folder, code=0)
    unseen = "cells with categories unseen in training: 30 in city\n"
    assert done.stderr == f"{unseen}60 predictions in out.csv\n"
    written = pd.read_csv(folder / "out.csv", dtype=str, keep_default_na=False)
    assert [*written] == ["name", "code", "age", "prediction", "score"]
    assert [*written["name"]] == [*new["name"]], "expected the text of the file"
    assert [*written["code"]] == [*np.resize(["1", "2", ""], ROWS)], "expected the numbers of the feature"
    nsvm(*words, "out.parquet", cwd=folder, code=0)
    other = pd.read_parquet(folder / "out.parquet")
    assert [*other["name"]] == [*new["name"]]
    assert [*map(str, other.dtypes[["code", "age", "score"]])] == ["float64"] * 3
    assert nsvm("predict", "run", "new.csv", cwd=folder, code=0).stderr == unseen
    new.replace("Ulm", "Köln").to_csv(folder / "latin.csv", index=False, encoding="utf-8")
    warned = nsvm("predict", "run", "latin.csv", "--encoding", "latin-1", cwd=folder, code=0).stderr
    said = "city: none of the 60 cells occurs in the training data; check the encoding of the file\n"
    assert warned == said


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
    says = "--keep score: the output has a column of this name; rename the table's column"
    assert refusal("predict", "run", "score.csv", "--keep", "score", cwd=folder) == says
