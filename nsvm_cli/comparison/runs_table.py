"""The table of runs: what ``nsvm runs`` prints, and reports show."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsvm_cli.comparison.records import RunRecord, telling
from nsvm_cli.words import METRIC_FORMATS

FIGURES = (
    *("validation_accuracy", "validation_r2", "test_accuracy", "test_r2", "train_accuracy", "train_r2"),
    *("support_vectors", "train_seconds"),
)
"""The figures of the table, if any run has them."""

KEPT = ("run", "dataset", "algorithm", "seed", "status", "message", *FIGURES[:4])
"""The columns that are shown even if there is no room for others."""


@dataclass(frozen=True)
class RunsTable:
    """Columns of text by their heads, the folder above all runs, and how many of these have which status."""

    folder: Path
    count: str
    columns: Mapping[str, Sequence[str]]


def runs_table(records: Sequence[RunRecord]) -> RunsTable:
    """Return the table of one or more runs: the settings that tell them apart, status and figures."""
    paths = [Path(os.path.abspath(record.path)) for record in records]  # without the .. that may be in them
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    count = Counter(record.status for record in records)
    rows, names = [record.values() for record in records], (*telling(records), "status", *FIGURES, "message")
    texts = {name.removesuffix(".name"): [_text(name, row.get(name)) for row in rows] for name in names}
    shown = {head: column for head, column in texts.items() if any(column)}
    return RunsTable(
        folder,
        ", ".join(f"{n} {status}" for status, n in count.most_common()),
        {"run": [str(path.relative_to(folder)) for path in paths], **shown},
    )


def _text(name: str, value: Any) -> str:
    """Return the text of a setting, or of a figure in its format."""
    if name not in FIGURES:
        return "" if value is None else value if isinstance(value, str) else json.dumps(value)
    if not isinstance(value, (int, float)) or abs(value) > sys.float_info.max:  # 10**400 is valid JSON
        return ""
    metric = name.partition("_")[2]
    if metric in METRIC_FORMATS:
        return METRIC_FORMATS[metric][1](value)
    return f"{value:.1f}" if name == "train_seconds" else str(value)
