"""The confusion matrix as a picture: counts, colours and names in their places."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from nsvm_cli.page.confusion_picture import draw_confusion


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures, in place of files."""
    figures: list[Figure] = []

    monkeypatch.setattr(
        "nsvm_cli.page.confusion_picture.write_figure", lambda file, figure: figures.append(figure) or file
    )
    return figures


def run_with(folder: Path, counts: Any, classes: list[str], validation: int = 0) -> Path:
    data = {"classes": classes, "samples": {"validation": validation, "test": 0}}
    result = {"confusion": np.array(counts).tolist(), "data": data}
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def names(axis: Any) -> list[list[str]]:
    """The names of the rows and of the columns."""
    return [
        [label.get_text() for label in labels()] for labels in (axis.get_yticklabels, axis.get_xticklabels)
    ]


def test_each_count_stands_where_its_class_and_its_decision_meet(drawn: list[Figure], tmp_path: Path) -> None:
    counts = [[9, 1, 0], [0, 5, 0], [2, 0, 2]]
    draw_confusion(run_with(tmp_path, counts, ["ant", "b$ee", "c" * 40], validation=5))
    axis = drawn[0].axes[0]
    assert axis.get_title(loc="left") == "confusion on the validation set"
    assert (axis.get_ylabel(), axis.get_xlabel()) == ("class", "decision")
    assert names(axis) == [["ant", "b$ee", "c" * 15 + "…"]] * 2
    written = {(text.get_position(), text.get_text()) for text in axis.texts}
    assert written == {((j, i), str(n)) for i, row in enumerate(counts) for j, n in enumerate(row) if n}
    shares = np.asarray(axis.images[0].get_array())
    np.testing.assert_allclose(shares, [[0.9, 0.1, 0], [0, 1, 0], [0.5, 0, 0.5]])
    assert axis.images[0].get_clim() == (0, 1), "the same colours in all pictures"


def test_many_classes_have_colours_and_names_and_too_many_no_names(
    drawn: list[Figure], tmp_path: Path
) -> None:
    """A class without held-out samples has an empty row."""
    for C in (40, 101):
        draw_confusion(run_with(tmp_path, np.diag(range(C)), [f"class {r}" for r in range(C)]))
        axis = drawn[-1].axes[0]
        assert names(axis) == [[f"class {r}" for r in range(C)] if C == 40 else []] * 2
        assert not axis.texts
        np.testing.assert_array_equal(axis.images[0].get_array(), np.diag([0.0] + [1.0] * (C - 1)))


def test_it_is_a_file_on_a_white_ground(tmp_path: Path) -> None:
    assert draw_confusion(run_with(tmp_path, [[3, 1], [0, 4]], ["-1", "1"])) == tmp_path / "confusion.png"
    with Image.open(tmp_path / "confusion.png") as picture:
        assert picture.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)


def test_real_targets_have_none(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    assert draw_confusion(tmp_path) is None
    assert not (tmp_path / "confusion.png").exists()
