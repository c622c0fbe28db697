"""Shared fixtures: a certificate authority for downloads, and tables as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.datasets.https_server import Authority

Write = Callable[..., str]


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """A certificate authority that this process and its children trust."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.bundle))
    return authority


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(content: str | bytes | pd.DataFrame, name: str = "table.csv") -> str:
        file = tmp_path / name
        content = content.to_csv(index=False) if isinstance(content, pd.DataFrame) else content
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(file)

    return to_file
