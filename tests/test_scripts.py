"""The scripts are seldom run: that they import shows that they still fit the package."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.mark.parametrize("package", sorted(folder.parent.name for folder in SCRIPTS.glob("*/__main__.py")))
def test_every_module_imports(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    for file in sorted((SCRIPTS / package).glob("*.py")):
        importlib.import_module(f"{package}.{file.stem}")
