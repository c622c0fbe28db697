"""Training on arrays that are at hand, without Hydra, a file or a run directory: docs/howto/own-data.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "own-data.md"


def test_the_example_of_the_documents_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    assert names["scores"]["accuracy"] > 0.7  # type: ignore[index]
    assert list(tmp_path.iterdir()) == []
