"""Runs on few samples, or none of some class, by every algorithm in the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nsvm_cli.compose.composition import compose_settings
from nsvm_cli.config.settings import Settings, parse_settings
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.trainers import TRAINERS
from tests.conftest import STEPPING
from tests.small_runs import small_run
from tests.small_tables import small_table

pytestmark = pytest.mark.usefixtures("unchecked")


def by_default(algorithm: str, file: Path, *words: str) -> Settings:
    """Return the settings of a user who names an algorithm and a table, but for a few steps."""
    steps = ["algorithm.steps=6"] if algorithm in STEPPING else []
    table = ["dataset=csv", f"dataset.path={file}", f"algorithm={algorithm}"]
    return parse_settings(compose_settings([*table, *steps, "engine=torch", "threads=1", *words]))


@pytest.mark.parametrize(
    ("kind", "rows"), [("2 classes", 4), ("2 classes", 12), ("3 classes", 6), ("reals", 4)]
)
def test_defaults_fit_a_table_of_a_few_rows(kind: str, rows: int, tmp_path: Path) -> None:
    C = {"2 classes": 2, "3 classes": 3}.get(kind)
    x = np.random.default_rng(0).normal(size=(rows, 3)).round(3)
    labels = [f"c{i % C}" if C else f"{x[i, 0]:.2f}" for i in range(rows)]
    file = tmp_path / "table.csv"
    file.write_text(
        "\n".join(["a,b,c,label", *(f"{a},{b},{c},{y}" for (a, b, c), y in zip(x, labels, strict=True))])
    )
    for algorithm in TRAINERS:
        words = [] if C else ["task=regression"]
        experiment = prepare(by_default(algorithm, file, *words))
        model, test = experiment.train(), experiment.data.splits["test"]
        assert len(model.predict(test.x)) == len(test) >= (C or 1)


@pytest.mark.parametrize("name", ["trees", "svc"])
def test_a_constant_model_is_a_result(name: str, tmp_path: Path) -> None:
    lam = {} if name == "trees" else {"lam": 1e300}
    table: Any = small_table("three classes", tmp_path, validation="62 each")
    result = small_run(
        tmp_path / "run", **table, network={"name": "identity"}, algorithm={"name": name, **lam}
    )
    assert len([n for n in np.sum(result["confusion"], axis=0) if n]) == 1
    assert (tmp_path / "run" / "result.json").is_file()
