"""Sections of a report, for a model and a result that are written down."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as Pictures
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support
from torch import Tensor

from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.page.document import Grid, Image, Images, Note, Table
from nsvm_cli.page.model_sections import _mistakes, _support_vectors, _worst_predictions
from nsvm_cli.page.sections import _confusion
from nsvm_cli.page.support_vectors import predictions
from nsvm_cli.page.trained import Trained
from nsvm_cli.terminal.confusion import class_cells
from nsvm_cli.trainers.alg1 import Alg1
from tests.page.stub import split, stub

pytestmark = pytest.mark.usefixtures("unchecked")

IMAGES = torch.tensor([[0.0, 255.0], [255.0, 0.0], [51.0, 102.0]], dtype=torch.float64).reshape(3, 1, 1, 2)
OTHERS = split([[[[0.0, 255.0]]], [[[204.0, 0.0]]]], [-1, 1])
CELLS = "An empty cell of numbers shows the median of its column, which the model takes in its place."


@pytest.fixture(autouse=True)
def of_algorithm_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsvm_cli.page.trained.build_trainer", lambda _: Alg1(steps=1))


def pixels(image: Image) -> list[int]:
    """The pixels in the address of an image."""
    png = base64.b64decode(image.address.removeprefix("data:image/png;base64,"))
    pixels: list[int] = np.asarray(Pictures.open(io.BytesIO(png))).ravel().tolist()
    return pixels


def left_minus_right(x: Tensor) -> Tensor:
    return x[:, 0, 0, 0] - x[:, 0, 0, 1]


def test_a_mistake_is_shown_with_its_class_its_decision_and_its_image() -> None:
    found = stub(IMAGES, [1, -1, -1], ["hen", "owl"], left_minus_right, train=OTHERS)
    (block,) = _mistakes(found)
    assert isinstance(block, Images)
    assert block.caption == "The worst 2 of 2 mistakes on the test set: class → decision"
    assert [image.caption for image in block.images] == ["owl → hen", "hen → owl"]
    assert [pixels(image) for image in block.images] == [[0, 255], [255, 0]]


def test_a_prediction_and_its_support_vectors_are_shown_with_their_own_images() -> None:
    expansion = Expansion(
        OTHERS.x.flatten(1), torch.tensor([-2.0, 1.0]).double(), 255.0**2, i=torch.arange(2)
    )
    found = stub(
        *(IMAGES[1:2], [-1], ["hen", "owl"], left_minus_right),
        *(lambda x: x.flatten(1), expansion, OTHERS),
    )
    _, block = _support_vectors(found)
    assert isinstance(block, Images)
    assert block.caption == "hen, decided owl: score +0.8, the sum of all 2 terms; these add up to +0.8"
    assert [image.caption for image in block.images] == ["x", "owl: +0.8"]
    assert [pixels(image) for image in block.images] == [[255, 0], [204, 0]]


def test_a_table_says_what_stands_in_empty_cells() -> None:
    x = [[1.7e9, 0.5], [1.7e9 + 1, -2.0]]
    found = stub(x, [1, 1], "ab", lambda x: 1.7e9 - x[:, 0])
    table, note = _mistakes(found)
    assert isinstance(table, Table)
    assert (table.caption, note) == ("The only mistake on the test set", Note(CELLS))
    assert table.rows == [("b → a", "1700000001", "-2")]
    table, note = _worst_predictions(stub(x, [0.0, 1.7e9], g=lambda x: x[:, 0]))
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["0", "1700000000"]
    assert note == Note(CELLS)
    two = [[1.0, 0.5], [2.0, -2.0]]
    expansion = Expansion(torch.tensor(two).double(), torch.ones(2).double(), 1.0, i=torch.arange(2))
    explained = stub(two, [1, 1], "ab", expansion=expansion, train=split(two, [1, 1]))
    _, grid, note = _support_vectors(explained)
    assert isinstance(grid, Grid)
    assert note == Note(CELLS)


def test_a_cell_of_the_confusion_matrix_is_as_dark_as_its_share_of_the_row() -> None:
    result = {
        "confusion": [[3, 1], [0, 0]],
        "recall": [0.75, None],
        "data": {"classes": ["a", "b"], "samples": {"validation": 0}},
    }
    (grid,) = _confusion(Path(), result)
    assert isinstance(grid, Grid)
    table, of_classes = grid.blocks
    assert isinstance(table, Table)
    assert isinstance(of_classes, Table)
    assert of_classes.rows == [("a", "4", "100.0 %", "75.0 %", "85.7 %"), ("b", "0", "0.0 %", "", "0.0 %")]
    assert table.shades == [[np.sqrt(0.75), 0.5, 0.0], [0.0, 0.0, 0.0]]
    assert [row[:3] for row in table.rows] == [("a", "3", "1"), ("b", ".", ".")]


def test_precision_recall_and_f1_are_those_of_scikit_learn_and_of_many_classes_the_lowest_are_shown() -> None:
    rng = np.random.default_rng(0)
    y, decided = rng.integers(0, 14, 500), rng.integers(0, 14, 500)
    decided[y != 7] = y[y != 7]
    head, *rows = class_cells(confusion_matrix(y, decided).tolist(), [f"c{r}" for r in range(14)])
    scores = precision_recall_fscore_support(y, decided)
    expected = {f"c{r}": [f"{100 * of_all[r]:.1f} %" for of_all in scores[:3]] for r in range(14)}
    assert head == ("class", "samples", "precision", "recall", "F1")
    assert (len(rows), rows[0][0], rows[0][1]) == (12, "c7", str((y == 7).sum()))
    assert {row[0]: [*row[2:]] for row in rows}.items() <= expected.items()
    f1 = [float(row[4].split()[0]) for row in rows]
    assert f1 == sorted(f1)


def with_terms(i: list[int], z: list[list[float]], alpha: list[float]) -> Trained:
    """Return a model with these terms; the feature of x is x // 2."""
    expansion = Expansion(torch.tensor(z).reshape(-1, 1), torch.tensor(alpha), 2.0, i=torch.tensor(i).long())
    train = split([[2], [6], [0], [5]], [1, 1, 1, -1])
    some = [[2.0], [4.0]], [1, -1]
    return stub(*some, "ab", features=lambda x: x.float() // 2, expansion=expansion, train=train)


def test_the_terms_of_a_sample_are_added_up_and_zeros_left_out() -> None:
    """Algorithm 1 adds a term whenever a sample violates the margin."""
    z, alpha = [[1.0]] * 4 + [[3.0], [0.0], [2.0]], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.0]
    for prediction in predictions(with_terms([0, 0, 0, 0, 1, 2, 3], z, alpha)):
        x = float(prediction.x[0]) / 2
        assert prediction.terms == [(4 * x / 2, 0), (3 * x / 2, 1), (-2 * x / 2, 3)]
        assert prediction.total == 5 * x / 2


def test_without_support_vectors_there_is_a_note() -> None:
    assert [*_support_vectors(with_terms([], [], []))] == [Note("There are none.")]
