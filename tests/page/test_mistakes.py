"""The worst mistakes of a run."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from nsvm_cli.datasets import Split
from nsvm_cli.page.mistakes import MAX_IMAGES, worst_mistakes
from nsvm_cli.page.trained import pixels
from nsvm_cli.tasks import task_for

pytestmark = pytest.mark.usefixtures("unchecked")


def mistakes_of(g: list[Any], y: list[float], classes: str) -> tuple[list[str], int]:
    """Return which mistakes a model with these decision values makes, in their order, and how many."""
    model = Mock(decision_function=lambda x: torch.tensor(g))
    split = Split(torch.arange(len(y)).double().reshape(-1, 1, 1, 1), torch.tensor(y, dtype=torch.float64))
    found, count = worst_mistakes(model, task_for(list(classes)), split)
    return [f"{m.sample.item():.0f}: {m.true} {m.decided}" for m in found], count


def test_the_worst_mistakes_are_those_decided_by_the_most() -> None:
    two = mistakes_of([0.5, -3.0, 2.0, 1.0], [-1, 1, 1, -1], "ab")
    assert two == (["1: b a", "3: a b", "0: a b"], 3)
    three = mistakes_of([[1.0, 2.0, 0.0], [5.0, 0.0, 4.0], [0.0, 1.0, 0.0]], [0, 2, 1], "abc")
    assert three == (["0: a b", "1: c a"], 2)
    many, count = mistakes_of([1.0] * 40, [-1.0] * 40, "ab")
    assert (len(many), count) == (MAX_IMAGES, 40)


@pytest.mark.parametrize(("channels", "shape"), [(1, (5, 4)), (3, (5, 4, 3))])
def test_grey_and_colour_images_are_drawn_with_their_own_pixels(
    channels: int, shape: tuple[int, ...]
) -> None:
    drawn = pixels(np.linspace(10, 20, channels * 20).reshape(channels, 5, 4), (10.0, 20.0))
    assert drawn.shape == shape
    assert (drawn.min(), drawn.max()) == (0, 1)
