"""Small tables for tasks other than two classes, and the settings that train on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("regression", "three classes")


def small_table(kind: str, folder: Path, validation: int | str = "20 each") -> dict[str, Any]:
    """Write a table of 240 samples to a folder, and return the settings of its data set and task."""
    x = np.random.default_rng(0).normal(size=(240, 3)).round(4)
    if kind == "regression":
        task, labels = "regression", [f"{1000 + 20 * a - 10 * b * b:.3f}" for a, b, _ in x]
    else:
        task, labels = "classification", [("fox", "hen", "owl")[r] for r in x.argmax(1)]
    lines = [",".join([*map(str, row), label]) for row, label in zip(x, labels, strict=True)]
    file = folder / f"{task}.csv"
    file.write_text("\n".join(["a,b,c,label", *lines]))
    return {"dataset": {"name": "csv", "path": str(file), "validation": validation}, "task": task}
