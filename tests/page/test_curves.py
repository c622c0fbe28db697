"""The curves of a run, with the validation scores during training."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nsvm_cli.errors import InputError
from nsvm_cli.page.curves import Curve, Panel, draw_curves, panels_of, plot_panel
from nsvm_cli.page.plotting import new_figure
from nsvm_cli.storage.metrics_file import read_metrics
from tests.small_runs import small_run
from tests.small_tables import small_table


def run(folder: Path, **changes: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Train 100 steps of Part 1 and 300 of Part 2, and return the records and the result."""
    parts = {
        "dataset": {"name": "ringnorm", "samples": 600, "validation": 60},
        "algorithm": {"name": "alg4", "steps": 100, "solver_steps": 300},
    }
    result = small_run(folder, **{**parts, **changes})
    return read_metrics(folder / "metrics.jsonl"), result


def test_accuracy_on_held_out_data_is_recorded_and_drawn_beside_that_on_training_samples(
    tmp_path: Path,
) -> None:
    """If recorded, validation accuracy is drawn from Part 2 on, and otherwise only after training.

    Recording the accuracy does not change the training.
    """
    courses, ends = [], []
    for every in (None, 70):
        folder = tmp_path / str(every)
        records, result = run(folder, validation={"every": every})
        seen = {r["step"]: r["validation_accuracy"] for r in records if "validation_accuracy" in r}
        assert [*seen] == ([140, 210, 280, 350, 400] if every else [])
        assert seen.get(400, result["validation_accuracy"]) == result["validation_accuracy"]
        panels = panels_of(folder)
        assert [(panel.title, panel.first, panel.last) for panel in panels] == [
            ("Part 1: objective", 0, 100),
            ("Part 2: violations, % of the samples drawn", 100, 400),
            ("Part 2: support vectors", 100, 400),
            ("Part 2: accuracy, %", 100, 400),
        ]
        training, held_out = panels[-1].curves
        assert training.label == "training samples, before training on them"
        assert held_out.points[-1] == (400, 100 * result["validation_accuracy"])
        assert [step for step, _ in held_out.points] == ([*seen] or [400])
        assert draw_curves(folder).read_bytes().startswith(b"\x89PNG")
        courses.append({record.pop("step"): record for record in records})
        model = (folder / "final.safetensors").read_bytes()[-1000:]
        ends.append((result["validation_accuracy"], result["violations"], model))
    assert ends[0] == ends[1]
    blind, watched = courses
    for step, record in watched.items():
        record.pop("validation_accuracy", None)
        if step in blind:
            assert record == blind[step]
        else:
            assert (record["objective"], record["violation_rate"], record["running_accuracy"]) == (None,) * 3
    (tmp_path / "None" / "result.json").unlink()
    # an unfinished run has curves, too
    assert draw_curves(tmp_path / "None") == tmp_path / "None" / "curves.png"


def test_a_run_on_real_targets_has_a_panel_for_r2(tmp_path: Path) -> None:
    run(tmp_path / "run", **small_table("regression", tmp_path), validation={"every": 70})
    titles = [panel.title for panel in panels_of(tmp_path / "run")]
    assert "Part 2: R² on validation data" in titles
    assert not [title for title in titles if "accuracy" in title]


@pytest.mark.parametrize(("first", "lowest"), [(1e6, -1e4), (3e5, -3e5)])
def test_labels_of_an_objective_over_many_decades_do_not_overlap(first: float, lowest: float) -> None:
    values = [first, lowest, *(0.04 * (-1) ** n for n in range(40))]
    with new_figure(7.0, 2.5) as figure:
        plot_panel(Panel("objective", [Curve([*enumerate(values)])], 0, 41), axis := figure.subplots())
        figure.canvas.draw()
        labels = [label.get_window_extent() for label in axis.get_yticklabels()]
    assert len(labels) > 3
    assert all(above.y0 > below.y1 for below, above in pairwise(labels))


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (None, r"no metrics\.jsonl: expected a run directory"),
        ("", "nothing to draw yet"),
        ('{"step": 1, "violations": 0, "support_vectors": 0}\n', "nothing to draw yet"),
    ],
)
def test_without_records_there_is_nothing_to_draw(records: str | None, said: str, tmp_path: Path) -> None:
    if records is not None:
        (tmp_path / "metrics.jsonl").write_text(records)
    with pytest.raises(InputError, match=said):
        draw_curves(tmp_path)
