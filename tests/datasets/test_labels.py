"""Labels of CSV tables: classes as they are written, and real targets."""

from __future__ import annotations

import numpy as np
import pytest

from nsvm_cli.datasets import load_data
from nsvm_cli.errors import InputError
from nsvm_cli.tasks import Classification, Regression, task_for
from tests.datasets.conftest import Write
from tests.datasets.helpers import load, refusal
from tests.datasets.test_csv import ROWS, X


@pytest.mark.parametrize(
    ("written", "classes"),
    [
        (("10", "9", "1.5"), ("1.5", "9", "10")),
        (("12E3", "12000", "1_0", "10"), ("10", "12000", "12E3", "1_0")),
        (("True", "TRUE", "1"), ("1", "TRUE", "True")),
        (("NA", "nan", "None", "null"), ("NA", "None", "nan", "null")),
    ],
)
def test_classes_are_told_apart_as_they_are_written(
    write: Write, written: tuple[str, ...], classes: tuple[str, ...]
) -> None:
    content = "a,label\n" + "".join(f"{n},{name}\n" for n, name in enumerate(written * 12))
    data = load("csv", path=write(content))
    assert data.task.classes == classes
    assert isinstance(data.task, Classification)
    codes = data.task.index(data.splits["all"].y)
    assert [classes[int(r)] for r in codes] == [*written * 12]
    assert refusal("csv", path=write(f"{content}1,\n")).endswith(f"row {len(written) * 12 + 1} has no label")


@pytest.mark.parametrize(("classes", "rows"), [(("ham", "eggs"), 3), (("eggs", "ham", "spam"), 1)])
def test_a_short_table_for_a_trained_model(write: Write, classes: tuple[str, ...], rows: int) -> None:
    section = {"name": "csv", "path": write("a,label\n" + "1,ham\n" * rows), "validation": 200}
    data = load_data(section, 0, task=task_for(classes))
    assert data.task == task_for(classes)
    assert data.task.index(data.splits["all"].y).tolist() == [classes.index("ham")] * rows
    with pytest.raises(InputError, match="expected rows below its header, found none"):
        load_data({**section, "path": write("a,label\n")}, 0, task=task_for(classes))


def targets(write: Write, *changed: str) -> dict[str, str]:
    """Return the section for a table of real targets, of which the last ones are as given."""
    labels = [*(repr(y) for y in X[:, 1].tolist()[: ROWS - len(changed)]), *changed]
    rows = "".join(f"{a},{y}\n" for a, y in zip(X[:, 0].tolist(), labels, strict=True))
    return {"name": "csv", "path": write("a,label\n" + rows)}


def test_real_targets(write: Write) -> None:
    data = load_data({**targets(write), "validation": 5}, 0, "regression")
    assert data.splits.sizes == {"train": 31, "validation": 5, "test": 4, "all": 40}
    np.testing.assert_array_equal(data.splits["all"].y, X[:, 1])
    y = data.splits["train"].y
    assert isinstance(data.task, Regression)
    assert (data.task.mean, data.task.std) == pytest.approx((y.mean().item(), y.std().item()))


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ("9" * 400, "row 40: expected a finite number for task=regression, got"),
        ("", "row 40 has no label"),
        ("True", "row 40: expected a finite number for task=regression, got 'True'"),
        ("low", "got 'low'; to tell classes apart: task=classification"),
    ],
)
def test_broken_targets(write: Write, label: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        load_data(targets(write, label), 0, "regression")
    assert says in str(caught.value)


def test_targets_without_a_scale(write: Write) -> None:
    with pytest.raises(InputError, match="expected different, finite targets"):
        load_data(targets(write, *["1.5"] * ROWS), 0, "regression")


def test_the_scale_of_a_trained_model_stays(write: Write) -> None:
    task = Regression(3.0, 2.0)
    data = load_data({"name": "csv", "path": write("a,label\n1,2.5\n")}, 0, "regression", task=task)
    assert data.task == Regression(3.0, 2.0)
    assert data.splits["all"].y.tolist() == [2.5]
