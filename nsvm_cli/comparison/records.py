"""Records of the runs in folders, with status, settings and metrics, and tables of runs."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from nsvm_cli.config.settings import flat
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.metrics import figure_of
from nsvm_cli.storage.run_directory import (
    CONFIG,
    RESULT,
    STATUS,
    command_in,
    is_finished,
    outcome_of,
    read_config,
    read_json,
    read_status,
)

if TYPE_CHECKING:
    import pandas as pd

Repetition = tuple[int, str]
"""A seed and a fold of cross-validation. Without folds, the fold is an empty string."""


@dataclass(frozen=True)
class RunRecord:
    """One run.

    Attributes:
        status: ``running``, ``finished``, ``failed`` or ``interrupted``.
        message: one line that explains a failure or an interruption, else empty.
        settings: the settings as plain values; empty if the run failed before its settings were composed.
        figures: the values of ``result.json`` except the settings; empty until the run has finished.
        config_dir: the folder given with ``--config-dir``, if any.
    """

    path: Path
    status: str
    message: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    overrides: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    config_dir: str | None = None

    @property
    def repetition(self) -> Repetition:
        """The seed and the fold, which distinguish runs with otherwise equal settings."""
        dataset = self.settings.get("dataset")
        return int(self.settings["seed"]), str((isinstance(dataset, dict) and dataset.get("fold")) or "")

    def values(self) -> dict[str, Any]:
        """Return the path, status, settings and metrics by name, such as ``algorithm.lam``."""
        outcome = {"path": str(self.path), "status": self.status, "message": self.message}
        figures = flat({"test_accuracy": None, **self.figures})
        return {**outcome, **flat(self.settings), **figures, **outcome}

    def to_json(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in ("status", "message", "settings", "overrides")}
        return {"path": str(self.path), **fields, "test_accuracy": None, **self.figures}


def find_runs(paths: Iterable[Path], conditions: Iterable[str] = ()) -> list[RunRecord]:
    """Return the runs in folders and their subfolders that satisfy all conditions (see ``matching``).

    Each run is returned once, and the runs below each folder are sorted by path.

    Raises:
        InputError: a folder does not exist or contains no run, or a condition is malformed.
    """
    directories: dict[Path, None] = {}
    paths = [*paths]
    # FOLDER/* includes files, such as reports
    for path in [path for path in paths if not path.is_file()] or paths:
        if not path.is_dir():
            problem = "is a file" if path.is_file() else "there is no such folder"
            raise InputError(f"{path}: {problem}; expected run directories or folders of runs")
        runs = [Path(folder) for folder, _, files in os.walk(path) if {CONFIG, STATUS, RESULT} & {*files}]
        # Hydra's own runs have a config.yaml in .hydra
        runs = [run for run in runs if not any(n.startswith(".") for n in run.relative_to(path).parts)]
        if not runs:
            raise InputError(f"{path}: there is no run in this folder; expected the output of nsvm train")
        number = re.compile(r"([0-9]+)")  # sorts job 9 before job 10
        runs.sort(key=lambda run: [int(s) if n % 2 else s for n, s in enumerate(number.split(str(run)))])
        directories |= dict.fromkeys(runs)
    records = [read_run(directory) for directory in directories]
    for condition in conditions:
        records = matching(records, condition)
    return records


def read_run(path: Path) -> RunRecord:
    """Return the record of the run in a directory; a run that cannot be read counts as failed."""
    record = read_status(path)
    try:
        if is_finished(path):
            record = read_json(path / RESULT)
            if not isinstance(record.get("settings"), dict):
                raise InputError(f"{path / RESULT} is damaged: expected the settings of the run")
            inputs = {"settings": record["settings"], **command_in(record)}
            figures = {name: figure for name, figure in record.items() if name not in inputs}
            return RunRecord(path, "finished", **inputs, figures=figures)
        settings = read_config(path) if (path / CONFIG).is_file() else {}
    except InputError as error:
        return RunRecord(path, "failed", str(error), **command_in(record))
    return RunRecord(path, *outcome_of(path, record), settings, **command_in(record))


def differing(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of the settings that differ between runs."""
    settings = [flat(record.settings) for record in records]
    names = dict.fromkeys(name for values in settings for name in values)
    return [name for name in names if len({str(values.get(name)) for values in settings}) > 1]


def distinguishing(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of overridden settings that differ or, if none do, of all settings that differ."""
    differ, chosen = differing(records), overridden(records)
    return [name for name in differ if name in chosen] or differ


def overridden(records: Sequence[RunRecord]) -> set[str]:
    """Return the names of the settings that were overridden in any of the runs."""
    names = {name for record in records for name in flat(record.settings)}
    overrides = {override for record in records for override in record.overrides}
    return {setting_of(override.lstrip("+~").partition("=")[0], names) for override in overrides}


def setting_of(key: str, names: Iterable[str]) -> str:
    """Return the setting that a key on the command line sets, such as ``kernel.name`` for ``kernel``."""
    key = key.partition("@")[0].replace("/", ".")
    return f"{key}.name" if f"{key}.name" in names else key


def values_of(records: Sequence[RunRecord], key: str) -> list[Any]:
    """Return each run's value of a setting or metric, or None. Raise an InputError if no run has a value."""
    if not (rows := rows_of(records)):
        return []
    names = [*rows[0]]
    if (name := setting_of(key, names)) not in names:
        raise InputError(f"{key}: no run has such a setting or metric; {did_you_mean(key, names)}")
    return [row[name] for row in rows]


def matching(records: Sequence[RunRecord], condition: str) -> list[RunRecord]:
    """Return the records that satisfy a condition, such as ``kernel!=rbf``.

    Raises:
        InputError: the condition is malformed, or no run has a setting or metric with its key.
    """
    key, equals, wanted = map(str.strip, condition.partition("="))
    if not equals:
        raise InputError(f"--filter {condition}: expected KEY=VALUE or KEY!=VALUE")
    values = values_of(records, key.removesuffix("!").rstrip())
    pairs = zip(records, values, strict=True)
    return [record for record, value in pairs if _is_equal(value, wanted) != key.endswith("!")]


def _is_equal(value: Any, wanted: str) -> bool:
    if isinstance(value, str):
        return wanted == value
    with contextlib.suppress(ValueError, yaml.YAMLError):
        return bool(value == (float(wanted) if type(value) in (int, float) else yaml.safe_load(wanted)))
    return False


def in_order(records: Sequence[RunRecord], key: str, descending: bool = False) -> list[RunRecord]:
    """Return the records sorted by a setting or a metric (see ``values_of``), with missing values last."""

    def order(pair: tuple[Any, RunRecord]) -> tuple[float, str]:
        value, _ = pair
        return (value, "") if isinstance(value, (int, float)) else (math.inf, str(value))

    pairs = sorted(zip(values_of(records, key), records, strict=True), key=order, reverse=descending)
    return [record for _, record in sorted(pairs, key=lambda pair: pair[0] is None)]


def load_runs(*paths: str | Path) -> pd.DataFrame:
    """Return a table with one row for each run in these folders and their subfolders.

    The columns are ``path``, ``status``, ``message``, the settings by their names on the command line, such
    as ``algorithm.lam``, and the values in ``result.json``, such as ``test_accuracy``. Cells are missing
    values where a run lacks the setting or value.

    Raises:
        InputError: a folder does not exist or contains no run.
    """
    import pandas as pd

    return pd.DataFrame(rows_of(find_runs(map(Path, paths))))


def rows_of(records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Return a row for each record, all with the same columns (see ``load_runs``)."""
    rows = [record.values() for record in records]
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]


def figures_shown(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of the metrics to show in a table of runs, including metrics that some runs lack.

    Scores come first, with the runs' own metrics before the default metrics, then support vectors and
    training time. Step counts are included only if they differ between runs.
    """
    metrics = dict.fromkeys([*(str(record.settings.get("metric")) for record in records), "accuracy", "r2"])
    scores = [f"{split}_{metric}" for split in ("validation", "test", "train") for metric in metrics]
    finished = [record.figures for record in records if record.status == "finished"]
    steps = [key for key in ("theta_steps", "part_steps") if len({str(run.get(key)) for run in finished}) > 1]
    return [*scores, "support_vectors", "train_seconds", *steps]


def runs_table(records: Sequence[RunRecord]) -> tuple[Path, str, dict[str, list[str]]]:
    """Return a table of runs: the common folder, the counts by status as text, and the columns by head."""
    paths = [Path(os.path.abspath(record.path)) for record in records]  # without ..
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    count = Counter(record.status for record in records)
    rows, figures = [record.values() for record in records], figures_shown(records)
    names = (*distinguishing(records), "status", *figures, "message")
    texts = {
        name.removesuffix(".name"): [_text(name, row.get(name), name in figures) for row in rows]
        for name in names
    }
    columns = {head: column for head, column in texts.items() if any(column)}
    run = [str(path.relative_to(folder)) for path in paths]
    return folder, ", ".join(f"{n} {status}" for status, n in count.most_common()), {"run": run, **columns}


def _text(name: str, value: Any, is_figure: bool) -> str:
    """Return the text of a setting or, if ``is_figure``, of a metric in its format."""
    if not is_figure:
        return "" if value is None else value if isinstance(value, str) else json.dumps(value)
    if name == "part_steps":
        return figure_of(name).written(value) if isinstance(value, list) else ""
    if not isinstance(value, (int, float)) or abs(value) > sys.float_info.max:  # 10**400 is valid JSON
        return ""
    return figure_of(name).written(value)
