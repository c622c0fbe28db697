"""The terms of a prediction, by the samples that they are of."""

from __future__ import annotations

import pytest
import torch

from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.page.document import Note
from nsvm_cli.page.model_sections import _support_vectors
from nsvm_cli.page.support_vectors import predictions
from nsvm_cli.page.trained import Trained
from nsvm_cli.trainers.alg1 import Alg1
from tests.page.stub import split, stub

pytestmark = pytest.mark.usefixtures("unchecked")


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


def test_without_support_vectors_there_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsvm_cli.page.model_sections.build_trainer", lambda _: Alg1(steps=1))
    assert [*_support_vectors(with_terms([], [], []))] == [Note("There are none.")]
