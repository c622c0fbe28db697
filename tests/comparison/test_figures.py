"""The figures of a comparison: curves from the files of runs, and diagrams of mean ranks."""

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
from matplotlib.text import Text

from nsvm_cli.comparison.compare import Ranking, cells, compare, ranking
from nsvm_cli.comparison.figures import figures, mean_ranks
from nsvm_cli.comparison.records import RunRecord
from nsvm_cli.errors import InputError
from tests.comparison.test_compare import by, runs_of

STEPS = range(10, 210, 10)


def score_of(record: RunRecord, t: int) -> float:
    return t / (t + 10 + len(record.path.name) + 7 * int(record.settings["seed"]))


def written(
    records: Sequence[RunRecord], folder: Path, score: str = "validation_accuracy"
) -> list[RunRecord]:
    """Write the metrics and times of runs to directories, and return the runs with these paths."""
    found = []
    for record in records:
        (path := folder / record.path).mkdir()
        seed = int(record.settings["seed"])
        about = [{"step": t, "violations": t, "support_vectors": t // 2 + 10 * seed} for t in STEPS]
        lines = [{**line, score: score_of(record, line["step"])} for line in about]
        times = [{"step": t, "seconds": t * (1 + seed) / 100} for t in STEPS]
        (path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        (path / "times.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in times))
        found.append(replace(record, path=path))
    return found


def validated(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the runs as if they had been evaluated on validation data."""
    for record in records:
        record.figures["validation_accuracy"] = record.figures.pop("test_accuracy")
        record.figures["data"]["samples"] = {"train": 9000, "validation": 1000, "test": 1000}
    return [*records]


def drawn(records: Sequence[RunRecord]) -> dict[str, Figure]:
    found = cells(records)
    return figures(compare(found), ranking(found))


def drawn_in(axis: Axes) -> tuple[list[Line2D], list[tuple[float, float]]]:
    """Return the curves, and the points at the end of training."""
    marks = [container[0] for container in axis.containers]
    about_points = {artist for container in axis.containers for artist in (container[0], *container[1])}
    lines = [line for line in axis.lines if line not in about_points and len(np.asarray(line.get_xdata()))]
    return lines, [(*mark.get_xdata(), *mark.get_ydata()) for mark in marks]


ERRORS = {"alg1": [50, 62], "algo2": [66, 71]}


def test_curves_are_means_over_the_seeds_against_steps_seconds_and_support_vectors(tmp_path: Path) -> None:
    records = validated(written(runs_of(ERRORS), tmp_path))
    found = drawn(records)
    assert [*found] == ["curves"], "expected no ranks of two candidates on one data set"
    labels = [axis.get_xlabel() for axis in found["curves"].axes]
    assert labels == ["step", "seconds of training", "support vectors"]
    assert found["curves"].axes[0].get_ylabel() == "validation accuracy, %"
    for axis, at, end in zip(found["curves"].axes, (1.0, 0.015, 0.5), (200, 1, 5), strict=True):
        lines, points = drawn_in(axis)
        assert np.array(points) == pytest.approx(np.array([(end, 94.4), (end, 93.15)]))
        for line, name in zip(lines, ERRORS, strict=True):
            seeds = [record for record in records if record.settings["algorithm"]["name"] == name]
            scores = [[100 * score_of(record, t) for t in STEPS] for record in seeds]
            assert np.asarray(line.get_ydata()) == pytest.approx(np.mean(scores, axis=0))
            constant = 5 if axis.get_xlabel() == "support vectors" else 0
            assert np.asarray(line.get_xdata()) == pytest.approx([at * t + constant for t in STEPS])
        band = axis.collections[2].get_paths()[0].vertices[:, 1]  # type: ignore[index]
        assert (band.min(), band.max()) == pytest.approx((np.min(scores), np.max(scores)))


def test_curves_of_runs_that_share_a_metric_are_of_it(tmp_path: Path) -> None:
    records = [by("f1", record) for record in written(runs_of(ERRORS), tmp_path, "validation_f1")]
    for record in validated(records):
        record.figures["validation_f1"] = 0.5
    axis = drawn(records)["curves"].axes[0]
    assert axis.get_ylabel() == "validation F1"
    lines, points = drawn_in(axis)
    assert points == [(200, 0.5)] * 2
    scores = [[score_of(record, t) for t in STEPS] for record in records[:2]]
    assert np.asarray(lines[0].get_ydata()) == pytest.approx(np.mean(scores, axis=0))


def test_the_best_is_drawn_though_it_recorded_no_curve_and_no_training_accuracy_is(tmp_path: Path) -> None:
    """For example, an algorithm that solves its SVM at once records no curve."""
    records = written(runs_of({"alg1": [90, 91], "alg2": [80, 81]}), tmp_path)
    (tmp_path / "best").mkdir()
    records += written(runs_of({"svm": [10, 20]}), tmp_path / "best", "running_accuracy")
    records[-1].figures["support_vectors"] = None
    figure = drawn(validated(records))["curves"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["svm", "alg2", "alg1"]
    lines, points = drawn_in(figure.axes[0])
    assert (len(lines), points) == (
        2,
        [(200, 98.5), (200, pytest.approx(91.95)), (200, pytest.approx(90.95))],
    )
    assert len(drawn_in(figure.axes[1])[1]) == 3


def test_without_a_course_there_are_points_and_damaged_metrics_are_named(tmp_path: Path) -> None:
    records = validated(written(runs_of(ERRORS), tmp_path))
    for record in records[1:]:
        (record.path / "metrics.jsonl").unlink()
    assert [*map(len, drawn_in(drawn(records)["curves"].axes[0]))] == [0, 2], "a curve requires all seeds"
    assert drawn(records[:1]) != {}, "expected the curve of a single run"
    assert drawn(records[1:2]) == {}, "expected no figure for a single point"
    (records[0].path / "metrics.jsonl").write_text("nothing\n")
    with pytest.raises(InputError, match=r"ring-alg1-0/metrics\.jsonl, line 1"):
        drawn(records)


def test_equal_scores_are_drawn_though_rounding_puts_their_mean_outside(tmp_path: Path) -> None:
    equal = (runs_of({"alg1": [errors] * 3, "algo2": [400] * 3}) for errors in range(300))
    records = next(runs for runs in equal if mean_score(runs[:3]) > max(cells(runs[:3])[0].scores.values()))
    assert "curves" in drawn(validated(written(records, tmp_path)))


def mean_score(records: Sequence[RunRecord]) -> float:
    return float(np.mean([*cells(records)[0].scores.values()]))


def test_a_data_set_on_which_none_of_the_best_was_tried_is_left_out() -> None:
    records = runs_of({f"a{n}": [n] for n in range(31)}) + runs_of({"a30": [5]}, "moons")
    (axis,) = drawn(records)["curves"].axes[:1]
    assert (axis.get_title(loc="left"), len(drawn_in(axis)[1])) == ("ring", 10)


def test_a_diagram_of_ranks_names_everyone_with_a_bar_of_the_critical_difference() -> None:
    ranks = {"alg2": 1.2, "alg1": 2.0, "alg3": 3.1, "a candidate of a long name": 3.7}
    figure = mean_ranks(Ranking(ranks, "8 data sets", 0.5, 1.5))
    (axis,) = figure.axes
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == ["alg2  1.20", "alg1  2.00", "alg3  3.10", "a candidate of a long name  3.70"]
    _, _, (bars,) = axis.containers[0]  # type: ignore[misc]
    assert [bar[:, 0].tolist() for bar in bars.get_segments()] == [
        pytest.approx([rank - 0.75, rank + 0.75]) for rank in ranks.values()
    ]
    assert figure.get_suptitle().startswith("mean ranks over 8 data sets; Friedman's test")


def test_names_of_anyone_fit_and_are_no_formulas() -> None:
    name = f"$x_1$ {'x' * 200} lr=0.1"
    other = name.replace("0.1", "0.2")
    for figure in (
        drawn(runs_of({name: [1], other: [2]}))["curves"],
        mean_ranks(Ranking({name: 1.0, other: 2.0}, "3 seeds", 0.5, 5.0)),
    ):
        assert figure.get_figwidth() < 20
        shown = [text for text in figure.findobj(Text) if "$" in text.get_text()]  # type: ignore[attr-defined]
        assert len({text.get_text() for text in shown}) == 2, "expected the ends of the names, which differ"
        assert not [text for text in shown if text.get_parse_math()]
