"""The notebook of the documents runs from its first cell to its last, in a fresh folder."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebooks" / "svm_head.ipynb"


@pytest.mark.thorough
def test_the_notebook_runs(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    shown = [cell.source for cell in notebook.cells if cell.get("outputs")]
    resources = {"metadata": {"path": str(tmp_path)}}
    client.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    assert [cell.source for cell in notebook.cells if cell.get("outputs")] == shown
    assert (tmp_path / "predictions.csv").is_file()
