"""Evaluation on tables, whose columns are matched by name and labels by class."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nsvm_cli.page.sections import data_and_computation
from tests.cli.process import evaluated, nsvm, refusal, trained

ROWS = 200
WORDS = ["algorithm=pegasos", "algorithm.steps=300", "curves=false", "threads=1", "dataset=csv"]


def made() -> pd.DataFrame:
    """Return a table whose columns are so different that a model fails if they are mixed up."""
    rng = np.random.default_rng(0)
    y = rng.integers(1, 3, ROWS)
    age = np.where(rng.random(ROWS) < 0.1, np.nan, rng.normal(40 + 9 * y, 8).round(1))
    colour = np.where(rng.random(ROWS) < 0.7, np.where(y == 1, "red", "blue"), "green")
    income = rng.lognormal(5 + y, 0.4).round(1)
    return pd.DataFrame({"id": np.arange(ROWS), "age": age, "colour": colour, "income": income, "class": y})


TABLE = made()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run on a table with text, missing values and row numbers, and other tables."""
    folder = tmp_path_factory.mktemp("tables")
    TABLE.to_csv(folder / "table.tsv", index=False, sep="\t")
    others = {
        "reordered": TABLE[[*TABLE.columns[::-1]]],
        "more": TABLE.drop(columns="id").assign(weight=1.5, height=2),
        "fewer": TABLE.drop(columns="age"),
        "classes": TABLE.assign(**{"class": TABLE["class"] + 1}),
        "reversed": TABLE[::-1],
        "floats": TABLE.assign(**{"class": TABLE["class"].astype(float)}),
    }
    for name, table in others.items():
        table.to_csv(folder / f"{name}.tsv", index=False, sep="\t")
    words = ["dataset.path=table.tsv", "dataset.label=class", r"dataset.separator=\t", "dataset.drop=[id]"]
    trained(*WORDS, *words, cwd=folder)
    return folder


def figures(folder: Path, *words: str) -> tuple[dict[str, Any], str]:
    done = nsvm("evaluate", "run", "--split", "all", *words, "--json", cwd=folder, code=0)
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize(
    ("other", "remark"),
    [
        ("reordered", ""),
        ("reversed", ""),
        ("more", "ignoring columns that the model was not trained on: weight, height\n"),
    ],
)
def test_columns_are_matched_by_name(folder: Path, other: str, remark: str) -> None:
    own, said = figures(folder)
    assert said == ""
    assert own["same_data"] is True
    assert own["accuracy"] > 0.8
    theirs, said = figures(folder, f"dataset.path={other}.tsv")
    assert said == remark
    assert theirs["errors"] == own["errors"]
    assert theirs["classes"] == ["1", "2"]
    assert theirs["same_data"] is (other != "reversed")


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ("fewer", "fewer.tsv lacks columns that the model was trained on: age"),
        ("classes", "expected the label 1 or 2, got '3'"),
        ("floats", "floats.tsv: column class, row 1: expected the label 1 or 2, got "),
    ],
)
def test_a_table_that_the_model_does_not_know_is_refused(folder: Path, other: str, says: str) -> None:
    assert says in refusal("evaluate", "run", "--split", "all", f"dataset.path={other}.tsv", cwd=folder)


def test_rows_that_are_in_both_splits_are_said_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=100), "b": rng.normal(size=100), "label": [0, 1] * 50})
    pd.concat([table] * 3).to_csv(tmp_path / "table.csv", index=False)
    done = nsvm("train", *WORDS, "dataset.path=table.csv", "hydra.run.dir=run", cwd=tmp_path, code=0)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["data"]["duplicates"] == result["data"]["samples"]["test"] == 30
    assert result["data"]["origins"] == [hashlib.sha256((tmp_path / "table.csv").read_bytes()).hexdigest()]
    said = "30 of 30 test samples have the same features as a training sample"
    assert (done.stderr.count(said), done.stdout.count(said)) == (1, 0)
    [[data, _]] = data_and_computation(result)
    assert ("duplicates", "30") in data.rows


def test_a_test_file_stays_with_its_table(tmp_path: Path) -> None:
    TABLE[:150].to_csv(tmp_path / "train.csv", index=False)
    TABLE[150:].to_csv(tmp_path / "test.csv.gz", index=False)
    TABLE[100:].to_csv(tmp_path / "other.csv", index=False)
    words = ["dataset.path=train.csv", "dataset.test_path=test.csv.gz", "dataset.label=class"]
    run, result = trained(*WORDS, *words, "dataset.drop=[id]", cwd=tmp_path)
    assert result["data"]["samples"] == {"train": 150, "validation": 0, "test": 50}
    assert result["data"]["official_split"] is True
    assert evaluated(run, cwd=tmp_path)["errors"] == result["test_errors"]
    assert evaluated(run, "dataset.path=other.csv", "--split", "all", cwd=tmp_path)["samples"] == 100
    assert evaluated(run, "dataset.test_path=other.csv", cwd=tmp_path)["samples"] == 100


def test_a_validation_file_of_its_own_is_what_a_run_is_evaluated_on(tmp_path: Path) -> None:
    for name, first in (("train", 0), ("validation", 100), ("test", 140)):
        numbers = range(first, first + 60)
        rows = [f"{n % 17},{n % 5},{'yes' if n % 17 > 8 else 'no'}\n" for n in numbers]
        (tmp_path / f"{name}.csv").write_text("a,b,label\n" + "".join(rows))
    words = ["dataset=csv", "dataset.path=train.csv", "dataset.validation_path=validation.csv"]
    words += ["dataset.test_path=test.csv", "algorithm=pegasos", "algorithm.steps=200", "curves=false"]
    run, result = trained(*words, cwd=tmp_path)
    assert result["data"]["samples"] == {"train": 60, "validation": 60, "test": 60}
    assert evaluated(run, cwd=tmp_path)["accuracy"] == result["validation_accuracy"]
    (tmp_path / "test.csv").rename(tmp_path / "new.csv")
    assert evaluated(run, "dataset.path=new.csv", "--split", "all", cwd=tmp_path)["samples"] == 60
