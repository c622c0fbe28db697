"""What a task promises, for arrays and tensors alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nsvm_cli.tasks import BINARY, BinaryClassification, task_for


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_binary_classification(kind: object) -> None:
    make = kind  # type: ignore[assignment]
    y, g = make(np.array([1.0, 1.0, -1.0, -1.0])), make(np.array([1.0, 0.0, -0.5, 2.0]))  # type: ignore[operator]
    assert BINARY.violates(y, g).tolist() == [False, True, True, True], "a margin of 1 is no violation"
    assert BINARY.decide(g).tolist() == [1, 1, -1, 1], "g = 0 is +1"
    assert BINARY.score(y, BINARY.decide(g)) == {"accuracy": 0.75, "errors": 1}
    assert BINARY.metric in BINARY.score(y, y)


def test_accuracy_is_the_number_a_person_would_write() -> None:
    y = np.ones(100)
    decisions = np.where(np.arange(100) < 7, -1.0, 1.0)
    assert BINARY.score(y, decisions) == {"accuracy": 0.93, "errors": 7}, "1 - 7/100 is 0.9299999999999999"


def test_labels_are_coded_in_the_order_of_the_classes() -> None:
    labels = np.array(["b", "a", "b"])
    assert BinaryClassification.encode(labels, ["a", "b"]).tolist() == [1.0, -1.0, 1.0]
    assert BinaryClassification.encode(labels, ["b", "a"]).tolist() == [-1.0, 1.0, -1.0]


def test_strata_are_the_classes() -> None:
    task = task_for(("no", "yes"))
    strata = task.strata(np.array([1.0, -1.0, 1.0]))
    assert [(name, members.tolist()) for name, members in strata] == [
        ("no", [False, True, False]),
        ("yes", [True, False, True]),
    ]


def test_codes_are_recognised() -> None:
    assert BINARY.is_code(torch.tensor([1.0, -1.0]))
    assert not BINARY.is_code(torch.tensor([1.0, 0.0]))
