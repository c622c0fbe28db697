"""What the figures of a comparison show, checked against the files of the runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nsvm_cli.comparison.cells import cells
from nsvm_cli.comparison.compare import compare, ranking
from nsvm_cli.comparison.figures import figures
from nsvm_cli.comparison.records import RunRecord
from nsvm_cli.errors import InputError
from tests.comparison.test_compare import run, runs_of

STEPS = range(10, 210, 10)


def score_of(record: RunRecord, t: int) -> float:
    return t / (t + 10 + len(record.path.name) + 7 * int(record.settings["seed"]))


def seconds_of(record: RunRecord, t: int) -> float:
    return t * (1 + int(record.settings["seed"])) / 100


def written(
    records: Sequence[RunRecord], folder: Path, score: str = "validation_accuracy"
) -> list[RunRecord]:
    """Write the courses of runs to directories, and return these."""
    found = []
    for record in records:
        (path := folder / record.path).mkdir()
        seed = int(record.settings["seed"])
        about = [{"step": t, "violations": t, "support_vectors": t // 2 + 10 * seed} for t in STEPS]
        lines = [{**line, score: score_of(record, line["step"])} for line in about]
        times = [{"step": t, "seconds": seconds_of(record, t)} for t in STEPS]
        (path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        (path / "times.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in times))
        found.append(replace(record, path=path))
    return found


def validated(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the runs as if they had been evaluated on validation data."""
    for record in records:
        record.figures["validation_errors"] = record.figures.pop("test_errors")
        record.figures["data"]["samples"] = {"train": 9000, "validation": 1000, "test": 1000}
    return [*records]


def drawn(records: Sequence[RunRecord]) -> dict[str, Figure]:
    found = cells(records)
    return figures(compare(found), ranking(found))


def curves_of(figure: Figure) -> list[str]:
    """The labels of the axes, and the caption before the words on lines and points."""
    caption = figure.get_suptitle()
    about = caption[: min(at for at in map(caption.find, ("lines:", "points:")) if at >= 0)]
    return [*(axis.get_xlabel() for axis in figure.axes), about]


def drawn_in(axis: Axes) -> tuple[list[Line2D], list[tuple[float, float]]]:
    """The curves, and the points at the end of training."""
    marks = [container[0] for container in axis.containers]
    about_points = {artist for container in axis.containers for artist in (container[0], *container[1])}
    curves = [line for line in axis.lines if line not in about_points and len(np.asarray(line.get_xdata()))]
    return curves, [(*mark.get_xdata(), *mark.get_ydata()) for mark in marks]


ERRORS = {"alg1": [50, 62], "algo2": [66, 71]}
AXES = ["step", "seconds of training", "support vectors"]


def test_curves_are_means_over_the_seeds_against_steps_seconds_and_support_vectors(tmp_path: Path) -> None:
    records = validated(written(runs_of(ERRORS), tmp_path))
    found = drawn(records)
    assert [*found] == ["curves"], "one setting, and two candidates"
    assert curves_of(found["curves"]) == [*AXES, ""]
    assert found["curves"].axes[0].get_ylabel() == "validation accuracy, %"
    for axis, at, end in zip(found["curves"].axes, (1.0, 0.015, 0.5), (200, 1, 5), strict=True):
        curves, points = drawn_in(axis)
        assert np.array(points) == pytest.approx(np.array([(end, 94.4), (end, 93.15)]))
        for line, name in zip(curves, ERRORS, strict=True):
            seeds = [record for record in records if record.settings["algorithm"]["name"] == name]
            scores = [[100 * score_of(r, t) for t in STEPS] for r in map(as_before, seeds)]
            assert np.asarray(line.get_ydata()) == pytest.approx(np.mean(scores, axis=0))
            constant = 5 if axis.get_xlabel() == "support vectors" else 0
            assert np.asarray(line.get_xdata()) == pytest.approx([at * t + constant for t in STEPS])


def as_before(record: RunRecord) -> RunRecord:
    return replace(record, path=Path(record.path.name))


def test_the_best_is_drawn_though_it_recorded_no_curve_and_no_training_accuracy_is(tmp_path: Path) -> None:
    """An algorithm may record none, as one whose SVM is solved at once."""
    records = written(runs_of({"alg1": [90, 91], "alg2": [80, 81]}), tmp_path)
    (tmp_path / "best").mkdir()
    records += written(runs_of({"svm": [10, 20]}), tmp_path / "best", "running_accuracy")
    records[-1].figures["support_vectors"] = None
    figure = drawn(validated(records))["curves"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["svm", "alg2", "alg1"]
    curves, points = drawn_in(figure.axes[0])
    assert (len(curves), points) == (
        2,
        [(200, 98.5), (200, pytest.approx(91.95)), (200, pytest.approx(90.95))],
    )
    assert len(drawn_in(figure.axes[1])[1]) == 3


def test_only_as_many_curves_are_drawn_as_can_be_told_apart(tmp_path: Path) -> None:
    records = validated(written(runs_of({f"alg{n}": [10 * n] for n in range(14)}), tmp_path))
    figure = drawn(records)["curves"]
    assert [[*map(len, drawn_in(axis))] for axis in figure.axes] == [[12, 12]] * 2, "no support vectors"
    assert curves_of(figure)[-1] == "the best 12 of 14 settings; "
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == [f"alg{n}" for n in range(12)], "the best first"


def test_a_negative_r2_is_drawn_as_0(tmp_path: Path) -> None:
    records = validated(written(runs_of(ERRORS), tmp_path, "validation_r2"))
    for record in records:
        del record.figures["validation_errors"]
        record.figures["validation_r2"] = -0.5
        metrics = record.path / "metrics.jsonl"
        metrics.write_text(metrics.read_text().replace('"validation_r2": 0.', '"validation_r2": -0.', 1))
    figure = drawn(records)["curves"]
    assert "R²" in figure.axes[0].get_ylabel()
    curves, points = drawn_in(figure.axes[0])
    assert [np.asarray(line.get_ydata())[0] for line in curves] == [0.0, 0.0]
    assert points == [(200, 0), (200, 0)]


def test_without_a_course_there_are_points_and_damaged_metrics_are_named(tmp_path: Path) -> None:
    records = validated(written(runs_of(ERRORS), tmp_path))
    for record in records[1:]:
        (record.path / "metrics.jsonl").unlink()
    assert [*map(len, drawn_in(drawn(records)["curves"].axes[0]))] == [0, 2], "a seed has no metrics"
    assert drawn(records[:1]) != {}, "a curve"
    assert drawn(records[1:2]) == {}, "a single point is no figure"
    (records[0].path / "metrics.jsonl").write_text("nothing\n")
    with pytest.raises(InputError, match=r"ring-alg1-0/metrics\.jsonl, line 1"):
        drawn(records)


def of_settings(errors: int, lam: float, lr: float | str, seed: int = 0) -> RunRecord:
    record = run(seed, errors)
    record.settings.update(optimizer={"lr": lr}, algorithm={"name": "alg1", "lam": lam})
    return replace(record, overrides=[f"algorithm.lam={lam}", f"optimizer.lr={lr}"])


def test_a_heat_map_of_two_settings(tmp_path: Path) -> None:
    errors = {(1e-5, 0.1): 10, (1e-4, 0.1): 20, (1e-3, 0.1): 30, (1e-5, 0.003): 40, (1e-4, 0.003): 50}
    records = [of_settings(e + 10 * seed, *key, seed) for key, e in errors.items() for seed in (0, 1)]
    figure = drawn(records)["heat_map"]
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["0.003", "0.1"]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["1e-05", "0.0001", "0.001"]
    assert (axis.get_ylabel(), axis.get_xlabel()) == ("algorithm.lam", "optimizer.lr")
    assert {(*text.get_position(), text.get_text()) for text in axis.texts} == {
        *((1, 0, "98.50"), (1, 1, "97.50"), (1, 2, "96.50"), (0, 0, "95.50"), (0, 1, "94.50"))
    }
    assert figure.get_suptitle() == "mean test accuracy, %"


def test_names_stand_at_the_rows_of_a_heat_map_and_few_combinations_make_none() -> None:
    records = [of_settings(10, lam, lr) for lam in (0.1, 0.2) for lr in ("auto", "cosine")]
    (axis,) = drawn(records)["heat_map"].axes
    assert (axis.get_ylabel(), axis.get_xlabel()) == ("optimizer.lr", "algorithm.lam")
    diagonal = [of_settings(10, n / 10, n / 7) for n in range(1, 6)]
    assert "heat_map" not in drawn(diagonal)


def test_ranks_are_drawn_where_there_are_any() -> None:
    found = drawn(runs_of({"alg1": [50, 62, 41], "alg2": [66, 71, 60], "alg3": [52, 60, 47]}))
    assert [*found] == ["curves", "ranks"]
    assert found["ranks"].get_suptitle().startswith("mean ranks over 3 seeds; Friedman's test")
