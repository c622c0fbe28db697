"""Resuming a run on a table whose columns have changed places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nsvm_cli.artifacts.model_file import load_model
from nsvm_cli.config.settings import parse_settings, plain
from nsvm_cli.errors import InputError, Interrupted
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage.run_directory import RunDirectory
from tests.runs.test_train import FakeSignals

VALUES: dict[str, Any] = {
    "network": {"name": "mlp", "widths": [6, 4]},
    "kernel": {"name": "rbf"},
    "optimizer": {"name": "sgd", "lr": 0.01},
    "algorithm": {"name": "alg2", "steps": 60},
    "checkpoint": {"every": 10},
    "device": "cpu",
}

pytestmark = pytest.mark.usefixtures("unchecked")


def test_a_checkpoint_belongs_to_its_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=60), "b": ["x", "x", "y", "y"] * 15, "label": [0, 1] * 30})
    table["c"] = rng.random(60)
    path = tmp_path / "table.csv"
    settings = parse_settings({**VALUES, "dataset": {"name": "csv", "path": str(path)}})

    def go(name: str, written: pd.DataFrame, signals: FakeSignals | None = None, **options: Any) -> None:
        written.to_csv(path, index=False)
        with RunDirectory(tmp_path / name, plain(settings), "resume") as run:
            train_run(prepare(settings), run, [signals] if signals else [], signals, **options)

    with pytest.raises(Interrupted):
        go("run", table, FakeSignals(pauses=30))
    others = (
        table[["c", "b", "a", "label"]],
        table.rename(columns={"a": "A"}),
        table.replace({"b": {"x": "z"}}),
    )
    for other in others:
        for allow_mismatch in (True, False):
            with pytest.raises(InputError, match="other columns or categories of text, or the same"):
                go("run", other, allow_mismatch=allow_mismatch)
    go("run", table)
    go("whole", table)
    models = [load_model(tmp_path / name / "final.safetensors").model for name in ("run", "whole")]
    assert models[0].expansion.z.equal(models[1].expansion.z)
