"""``nsvm export``: what onnxruntime says of a table is what ``nsvm predict`` says."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest

import nsvm_cli
from tests.cli.process import nsvm, trained
from tests.cli.test_tables import TABLE

pytestmark = pytest.mark.usefixtures("unchecked")

WORDS = ["algorithm=pegasos", "algorithm.steps=300", "kernel=laplacian", "curves=false", "engine=torch"]
DATA = ["dataset=csv", "dataset.path=table.csv", "dataset.label=class", "dataset.drop=[id]"]


def encoded(table: pd.DataFrame, about: dict[str, str]) -> np.ndarray:
    """Return the features of a table, from what a graph says of its columns."""
    columns = json.loads(about["columns"])
    x = {name: table[name].fillna(known) for name, known in columns.items() if isinstance(known, float)}
    for name, known in columns.items():
        if isinstance(known, list):
            x |= {f"{name}={value}": (table[name] == value).astype(float) for value in known}
    assert [*x] == json.loads(about["features"])
    return pd.DataFrame(x).to_numpy(np.float64)


def test_the_predictions_of_predict(tmp_path: Path) -> None:
    seconds = np.random.default_rng(0).normal(1.6e9, 1000, len(TABLE)).round()  # float32 knows them to 128
    table = TABLE.assign(time=seconds)
    table.to_csv(tmp_path / "table.csv", index=False)
    run, _ = trained(*WORDS, *DATA, cwd=tmp_path)
    done = nsvm("export", run, "--onnx", cwd=tmp_path)
    graph = run / "final.onnx"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"ONNX graph: {graph}\n", "")

    session = onnxruntime.InferenceSession(graph)
    about = session.get_modelmeta().custom_metadata_map
    assert session.get_inputs()[0].shape == ["batch", 6]

    scores, prediction = session.run(["scores", "prediction"], {"x": encoded(table, about)})
    rows = [*csv.DictReader(io.StringIO(nsvm("predict", run, "table.csv", cwd=tmp_path).stdout))]
    expected = np.array([float(row["score"]) for row in rows])
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    classes = json.loads(about["classes"])
    assert [classes[index] for index in prediction] == [row["prediction"] for row in rows]
    assert str(Path(nsvm_cli.__file__).parent).encode() not in graph.read_bytes()
