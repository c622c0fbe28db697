"""Samples without features: rows of a precomputed kernel matrix, sequences and padded sets."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from nsvm_cli import NSVMClassifier, load_model
from nsvm_cli.models.kernels import Precomputed
from nsvm_cli.models.networks import NETWORKS
from nsvm_cli.storage.run_directory import checkpoints_in
from tests.cli.process import evaluated, killed, nsvm, trained
from tests.cli.test_plugins import PAGE, write_files_of

GAMMA, M = 0.7, 1000
RUN = ["curves=false", "dtype=float64", "network=identity", "dataset.scaling=none", "engine=torch"]
INDICES = [*RUN, "dataset=csv", "dataset.path=indices.csv", "kernel=precomputed", "kernel.path=K.npy"]
VECTORS = [*RUN, "dataset=csv", "dataset.path=vectors.csv", "kernel=rbf", f"kernel.gamma={GAMMA}"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the same samples as vectors and as indices of a kernel matrix."""
    x = np.random.default_rng(0).normal(size=(M, 3)).round(6)
    label = {"label": np.where(np.square(x).sum(1) > 2.4, "outside", "inside")}
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], **label}).to_csv(
        tmp_path / "vectors.csv", index=False
    )
    pd.DataFrame(label).to_csv(tmp_path / "indices.csv", index_label="index")
    np.save(tmp_path / "K.npy", np.exp(-GAMMA * np.square(x[:, None] - x).sum(-1)))
    return tmp_path


def run_of(*words: str, name: str, cwd: Path) -> dict[str, Any]:
    """Train in the run directory ``name``, and return the result."""
    nsvm("train", *words, f"hydra.run.dir={name}", cwd=cwd, code=0)
    result: dict[str, Any] = json.loads((cwd / name / "result.json").read_text())
    return result


def refused(*words: str, cwd: Path) -> str:
    return nsvm(*words, cwd=cwd, code=2).stderr.removeprefix("nsvm: ")


@pytest.mark.parametrize("algorithm", ["pegasos", pytest.param("svc", marks=pytest.mark.thorough)])
def test_an_rbf_matrix_of_a_million_entries_gives_the_run_of_the_kernel(algorithm: str, folder: Path) -> None:
    words = [f"algorithm={algorithm}", f"algorithm.{'steps=3000' if algorithm == 'pegasos' else 'tol=1e-12'}"]
    figures: list[dict[str, Any]] = []
    for name, kind in {"indices": INDICES, "vectors": VECTORS}.items():
        result = run_of(*kind, *words, name=name, cwd=folder)
        assert evaluated(folder / name, cwd=folder)["errors"] == result["test_errors"]
        nsvm("predict", name, f"{name}.csv", "--output", f"{name}.out", cwd=folder, code=0)
        figures.append(result)
    ours, theirs = (load_in(folder, name) for name in ("indices", "vectors"))
    assert isinstance(ours.kernel, Precomputed)
    assert isinstance(ours.kernel.G, np.memmap)
    assert ours.expansion.i.equal(theirs.expansion.i)
    np.testing.assert_allclose(ours.expansion.alpha, theirs.expansion.alpha, rtol=0, atol=1e-10)
    predicted = [pd.read_csv(folder / f"{name}.out") for name in ("indices", "vectors")]
    assert predicted[0]["prediction"].equals(predicted[1]["prediction"])
    scores = [table.select_dtypes("number") for table in predicted]
    assert len(scores[0].columns)
    np.testing.assert_allclose(*scores, rtol=0, atol=1e-10)
    assert figures[0]["test_errors"] == figures[1]["test_errors"] < 10
    assert "it requires the matrix file" in refused("export", "indices", "--onnx", cwd=folder)


def run_file(name: str, folder: Path) -> None:
    with contextlib.chdir(folder):
        runpy.run_path(name)


def load_in(folder: Path, run: str) -> Any:
    with contextlib.chdir(folder):
        return load_model(run)


def test_a_killed_run_resumes_to_the_bit_where_the_matrix_has_moved_but_not_changed(folder: Path) -> None:
    words = [*INDICES, "algorithm=pegasos", "algorithm.steps=1500", "checkpoint.every=500", "log_every=500"]
    run_of(*words, name="whole", cwd=folder)
    killed(*words, "hydra.run.dir=killed", step=1000, cwd=folder)
    file, moved = folder / "K.npy", folder / "moved.npy"
    matrix = np.load(file)
    np.save(moved, 2 * matrix)
    file.unlink()
    assert "K.npy: No such file" in refused("train", "resume=killed", cwd=folder)
    assert "kernel_sha256 was" in refused("train", "resume=killed", "kernel.path=moved.npy", cwd=folder)
    np.save(moved, matrix)
    checkpoint = checkpoints_in(folder / "killed")[0]
    evaluated(checkpoint, "--kernel-path", "moved.npy", cwd=folder)
    nsvm("train", "resume=killed", "kernel.path=moved.npy", cwd=folder, code=0)
    ours, theirs = (load_file(folder / name / "final.safetensors") for name in ("killed", "whole"))
    assert all(tensor.equal(theirs[name]) for name, tensor in ours.items())
    texts = {(folder / name / "metrics.jsonl").read_text() for name in ("killed", "whole")}
    assert len(texts) == 1, "expected the same metrics in both runs"
    assert "K.npy: No such file" in refused("evaluate", "whole", cwd=folder)
    assert evaluated(folder / "whole", "--kernel-path=moved.npy", cwd=folder)["accuracy"] > 0.9
    for command in ("diagnose", "report"):
        nsvm(command, "whole", "--kernel-path", "moved.npy", cwd=folder, code=0)


def test_samples_to_predict_have_rows_in_a_larger_matrix(folder: Path) -> None:
    matrix = np.load(folder / "K.npy")
    run_of(*INDICES, "algorithm=svc", name="run", cwd=folder)
    np.save(folder / "larger.npy", np.block([[matrix, matrix[:, :5]], [matrix[:5], matrix[:5, :5]]]))
    pd.DataFrame({"index": [*range(5), *range(M, M + 5)]}).to_csv(folder / "new.csv", index=False)
    assert "from 0 to 999, got 1000" in refused("predict", "run", "new.csv", cwd=folder)
    done = nsvm("predict", "run", "new.csv", "--kernel-path", "larger.npy", cwd=folder, code=0)
    rows = pd.read_csv(io.StringIO(done.stdout))
    assert rows["prediction"][:5].tolist() == rows["prediction"][5:].tolist()
    np.testing.assert_allclose(rows["score"][:5], rows["score"][5:], atol=1e-12)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["kernel=precomputed"], "kernel.path requires a value"),
        (["dataset.scaling=standard"], "expected one feature, which is a row number of K.npy from 0"),
        (["algorithm=alg1"], "or set algorithm=pegasos or svc"),
    ],
)
def test_what_does_not_fit_is_one_line(words: list[str], said: str, folder: Path) -> None:
    settings = INDICES if words[0] != "kernel=precomputed" else INDICES[:-1]
    assert said in refused("train", *settings, "algorithm=pegasos", *words, cwd=folder)


def test_an_estimator_takes_indices(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    y = pd.read_csv("indices.csv")["label"].to_numpy()
    x = pd.read_csv("vectors.csv")[["a", "b", "c"]].to_numpy()
    common: dict[str, Any] = {"algorithm": "svc", "network": "identity", "dtype": "float64"}
    settings = {"dataset.scaling": "none", "algorithm.tol": 1e-12}
    ours = NSVMClassifier(kernel="precomputed", settings={**settings, "kernel.path": "K.npy"}, **common)
    theirs = NSVMClassifier(kernel="rbf", gamma=GAMMA, settings=settings, **common)
    i = np.arange(M)[:, None]
    g = ours.fit(i[::2], y[::2]).decision_function(i)
    np.testing.assert_allclose(g, theirs.fit(x[::2], y[::2]).decision_function(x), rtol=0, atol=1e-10)
    ours.save("model.safetensors")
    loaded = NSVMClassifier.load("model.safetensors")
    np.testing.assert_array_equal(loaded.decision_function(i), g)
    np.testing.assert_array_equal(loaded.fit(i[::2], y[::2]).decision_function(i), g)


def test_the_spectrum_kernel_of_the_page_tells_sequences_apart(tmp_path: Path) -> None:
    page = PAGE.with_name("samples-without-features.md").read_text()
    files = write_files_of(page, tmp_path)
    assert {"make_dna.py", "spectrum.py"} <= files
    run_file("make_dna.py", tmp_path)
    command = re.findall(r"nsvm train ('plugins=.*?algorithm=svc)\n", page, flags=re.DOTALL)[0]
    words = [word.strip("'") for word in command.replace("\\\n", " ").split()]
    run, result = trained(*words, "curves=false", cwd=tmp_path)
    assert result["test_accuracy"] > 0.95
    assert evaluated(run, "--plugins=spectrum", cwd=tmp_path)["errors"] == result["test_errors"]


@pytest.mark.thorough
def test_padding_stays_out_of_the_features_of_the_network_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PAGE.with_name("samples-without-features.md").read_text()
    write_files_of(page, tmp_path)
    run_file("make_sets.py", tmp_path)
    command = re.findall(r"nsvm train ('plugins=\[set_network.*?)\n```", page, flags=re.DOTALL)[0]
    words = [word.strip("'") for word in command.replace("\\\n", " ").split()]
    run, result = trained(*words, "curves=false", cwd=tmp_path)
    assert result["test_accuracy"] > 0.95
    assert evaluated(run, "--plugins=set_network", cwd=tmp_path)["errors"] == result["test_errors"]

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(NETWORKS, "sets", nn.Module)  # to remove the entry after the test
    del NETWORKS["sets"]
    sets = importlib.import_module("set_network")
    x, y = np.load(tmp_path / "sets.npy"), np.load(tmp_path / "labels.npy")
    other = np.where(x[..., -1:] == 1, x, [5.0, -7.0, 0.0])
    unscaled = {"dataset.scaling": "none"}
    ours = NSVMClassifier("alg4", network="sets", steps=20, dtype="float64", settings=unscaled)
    ours.fit(x[:100], y[:100])
    np.testing.assert_allclose(ours.decision_function(other), ours.decision_function(x), rtol=0, atol=1e-10)
    network = sets.Sets(x.shape[1:]).double().eval()
    longer = torch.from_numpy(np.pad(x, [(0, 0), (0, 7), (0, 0)]))
    torch.testing.assert_close(network(longer), network(torch.from_numpy(x)), rtol=0, atol=1e-10)
