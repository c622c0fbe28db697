"""``nsvm predict``: a row for each sample, with the decisions of ``nsvm evaluate``."""

from __future__ import annotations

import csv
import io
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

from nsvm_cli.datasets import unlabelled
from tests.cli.process import evaluated, nsvm, refusal, trained
from tests.cli.test_tables import TABLE
from tests.small_tables import small_table

pytestmark = pytest.mark.usefixtures("unchecked")

PEGASOS = ["algorithm=pegasos", "algorithm.steps=300", "curves=false", "dataset=csv"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table with text and gaps."""
    folder = tmp_path_factory.mktemp("predict")
    TABLE.to_csv(folder / "table.csv", index=False)
    words = ["dataset.path=table.csv", "dataset.label=class", "dataset.drop=[id]"]
    trained(*PEGASOS, *words, cwd=folder)
    return folder


def predicted(folder: Path, *words: str | Path) -> list[dict[str, str]]:
    done = nsvm("predict", folder / "run", *words, cwd=folder, code=0)
    return [*csv.DictReader(io.StringIO(done.stdout))]


def test_the_decisions_of_evaluate(folder: Path) -> None:
    rows = predicted(folder, "table.csv")
    right = [row["prediction"] == str(label) for row, label in zip(rows, TABLE["class"], strict=True)]
    assert np.mean(right) == evaluated(folder / "run", "split=all", cwd=folder)["accuracy"]
    assert all((float(row["score"]) >= 0) == (row["prediction"] == "2") for row in rows)


def test_columns_by_name_without_labels_and_compressed(folder: Path) -> None:
    expected = predicted(folder, "table.csv")
    other = TABLE[["income", "colour", "age"]].assign(weight=1)
    other.to_csv(folder / "other.tsv.gz", index=False, sep="\t")
    assert predicted(folder, "other.tsv.gz") == expected
    assert predicted(folder, "other.tsv.gz", "--separator", r"\t") == expected


def test_block_by_block(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = predicted(folder, "table.csv")
    monkeypatch.setattr(unlabelled, "BLOCK_ROWS", 7)
    found = predicted(folder, "table.csv")
    assert [row["prediction"] for row in found] == [row["prediction"] for row in expected]
    scores = [[float(row["score"]) for row in rows] for rows in (found, expected)]
    np.testing.assert_allclose(*scores, rtol=1e-5, atol=1e-4)
    bad = TABLE.assign(age=TABLE["age"].astype(object))
    bad.loc[180, "age"] = "old"
    bad.to_csv(folder / "bad.csv", index=False)
    done = nsvm("predict", "run", "bad.csv", "--output", "out.csv", cwd=folder, code=2)
    assert done.stderr == "nsvm: bad.csv: column age, row 181: expected a number, got 'old'\n"
    assert not [*folder.glob("*out.csv*")]


def test_output(folder: Path) -> None:
    done = nsvm("predict", "run", "table.csv", "--output", "out.csv", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "200 predictions in out.csv\n")
    assert pd.read_csv(folder / "out.csv")["prediction"].astype(str).tolist() == [
        row["prediction"] for row in predicted(folder, "table.csv")
    ]
    TABLE[:1].to_csv(folder / "one.csv", index=False)
    TABLE[:0].to_csv(folder / "none.csv", index=False)
    done = nsvm("predict", "run", "one.csv", "--output", "one.txt", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "1 prediction in one.txt\n")


@pytest.mark.parametrize("output", [[], ["--output", "none.txt"]])
def test_a_header_alone_is_no_success(folder: Path, output: list[str]) -> None:
    (folder / "header.csv").write_text("age,colour,income\n")
    done = nsvm("predict", "run", "header.csv", *output, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "nsvm: header.csv holds no samples: expected at least one\n"
    assert not [*folder.glob("*none.txt*")]


def test_formulas_are_escaped_if_asked(tmp_path: Path) -> None:
    """Cells stay as they are by default, so that what is read is what was written."""
    names = ["=HYPERLINK(1)", "-1"]
    table = pd.DataFrame({"a": np.arange(40) % 2, "label": np.resize(names, 40)})
    table.to_csv(tmp_path / "table.csv", index=False)
    trained(*PEGASOS, "dataset.path=table.csv", cwd=tmp_path)
    escaped = predicted(tmp_path, "table.csv", "--escape-formulas")
    assert {row["prediction"] for row in escaped} == {"'=HYPERLINK(1)", "-1"}
    for flags, formula in (([], "=HYPERLINK(1)"), (["--escape-formulas"], "'=HYPERLINK(1)")):
        words = ["predict", "run", "table.csv", "--output", "out.csv", *flags]
        assert nsvm(*words, cwd=tmp_path).returncode == 0
        assert (tmp_path / "out.csv").read_text().splitlines()[1].startswith(f"{formula},")


def test_output_to_a_pipe_and_through_a_link(folder: Path) -> None:
    pipe, link = folder / "pipe", folder / "to.csv"
    os.mkfifo(pipe)
    link.symlink_to("linked.csv")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for output in (pipe, link):
            done = nsvm("predict", "run", "table.csv", "--output", output, cwd=folder)
            assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert os.read(reader, 99).startswith(b"prediction,score\n")
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert (folder / "linked.csv").read_text().startswith("prediction,score\n")


@pytest.mark.parametrize("kind", ["three classes", "regression"])
def test_classes_and_real_targets(kind: str, tmp_path: Path) -> None:
    table = small_table(kind, tmp_path, validation=0)
    words = [f"dataset.path={table['dataset']['path']}", f"task={table['task']}"]
    trained(*PEGASOS, *words, cwd=tmp_path)
    rows = predicted(tmp_path, table["dataset"]["path"])
    truth = pd.read_csv(table["dataset"]["path"])["label"]
    figures = evaluated(tmp_path / "run", "split=all", cwd=tmp_path)
    if kind == "regression":
        errors = truth - [float(row["prediction"]) for row in rows]
        assert np.sqrt((errors**2).mean()) == pytest.approx(figures["rmse"])
        return
    assert np.mean(truth == [row["prediction"] for row in rows]) == figures["accuracy"]
    best = [max(("fox", "hen", "owl"), key=lambda c: float(row[f"score {c}"])) for row in rows]
    assert best == [row["prediction"] for row in rows]


@pytest.mark.parametrize("classes", ["two", "three"])
def test_probabilities_of_a_calibrated_model(classes: str, tmp_path: Path) -> None:
    table = pd.read_csv(small_table("three classes", tmp_path)["dataset"]["path"])
    table = table[table["label"] != "owl"] if classes == "two" else table
    table.to_csv(tmp_path / "table.csv", index=False)
    words = ["dataset.path=table.csv", "dataset.validation=20", "calibration=sigmoid"]
    trained(*PEGASOS, *words, cwd=tmp_path)
    rows = predicted(tmp_path, "table.csv")
    names = [name for name in rows[0] if name.startswith("probability_")]
    assert names == [f"probability_{c}" for c in ("fox", "hen", "owl")[: len(names)]]
    p = np.array([[float(row[name]) for name in names] for row in rows])
    np.testing.assert_allclose(p.sum(1), 1)
    figures = evaluated(tmp_path / "run", "split=all", cwd=tmp_path)
    assert figures["log_loss"] == pytest.approx(log_loss(table["label"], p))


def test_images(tmp_path: Path) -> None:
    trained(*PEGASOS[:-1], "dataset=digits", cwd=tmp_path)
    digits = load_digits()
    pixels = (digits.images[:20].repeat(4, 1).repeat(4, 2) * 15.9).astype(np.uint8)[:, 2:30, 2:30]
    (tmp_path / "images").mkdir()
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / "images" / f"{number:02}.png")
    (tmp_path / "images" / "notes.txt").touch()
    rows = predicted(tmp_path, "images")
    assert [row["file"] for row in rows] == [f"{number:02}.png" for number in range(20)]
    of_two = [
        row["prediction"] == str(label) for row, label in zip(rows, digits.target, strict=False) if label < 2
    ]
    assert np.mean(of_two) > 0.9
    shutil.copytree(tmp_path / "images", tmp_path / "odd")
    odd = ["a\r.png", "b\x0c.png", "c\u2028,\x85.png", os.fsdecode(b"d\xff.png")]
    for number, name in enumerate(odd):
        (tmp_path / "odd" / f"{number:02}.png").rename(tmp_path / "odd" / name)
    assert nsvm("predict", "run", "odd", "--output", "out.csv", cwd=tmp_path).returncode == 0
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        found = [*csv.DictReader(file)]
    assert sorted(row["file"] for row in found)[-4:] == [*odd[:3], r"d\udcff.png"]
    assert len(predicted(tmp_path, "odd")) == len(found) == 20
    Image.new("L", (5, 6)).save(tmp_path / "odd" / "99.png")
    assert "99.png has 5 x 6 pixels, expected" in nsvm("predict", "run", "odd", cwd=tmp_path, code=2).stderr
    (tmp_path / "odd" / "99.png").write_bytes(b"\x89PNG")
    assert "99.png cannot be read as an image" in nsvm("predict", "run", "odd", cwd=tmp_path, code=2).stderr


def test_bad_input(folder: Path, tmp_path: Path) -> None:
    def says(*words: str | Path) -> str:
        return refusal("predict", *words, cwd=tmp_path)

    run = folder / "run"
    assert "missing.csv does not exist" in says(run, "missing.csv")
    assert "which no image has" in says(run, tmp_path)
    assert "no final.safetensors" in says(tmp_path, folder / "table.csv")
    (tmp_path / "fewer.csv").write_text("age\n1\n")
    assert "fewer.csv lacks columns that the model was trained on: colour, income" in says(run, "fewer.csv")
    for separator in (";;", "", "é", '"'):
        message = says(run, folder / "table.csv", "--separator", separator)
        assert message.startswith("expected one ASCII character as separator, such as ;")
    for file in ("missing/out.csv", tmp_path):
        message = says(run, folder / "table.csv", "--output", file)
        assert f"expected a file in a folder that exists, got {file}" in message
    (tmp_path / "odd.csv").write_text("age,colour,income\n1,red,2,3\n")
    assert "odd.csv cannot be read as CSV" in says(run, "odd.csv")
    (tmp_path / "empty.csv").touch()
    assert "empty.csv cannot be read as CSV" in says(run, "empty.csv")
