"""Which training samples support vectors are: found again by their features, or not named at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nsvm_cli.trainers.look_ahead import Violations

from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.report.model_sections import _support_vectors
from nsvm_cli.report.page import Note
from nsvm_cli.report.support_vectors import _training_rows, predictions
from nsvm_cli.report.trained import Trained
from nsvm_cli.trainers.alg1 import Alg1, Alg1State
from nsvm_cli.trainers.base import Problem
from tests.report.stub import split, stub
from tests.report.test_model_sections import load

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.parametrize(
    ("widths", "lr", "named"),
    [([8, 2], 0.01, range(3)), ([8, 2], 1e-9, range(50, 500)), ([100, 50], 1e-4, range(100, 500))],
)
def test_what_algorithm_1_has_added_is_named_rightly_or_not_at_all(
    widths: list[int], lr: float, named: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features of two dimensions lie so densely that many an older one is near to a sample by chance. Of many
    dimensions, those that have moved a little are far from others.
    """
    added: list[int] = []
    on_violation = Alg1.on_violation

    def recorded(self: Alg1, problem: Problem, state: Alg1State, t: int, at: Violations) -> None:
        added.extend(at.i.tolist())
        on_violation(self, problem, state, t, at)

    monkeypatch.setattr(Alg1, "on_violation", recorded)
    found = load(
        tmp_path,
        network={"name": "mlp", "widths": widths, "normalize": False},
        algorithm={"name": "alg1", "steps": 300, "lam": 0.01},
        optimizer={"name": "sgd", "lr": lr},
    )
    rows = _training_rows(found).tolist()[-len(added) :]
    pairs = [(row, true) for row, true in zip(rows, added, strict=True) if row >= 0]
    assert len(pairs) in named
    assert all(row == true for row, true in pairs)


def with_terms(
    x: Any, y: Any, z: Any, alpha: Any, classes: Sequence[str] = (), one_vs_one: bool = False
) -> Trained:
    """Return a model with these training samples and support vectors; the feature of x is x // 2."""
    expansion = Expansion(torch.tensor(z), torch.tensor(alpha), 2.0, one_vs_one=one_vs_one)
    some = [[2.0], [4.0]], [1, -1]
    return stub(*some, classes, features=lambda x: x.float() // 2, expansion=expansion, train=split(x, y))


def rows(*arguments: Any, **options: Any) -> list[int]:
    """Return the numbers of the training samples that support vectors are."""
    found: list[int] = _training_rows(with_terms(*arguments, **options)).tolist()
    return found


def test_of_samples_that_coincide_the_one_is_named_whose_class_fits() -> None:
    x, y = [[8], [2], [2], [6], [2]], [1, -1, 1, 1, 1]
    assert rows(x, y, [[1.0], [1.0], [4.0], [4.1], [3.0]], [2.0, -1.0, 1.0, 1.0, -1.0], "ab") == [
        2,
        1,
        0,
        -1,
        -1,
    ]
    z, alpha = [[1.0], [1.0], [1.0]], [[-1.0, 2.0, -1.0], [3.0, 0.0, -3.0], [-1.0, -1.0, 2.0]]
    assert rows([[2], [2], [4]], [0, 1, 2], z, alpha, "abc") == [1, 0, -1]
    pairs = [[-1.0, 0.0, 2.0], [1.0, 1.0, 0.0]]  # (0, 1), (0, 2), (1, 2)
    assert rows([[2], [2], [4]], [0, 1, 2], z[:2], pairs, "abc", one_vs_one=True) == [1, 0]


def test_of_different_samples_with_the_same_features_none_is_named() -> None:
    assert rows([[2], [3], [4]], [1, 1, 1], [[1.0], [2.0]], [1.0, 1.0], "ab") == [-1, 2]
    assert rows([[2], [2], [4]], [0.5, 0.7, 0.1], [[1.0], [2.0]], [-1.0, -1.0]) == [-1, 2]


def test_the_terms_of_a_sample_are_added_up_and_zeros_left_out() -> None:
    """Algorithm 1 adds a term whenever a sample violates the margin."""
    z, alpha = [[1.0]] * 4 + [[3.0], [0.0], [2.0]], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.0]
    found = predictions(with_terms([[2], [6], [0], [5]], [1, 1, 1, -1], z, alpha, "ab"))
    for prediction in found:
        x = float(prediction.x[0]) / 2
        assert prediction.terms == [(4 * x / 2, 0), (3 * x / 2, 1), (-2 * x / 2, 3)]
        assert prediction.total == 5 * x / 2


def test_without_support_vectors_there_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsvm_cli.report.model_sections.build_trainer", lambda _: Alg1(steps=1))
    empty = with_terms([[2]], [1], np.zeros((0, 1)), np.zeros(0), "ab")
    assert _support_vectors(empty) == [Note("There are none.")]
