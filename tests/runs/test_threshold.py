"""Runs with ``threshold=``, which changes only the decisions of the model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import precision_recall_curve

from nsvm_cli.artifacts.model_file import load_model
from nsvm_cli.artifacts.onnx_graph import Graph
from nsvm_cli.estimators import NSVMClassifier
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.open_model import open_model
from tests.artifacts.test_model_file import contents
from tests.runs.test_train import bits, go, resumed, settings_with
from tests.small_runs import small_run, small_settings

RARE: dict[str, Any] = {"metric": "f1", "dataset": {"name": "ringnorm", "samples": 300, "validation": 0.2}}
SAME = ("validation_roc_auc", "test_log_loss", "train_average_precision", "alignment", "theta_change")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("threshold")


@pytest.fixture(scope="module")
def plain(folder: Path) -> dict[str, Any]:
    return small_run(folder / "plain", **RARE)


@pytest.mark.parametrize("threshold", ["best", 0.2])
def test_decisions_alone_are_different(threshold: Any, plain: dict[str, Any], folder: Path) -> None:
    run = folder / str(threshold)
    result, t = (found := small_run(run, **RARE, threshold=threshold)), found["threshold"]
    assert {name: result[name] for name in SAME} == pytest.approx({name: plain[name] for name in SAME})
    before, after = (load_model(path / "final.safetensors") for path in (folder / "plain", run))
    tensors = [contents(path / "final.safetensors")[0] for path in (folder / "plain", run)]
    assert all(torch.equal(tensors[1][name], kept) for name, kept in tensors[0].items() if name != "sigmoids")
    data = prepare(small_settings(**RARE)).data
    for split in map(data.splits.__getitem__, ("train", "validation", "test")):
        g, shifted = before.decision_function(split.x), after.decision_function(split.x)
        torch.testing.assert_close(shifted, g - t)
        p, same = before.probabilities(g), after.probabilities(shifted)
        torch.testing.assert_close(same, p, atol=1e-6, rtol=0)
        wanted = p[:, 1] >= threshold if threshold != "best" else g >= t
        assert torch.equal(after.predict(split.x) > 0, wanted)
    split = data.splits["validation"]
    if threshold == "best":
        precision, recall, _ = precision_recall_curve(split.y, before.decision_function(split.x))
        best = np.nanmax(2 * precision * recall / np.maximum(precision + recall, 1e-9))
        assert result["validation_f1"] == pytest.approx(best, abs=1e-6)
        assert result["validation_f1"] >= plain["validation_f1"]
    assert after.score(split.x, split.y)["f1"] == result["validation_f1"]
    second = after.predict(split.x) > 0
    estimator = NSVMClassifier.load(run)
    assert torch.equal(torch.from_numpy(estimator.predict(split.x) == estimator.classes_[1]), second)
    _, predicted, probabilities = Graph(after)(split.x)
    assert torch.equal(predicted, second * 1)
    torch.testing.assert_close(probabilities, before.probabilities(before.decision_function(split.x)).float())
    (run / "final.safetensors").unlink()
    # the model of the checkpoint has the same threshold
    assert open_model(run)[1].metadata.bias == after.metadata.bias == -t


def test_the_best_step_is_chosen_first_and_resuming_changes_nothing(tmp_path: Path) -> None:
    changes: dict[str, Any] = {**RARE, "keep": "best", "validation": {"every": 20}, "threshold": "best"}
    settings, lines = settings_with(**changes), list[str]()
    result = resumed(tmp_path, settings)
    assert result["threshold"] != 0
    best, final = (load_model(tmp_path / "run" / f"{name}.safetensors") for name in ("best", "final"))
    split = prepare(settings).data.splits["validation"]
    assert best.score(split.x, split.y)["f1"] == result["best_validation_f1"] <= result["validation_f1"]
    assert best.metadata.steps == final.metadata.steps == result["best_step"]
    assert final.metadata.bias == best.metadata.bias - result["threshold"]
    before = bits(tmp_path / "run")
    (tmp_path / "run" / "final.safetensors").unlink()
    (tmp_path / "run" / "result.json").unlink()
    go(tmp_path / "run", settings, say=lines.append)
    assert bits(tmp_path / "run") == before, "the checkpoint should lead to the same threshold"
    told = f"for decision values of at least {result['threshold']:.4g}, "
    told += "the threshold with the best f1 on the validation set"
    assert any(told in line for line in lines)


def test_every_kind_of_model_can_have_one(tmp_path: Path) -> None:
    for name in ("trees", "svc", "majority"):
        algorithm = {"name": name}
        for threshold in ("best", 0.3):
            result = small_run(tmp_path / "run", **RARE | {"algorithm": algorithm, "threshold": threshold})
            assert np.isfinite(result["threshold"])
            if threshold == "best":
                least = "at worst, that of always deciding for the second class"
                assert result["validation_f1"] >= 0.5, least
            shutil.rmtree(tmp_path / "run")
