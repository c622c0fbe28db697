"""Validation accuracy in the course of training, and the picture of it all."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from nsvm_cli.config.settings import parse_settings, plain
from nsvm_cli.errors import InputError
from nsvm_cli.page.curves import Curve, Panel, draw_curves, moving_mean, panels_of, plot_panel
from nsvm_cli.page.plotting import new_figure
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage.run_directory import RunDirectory, write_config
from tests.small_tables import small_table

pytestmark = pytest.mark.usefixtures("unchecked")

SETTINGS: dict[str, Any] = {
    "dataset": {"name": "ringnorm", "samples": 600, "validation": 60},
    "network": {"name": "mlp", "widths": [8, 6]},
    "kernel": {"name": "rbf", "gamma": 1.0},
    "optimizer": {"name": "sgd", "lr": 0.01},
    "algorithm": {"name": "alg4", "steps": 100, "solver_steps": 300},
}


def run(folder: Path, **changes: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    settings = parse_settings({**SETTINGS, **changes})
    with RunDirectory(folder, plain(settings)) as directory:
        result = train_run(prepare(settings), directory)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()], result


def test_validation_accuracy_is_recorded_and_ends_with_the_results(tmp_path: Path) -> None:
    records, result = run(tmp_path / "run", validation={"every": 70})
    seen = {r["step"]: r["validation_accuracy"] for r in records if "validation_accuracy" in r}
    assert [*seen] == [140, 210, 280, 350, 400], "from Part 2 on: before there is no classifier"
    assert seen[400] == result["validation_accuracy"]


THOROUGH = [pytest.param(name, marks=pytest.mark.thorough) for name in ("pegasos", "alg2", "alg3")]


@pytest.mark.parametrize("algorithm", ["alg1", "alg4", *THOROUGH])
def test_looking_changes_nothing(algorithm: str, tmp_path: Path) -> None:
    chosen = {"name": algorithm, "steps": 150, **({"solver_steps": 150} if algorithm == "alg4" else {})}
    results, metrics = [], []
    for name, every in (("blind", None), ("watched", 7)):
        records, result = run(tmp_path / name, algorithm=chosen, validation={"every": every}, log_every=10)
        metrics.append({record.pop("step"): record for record in records})
        model = (tmp_path / name / "final.safetensors").read_bytes()
        results.append((result["validation_accuracy"], result["violations"], model[-1000:]))
    assert results[0] == results[1]
    blind, watched = metrics
    for step, record in watched.items():
        record.pop("validation_accuracy", None)
        if step in blind:
            assert record == blind[step]
        else:
            assert (record["objective"], record["violation_rate"], record["running_accuracy"]) == (None,) * 3


def test_it_needs_a_validation_set() -> None:
    dataset = {"name": "ringnorm", "samples": 600}
    settings = parse_settings({**SETTINGS, "dataset": dataset, "validation": {"every": 5}})
    with pytest.raises(InputError, match=r"validation\.every needs a validation set: expected dataset\.val"):
        prepare(settings)


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (None, r"no metrics\.jsonl: expected the directory of a run"),
        ("", "nothing to draw yet"),
        ('{"step": 1, "violations": 0, "support_vectors": 0}\n', "nothing to draw yet"),
    ],
)
def test_without_records_there_is_nothing_to_draw(records: str | None, said: str, tmp_path: Path) -> None:
    if records is not None:
        (tmp_path / "metrics.jsonl").write_text(records)
    with pytest.raises(InputError, match=said):
        draw_curves(tmp_path)


def test_both_parts_of_algorithm_4_have_their_own_steps(tmp_path: Path) -> None:
    run(tmp_path / "run")
    assert draw_curves(tmp_path / "run") == tmp_path / "run" / "curves.png"
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert [(panel.title, panel.first, panel.last) for panel in panels_of(tmp_path / "run")] == [
        ("Part 1: objective", 0, 100),
        ("Part 2: violations, % of the samples drawn", 100, 400),
        ("Part 2: support vectors", 100, 400),
        ("Part 2: accuracy, %", 100, 400),
    ]


@pytest.mark.parametrize("every", [None, 70])
def test_accuracy_on_held_out_data_is_drawn_beside_that_on_training_samples(
    every: int | None, tmp_path: Path
) -> None:
    """During training where it was recorded, and otherwise after it."""
    records, result = run(tmp_path / "run", validation={"every": every})
    panels = {panel.title: panel for panel in panels_of(tmp_path / "run")}
    training, held_out = panels["Part 2: accuracy, %"].curves
    assert training.label == "training samples, before they are learnt"
    assert held_out.points[-1] == (400, 100 * result["validation_accuracy"])
    recorded = [record["step"] for record in records if "validation_accuracy" in record]
    assert [step for step, _ in held_out.points] == (recorded or [400])
    assert held_out.label == ("validation" if every else "validation, after training")


def test_a_run_on_real_targets_has_a_panel_for_r2(tmp_path: Path) -> None:
    run(tmp_path / "run", **small_table("regression", tmp_path), validation={"every": 70})
    titles = [panel.title for panel in panels_of(tmp_path / "run")]
    assert "Part 2: R² on validation data" in titles
    assert not [title for title in titles if "accuracy" in title]
    (tmp_path / "run" / "result.json").write_text(json.dumps({"test_r2": None}))
    assert [panel.title for panel in panels_of(tmp_path / "run")] == titles, "R² is undefined"


def test_a_dollar_is_a_dollar_and_a_run_may_be_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = plain(parse_settings(SETTINGS))
    settings["dataset"]["name"] = "$x_$\N{DOG}"
    write_config(tmp_path, settings)
    (tmp_path / "metrics.jsonl").write_text('{"step": 30, "violations": 15, "objective": 105.1}\n')
    drawn: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **o: (drawn.append(self), save(self, *a, **o)))
    draw_curves(tmp_path)
    assert drawn[0].get_suptitle() == "alg4 on $x_$\N{DOG}, seed 0: not finished"


def test_a_curve_is_smooth_from_its_first_value_on() -> None:
    line = [float(n) for n in range(100)]
    assert moving_mean(line)[:90] == line[:90]
    assert moving_mean([8.0] + [0.0] * 50)[:7] == [8.0, 8 / 3, 8 / 5, 8 / 7, 8 / 9, 8 / 11, 0.0]


@pytest.mark.parametrize(("first", "lowest"), [(1e6, -1e4), (3e5, -3e5)])
def test_labels_of_an_objective_over_many_decades_do_not_overlap(first: float, lowest: float) -> None:
    values = [first, lowest, *(0.04 * (-1) ** n for n in range(40))]
    with new_figure(7.0, 2.5) as figure:
        plot_panel(Panel("objective", [Curve(list(enumerate(values)))], 0, 41), figure.subplots())
        figure.canvas.draw()
        labels = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert len(labels) > 3
    assert all(above.y0 > below.y1 for below, above in pairwise(labels))
