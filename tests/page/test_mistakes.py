"""The picture of the worst mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from nsvm_cli.config.settings import parse_settings, plain
from nsvm_cli.datasets import Split
from nsvm_cli.page.mistakes import MAX_IMAGES, Mistake, _title, draw_mistakes, worst_mistakes
from nsvm_cli.page.trained import pixels
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage.run_directory import RunDirectory
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


def trained(folder: Path, **changes: Any) -> Path:
    values = {
        "dataset": {"name": "digits", "classes": None},
        "network": {"name": "mlp", "widths": [4]},
        "kernel": {"name": "rbf"},
        "optimizer": {"name": "sgd", "lr": 0.01},
        "algorithm": {"name": "pegasos", "steps": 20},
        **changes,
    }
    settings = parse_settings(values)
    with RunDirectory(folder, plain(settings)) as directory:
        train_run(prepare(settings), directory)
    return folder


def test_a_run_on_images_has_a_picture_of_its_mistakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: list[str] = []
    draw = Figure.draw

    def seen_drawing(self: Figure, *arguments: Any, **options: Any) -> None:
        titles.append(self.get_suptitle())
        titles.extend(axis.get_title() for axis in self.axes)
        draw(self, *arguments, **options)

    monkeypatch.setattr(Figure, "draw", seen_drawing)
    run = trained(tmp_path / "a$x_$b")
    assert draw_mistakes(run) == run / "mistakes.png"
    assert (run / "mistakes.png").read_bytes().startswith(b"\x89PNG")
    assert titles[0].startswith("the worst 24 of ")
    assert titles[0].endswith(" mistakes on the test set: true → decided")
    assert len(titles) == 25  # drawn once
    assert all(true != decided for true, _, decided in (title.split() for title in titles[1:]))


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": {"name": "ringnorm", "samples": 200}},
        {
            "dataset": {"name": "digits"},
            "network": {"name": "identity"},
            "algorithm": {"name": "pegasos", "steps": 300},
        },
    ],
)
def test_without_images_or_mistakes_there_is_none(changes: dict[str, Any], tmp_path: Path) -> None:
    run = trained(tmp_path / "run", **changes)
    assert draw_mistakes(run) is None
    assert not (run / "mistakes.png").exists()


@pytest.mark.parametrize(("channels", "shape"), [(1, (5, 4)), (3, (5, 4, 3))])
def test_grey_and_colour_images_are_drawn_with_their_own_pixels(
    channels: int, shape: tuple[int, ...]
) -> None:
    drawn = pixels(np.linspace(10, 20, channels * 20).reshape(channels, 5, 4), (10.0, 20.0))
    assert drawn.shape == shape
    assert (drawn.min(), drawn.max()) == (0, 1)


def test_a_long_name_of_a_class_has_a_line_of_its_own() -> None:
    assert _title(Mistake(np.zeros(1), "a", "b" * 40)) == f"a\n→ {'b' * 13}…"
