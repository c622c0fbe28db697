"""Fixture that writes tables to files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(content: str | bytes | pd.DataFrame, name: str = "table.csv") -> str:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        content = content.to_csv(index=False) if isinstance(content, pd.DataFrame) else content
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(file)

    return to_file
