"""ONNX graphs: onnxruntime returns the same outputs for raw samples as nsvm."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from torch import Tensor

from nsvm_cli.artifacts.onnx_graph import onnx_graph
from nsvm_cli.datasets import Data
from nsvm_cli.datasets.base import as_float
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.models.kernels import KERNELS, Kernel
from nsvm_cli.models.nsvm import NSVM, probabilities
from nsvm_cli.tasks import Classification
from tests.page.models import load
from tests.small_tables import small_table

ALG1 = {"name": "alg1", "steps": 60}
TABLE = {"dataset": {"name": "ringnorm", "samples": 300}}
IMAGES = {"dataset": {"name": "digits"}}
TEN_CLASSES = {"dataset": {"name": "digits", "classes": None}}


def trained(folder: Path, **changes: Any) -> tuple[NSVM, Data]:
    """Return a model and its data. By default, features are normalised to keep float32 errors near 1e-6."""
    return load(folder, **{"optimizer": {"name": "sgd", "lr": 0.003}, "algorithm": ALG1, **changes})


def expect_same(model: NSVM, data: Data) -> None:
    """Check the values and dtypes of all outputs, for one sample and for many samples."""
    session, x = onnxruntime.InferenceSession(onnx_graph(model)), data.splits["all"].x[:500]
    g, decided = model.decision_function(x), model.predict(x)
    raw = as_float(x).double().numpy()
    if isinstance(model.task, Classification):
        sure = g.abs() > 1e-4 if g.ndim == 1 else g.topk(2).values.diff().squeeze(1) < -1e-4
        decided = torch.where(sure, model.task.index(decided), -1)
    else:
        decided = (decided - model.task.mean) / model.task.std
    for rows in (slice(0, 1), slice(0, len(x))):
        scores, prediction, *p = session.run(None, {"x": raw[rows]})
        expect_near(scores, g[rows].numpy(), float(g.abs().max()))
        assert prediction.dtype == (np.int64 if isinstance(model.task, Classification) else np.float64)
        if isinstance(model.task, Classification):
            prediction = np.where(sure[rows].numpy(), prediction, -1)
        else:
            prediction = (prediction - model.task.mean) / model.task.std
        expect_near(prediction, decided[rows].numpy(), float(decided.abs().max()))
        if model.sigmoids is not None:
            expect_near(p[0], probabilities(model.sigmoids, g[rows]).to(g.dtype).numpy(), 1)


def expect_near(found: np.ndarray, expected: np.ndarray, scale: float) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * scale, strict=True)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = trained(tmp_path, **TABLE)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match=r"pip install 'nsvm\[onnx\]'"):
        onnx_graph(model)


MODELS: dict[str, dict[str, Any]] = {
    **{
        f"mlp {name}": {**TABLE, "kernel": {"name": name}}
        for name in sorted(KERNELS.keys() - {"sum", "product", "precomputed"})
    },
    "learnt kernel": {
        **TABLE,
        "kernel": {
            "name": "sum",
            "of": [{"name": "rbf", "ard": True}, {"name": "linear"}],
            "learn": ["weights"],
        },
    },
    "cnn": {**IMAGES, "network": {"name": "cnn", "normalize": True}, "algorithm": {**ALG1, "steps": 5}},
    "torchvision": {
        **IMAGES,
        "network": {"name": "torchvision", "model": "mobilenet_v3_small", "normalize": True},
        "algorithm": {**ALG1, "steps": 5},
    },
    "normalized kernel": {**TABLE, "kernel": {"name": "polynomial", "degree": 2, "normalize": True}},
    "bias": {**TABLE, "algorithm": {"name": "alg4", "steps": 20, "solver": "svc", "lam": 0.01}},
    "ten classes": {**TEN_CLASSES, "algorithm": {"name": "alg4", "steps": 20, "solver_steps": 300}},
    "pairs of classes": {**TEN_CLASSES, "algorithm": {"name": "alg4", "steps": 20, "solver": "svc"}},
    "two calibrated classes": {
        "dataset": {"name": "ringnorm", "samples": 300, "validation": 100},
        "calibration": "sigmoid",
        "dtype": "float64",
    },
    "ten calibrated classes": {
        "dataset": {"name": "digits", "classes": None, "validation": 100},
        "calibration": "sigmoid",
        "dtype": "float64",
    },
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "cnn" else [pytest.mark.thorough]) for name in MODELS],
)
def test_every_kind_of_model(name: str, tmp_path: Path) -> None:
    expect_same(*trained(tmp_path, **MODELS[name]))


def test_sums_with_large_coefficients(tmp_path: Path) -> None:
    """In float32, the rounding errors of the sums would be as large as the margin."""
    section = {"network": {"name": "identity"}, "kernel": {"name": "rbf", "gamma": 1e-4}}
    model, data = trained(tmp_path, **TABLE, **section, algorithm={"name": "pegasos", "steps": 100})
    alpha = 1e6 * torch.tensor([-1.0, 1.0]).repeat(len(model.expansion.alpha))
    e = replace(model.expansion, alpha=alpha[: len(model.expansion.alpha)], scale=1.0)
    expect_same(replace(model, expansion=e), data)


@pytest.mark.thorough
def test_real_targets_in_their_units(tmp_path: Path) -> None:
    """float32 would keep only seven digits of the mean, which is 1.7e9."""
    table = small_table("regression", tmp_path)
    cells = pd.read_csv(table["dataset"]["path"])
    cells["label"] = 1.7e9 + 60 + cells["label"]
    cells.to_csv(table["dataset"]["path"], index=False)
    expect_same(*trained(tmp_path, **table, algorithm={"name": "pegasos", "steps": 200}))


@dataclass(frozen=True)
class Bessel(Kernel):
    """A kernel that ONNX operators cannot express."""

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.special.i0(a @ b.mT / 100)


@pytest.mark.thorough
def test_what_onnx_cannot_say_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KERNELS, "bessel", Bessel)
    model, _ = trained(tmp_path, **TABLE, kernel={"name": "bessel"})
    with pytest.raises(RunError, match=r"cannot be written as ONNX: .*bessel_i0") as error:
        onnx_graph(model)
    assert "\n" not in str(error.value)
