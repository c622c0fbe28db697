"""``nsvm predict`` agrees with ``nsvm evaluate`` and with the ONNX graph of ``nsvm export``."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

import nsvm_cli
from nsvm_cli.datasets import unlabelled
from tests.cli.process import evaluated, nsvm, refusal, trained
from tests.cli.test_tables import TABLE
from tests.small_tables import small_table

PEGASOS = ["algorithm=pegasos", "algorithm.steps=300", "curves=false", "dataset=csv"]
DATA = ["dataset.path=table.csv", "dataset.label=class", "dataset.drop=[id]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run on a table with text and missing values."""
    folder = tmp_path_factory.mktemp("predict")
    TABLE.to_csv(folder / "table.csv", index=False)
    trained(*PEGASOS, *DATA, cwd=folder)
    return folder


def predicted(folder: Path, *words: str | Path) -> list[dict[str, str]]:
    done = nsvm("predict", folder / "run", *words, cwd=folder, code=0)
    return [*csv.DictReader(io.StringIO(done.stdout))]


def test_the_decisions_of_evaluate(folder: Path) -> None:
    rows = predicted(folder, "table.csv")
    right = [row["prediction"] == str(label) for row, label in zip(rows, TABLE["class"], strict=True)]
    assert np.mean(right) == evaluated(folder / "run", "--split", "all", cwd=folder)["accuracy"]
    assert all((float(row["score"]) >= 0) == (row["prediction"] == "2") for row in rows)


def test_a_model_file_of_1_0(tmp_path: Path) -> None:
    """Every version reads this model of nsvm 1.0, trained on dates, text and numbers with missing values."""
    table = "opened,plan,visits,spend\n2024-05-04,basic,,69.52\n2024-01-27,team,12,52.14\n"
    (tmp_path / "new.csv").write_text(table)
    model = Path(__file__).parents[1] / "artifacts" / "model_1.0.safetensors"
    done = nsvm("predict", model, "new.csv", cwd=tmp_path, code=0)
    rows = [*csv.DictReader(io.StringIO(done.stdout))]
    assert [row["prediction"] for row in rows] == ["no", "yes"]
    found = [[float(row[name]) for name in ("score", "probability_yes")] for row in rows]
    np.testing.assert_allclose(found, [[-1.00111, 0.0834046], [0.999879, 0.843312]], rtol=1e-4)


def test_columns_by_name_without_labels_and_compressed(folder: Path) -> None:
    expected = predicted(folder, "table.csv")
    other = TABLE[["income", "colour", "age"]].assign(weight=1)
    other.to_csv(folder / "other.tsv.gz", index=False, sep="\t")
    assert predicted(folder, "other.tsv.gz") == expected
    assert predicted(folder, "other.tsv.gz", "--separator", r"\t") == expected


def test_block_by_block(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = predicted(folder, "table.csv")
    monkeypatch.setattr(unlabelled, "TABLE_ROWS", 7)
    found = predicted(folder, "table.csv")
    assert [row["prediction"] for row in found] == [row["prediction"] for row in expected]
    scores = [[float(row["score"]) for row in rows] for rows in (found, expected)]
    np.testing.assert_allclose(*scores, rtol=1e-5, atol=1e-4)
    bad = TABLE.assign(age=TABLE["age"].astype(object))
    bad.loc[180, "age"] = "old"
    bad.to_csv(folder / "bad.csv", index=False)
    said = refusal("predict", "run", "bad.csv", "--output", "out.csv", cwd=folder)
    assert said == "bad.csv: column age, row 181: expected a number, got 'old'"
    assert not [*folder.glob("*out.csv*")]


def test_output(folder: Path) -> None:
    done = nsvm("predict", "run", "table.csv", "--output", "out.csv", "--escape-formulas", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "200 predictions in out.csv\n")
    assert pd.read_csv(folder / "out.csv")["prediction"].astype(str).tolist() == [
        row["prediction"] for row in predicted(folder, "table.csv")
    ]


def test_real_targets(tmp_path: Path) -> None:
    table = small_table("regression", tmp_path)["dataset"]["path"]
    trained(*PEGASOS, f"dataset.path={table}", "task=regression", cwd=tmp_path)
    errors = pd.read_csv(table)["label"] - [float(row["prediction"]) for row in predicted(tmp_path, table)]
    figures = evaluated(tmp_path / "run", "--split", "all", cwd=tmp_path)
    assert np.sqrt((errors**2).mean()) == pytest.approx(figures["rmse"])


def test_classes_and_their_probabilities(tmp_path: Path) -> None:
    table = small_table("three classes", tmp_path)["dataset"]["path"]
    words = [f"dataset.path={table}", "dataset.validation=20", "calibration=sigmoid"]
    trained(*PEGASOS, *words, cwd=tmp_path)
    rows, truth, classes = predicted(tmp_path, table), pd.read_csv(table)["label"], ("fox", "hen", "owl")
    p = np.array([[float(row[f"probability_{c}"]) for c in classes] for row in rows])
    np.testing.assert_allclose(p.sum(1), 1)
    figures = evaluated(tmp_path / "run", "--split", "all", cwd=tmp_path)
    assert figures["log_loss"] == pytest.approx(log_loss(truth, p))
    assert np.mean(truth == [row["prediction"] for row in rows]) == figures["accuracy"]
    best = [max(classes, key=lambda c: float(row[f"score {c}"])) for row in rows]
    assert best == [row["prediction"] for row in rows]


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
    Image.new("L", (5, 6)).save(tmp_path / "images" / "99.png")
    assert "99.png has 5 x 6 pixels, expected" in refusal("predict", "run", "images", cwd=tmp_path)
    (tmp_path / "images" / "99.png").write_bytes(b"\x89PNG")
    assert "99.png cannot be read as an image" in refusal("predict", "run", "images", cwd=tmp_path)


def test_bad_input(folder: Path, tmp_path: Path) -> None:
    def says(*words: str | Path) -> str:
        return refusal("predict", *words, cwd=tmp_path)

    run = folder / "run"
    assert "missing.csv does not exist" in says(run, "missing.csv")
    assert "because the model requires samples of shape" in says(run, tmp_path)
    assert "no final.safetensors" in says(tmp_path, folder / "table.csv")
    (tmp_path / "fewer.csv").write_text("age\n1\n")
    assert "fewer.csv lacks columns that the model was trained on: colour, income" in says(run, "fewer.csv")
    assert "expected a separator such as" in says(run, "x.csv", "--separator", ";;")
    message = says(run, folder / "table.csv", "--output", "missing/out.csv")
    assert "--output: expected a file in an existing folder, got missing/out.csv" in message
    shutil.copy(folder / "table.csv", tmp_path / "same.csv")
    assert "choose another file to write" in says(run, "same.csv", "--output", "same.csv")
    assert "of the type .csv or .parquet, got Excel" in says(run, "same.csv", "--output", "new.xlsx")
    model = run / "final.safetensors"
    assert "choose another file" in refusal("export", run, model, "--onnx", cwd=tmp_path)
    (tmp_path / "header.csv").write_text("age,colour,income\n")
    assert "header.csv: expected at least one sample, found none" in says(run, "header.csv")
    (tmp_path / "odd.csv").write_text("age,colour,income\n1,red,2\n1,red,2\n1,red,2,3\n")
    assert "odd.csv cannot be read as CSV" in says(run, "odd.csv")


def encoded(table: pd.DataFrame, about: dict[str, str]) -> np.ndarray:
    """Return the features of a table, encoded with nothing but the metadata of an ONNX graph."""
    columns = json.loads(about["columns"])
    x = {name: table[name].fillna(known) for name, known in columns.items() if isinstance(known, float)}
    for name, known in columns.items():
        if isinstance(known, list):
            x |= {f"{name}={value}": (table[name] == value).astype(float) for value in known}
    assert [*x] == json.loads(about["features"])
    return pd.DataFrame(x).to_numpy(np.float64)


def test_onnxruntime_says_what_predict_says(tmp_path: Path) -> None:
    seconds = np.random.default_rng(0).normal(1.6e9, 1000, len(TABLE)).round()  # multiples of 128 in float32
    table = TABLE.assign(time=seconds)
    table.to_csv(tmp_path / "table.csv", index=False)
    run, _ = trained(*PEGASOS, *DATA, "kernel=laplacian", "engine=torch", cwd=tmp_path)
    done = nsvm("export", run, "--onnx", cwd=tmp_path, code=0)
    graph = run / "final.onnx"
    assert (done.stdout, done.stderr) == (f"ONNX graph: {graph}\n", "")

    session = onnxruntime.InferenceSession(graph)
    about = session.get_modelmeta().custom_metadata_map
    assert session.get_inputs()[0].shape == ["batch", 6]

    scores, prediction = session.run(["scores", "prediction"], {"x": encoded(table, about)})
    rows = predicted(tmp_path, "table.csv")
    expected = np.array([float(row["score"]) for row in rows])
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    classes = json.loads(about["classes"])
    assert [classes[index] for index in prediction] == [row["prediction"] for row in rows]
    assert str(Path(nsvm_cli.__file__).parent).encode() not in graph.read_bytes()
