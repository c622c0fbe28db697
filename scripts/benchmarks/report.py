"""Tables in CSV and Markdown files."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import sklearn
import torch

from nsvm_cli import __version__

Row = Mapping[str, Any]


class Report:
    """Writes each table to disk as soon as it is complete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        versions = f"nsvm {__version__}, torch {torch.__version__}, scikit-learn {sklearn.__version__}"
        self._write(f"{versions}, Python {platform.python_version()}, {platform.machine()}, 1 thread\n", "w")

    def table(self, name: str, title: str, rows: Sequence[Row]) -> None:
        """Write ``name``.csv, and append the table to ``report.md``."""
        frame = pd.DataFrame(rows)
        frame.to_csv(self.folder / f"{name}.csv", index=False)
        header = [f"| {' | '.join(frame.columns)} |", f"|{' --- |' * len(frame.columns)}"]
        lines = [f"| {' | '.join(map(_shown, row))} |" for row in frame.itertuples(index=False)]
        self._write("\n".join(["", f"### {title}", "", *header, *lines, ""]))
        print(f"{title}\n{frame.to_string(index=False)}\n", flush=True)

    def _write(self, text: str, mode: str = "a") -> None:
        with (self.folder / "report.md").open(mode) as file:
            file.write(text)


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def spread(values: Sequence[float]) -> str:
    """Return the median, the smallest and the largest value as text."""
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"
