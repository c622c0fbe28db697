"""Figures of a comparison, drawn from plain data."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from nsvm_cli.comparison.compare import Ranking
from nsvm_cli.comparison.figures import STYLES, Course, curves, groups_within, heat_map, mean_ranks
from nsvm_cli.page.plotting import write_figure


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]  # type: ignore[attr-defined]


def course(name: str, length: float = 100.0) -> Course:
    x = np.linspace(length / 20, length, 20)
    end = {"step": float(length), "seconds": length / 10}
    scores = np.stack([50 + x / 4, 60 + x / 4, 70 + x / 4])
    return Course(name, {"step": x, "seconds": x / 10}, scores, end, np.array([40.0, 80.0, 90.0]))


def test_a_line_is_the_mean_over_the_seeds_and_its_band_their_range() -> None:
    figure = curves({"ring": [course("a"), course("b")], "moons": [course("b")]}, "accuracy, %")
    assert len(figure.axes) == 4
    first, second = figure.axes[:2]
    assert [axis.get_xlabel() for axis in (first, second)] == ["step", "seconds"]
    line, band, point = first.lines[0], first.collections[0], first.containers[0]
    x = course("a").at["step"]
    assert np.asarray(line.get_xdata()) == pytest.approx(x)
    assert np.asarray(line.get_ydata()) == pytest.approx(60 + x / 4)
    (path,) = band.get_paths()
    assert (path.vertices[:, 1].min(), path.vertices[:, 1].max()) == pytest.approx((51.25, 95))  # type: ignore[index]
    assert np.asarray(second.lines[0].get_xdata()) == pytest.approx(x / 10)
    mark, _, (bar,) = point  # type: ignore[misc]
    assert (*mark.get_xdata(), *mark.get_ydata()) == (100, 70)
    assert bar.get_segments()[0].tolist() == [[100, 40], [100, 90]], "the lowest and the highest seed"
    b_of_moons, b_of_ring = figure.axes[2].lines[0], first.lines[len(first.lines) // 2]
    assert b_of_moons.get_color() == b_of_ring.get_color(), "b in both data sets"


def test_no_two_curves_look_alike() -> None:
    figure = curves({"ring": [course(str(n)) for n in range(len(STYLES))]}, "accuracy, %")
    lines = figure.legends[0].get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(STYLES) == 12
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 12


def test_an_axis_is_logarithmic_if_the_curves_differ_much_in_length() -> None:
    figure = curves({"ring": [course("a", 100), course("b", 900)]}, "accuracy, %")
    assert {axis.get_xscale() for axis in figure.axes} == {"linear"}
    figure = curves({"ring": [course("a", 100), course("b", 5000)]}, "accuracy, %")
    assert {axis.get_xscale() for axis in figure.axes} == {"log"}
    figure.draw_without_rendering()
    assert "1000" in texts(figure)


def test_a_heat_map_has_each_score_in_its_place_and_nothing_where_there_is_none() -> None:
    grid = pd.DataFrame([[97.5, 90.0], [np.nan, 80.25]], ["alg1", "alg2"], ["0.0001", "0.1"])
    figure = heat_map({"ring": grid}, ("algorithm", "algorithm.lam"), "mean accuracy, %", 2)
    (axis,) = figure.axes
    assert {(*text.get_position(), text.get_text()) for text in axis.texts} == {
        *((0, 0, "97.50"), (1, 0, "90.00"), (1, 1, "80.25"))
    }
    assert [label.get_text() for label in axis.get_yticklabels()] == ["alg1", "alg2"]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("algorithm.lam", "algorithm")


def test_bars_join_the_largest_groups_that_do_not_differ() -> None:
    assert groups_within(1.0, [1.0, 1.5, 2.2, 2.4, 4.0]) == [(1.0, 1.5), (1.5, 2.4)]
    assert groups_within(1.0, [1.0, 2.0, 3.0]) == [], "the critical difference itself is one"
    for ranks in np.sort(np.random.default_rng(0).uniform(1, 7, size=(50, 7))):
        groups = groups_within(2.0, [*ranks])
        for i, j in itertools.combinations(range(7), 2):
            joined = any(low <= ranks[i] and ranks[j] <= high for low, high in groups)
            assert joined == (ranks[j] - ranks[i] < 2.0)
        assert not [a for a, b in itertools.permutations(groups, 2) if b[0] <= a[0] and a[1] <= b[1]]


def test_a_diagram_of_ranks_names_everyone_and_joins_who_does_not_differ() -> None:
    ranks = {"alg2": 1.2, "alg1": 2.0, "alg3": 3.1, "a candidate of a long name": 3.7}
    figure = mean_ranks(Ranking(ranks, "8 data sets", 0.5, 1.5))
    (axis,) = figure.axes
    assert {text.get_text() for text in axis.texts} == {
        *("alg2  1.20", "alg1  2.00", "3.10  alg3", "3.70  a candidate of a long name"),
        "critical difference 1.50",
    }
    bars = [[*np.asarray(line.get_xdata())] for line in axis.lines if line.get_linewidth() == 4]
    assert bars == [[1.2, 2.0], [2.0, 3.1], [3.1, 3.7]]


def test_names_of_anyone_fit_and_are_no_formulas() -> None:
    name = f"$x_1$ {'x' * 200} lr=0.1"
    other = name.replace("0.1", "0.2")
    for figure in (
        curves({"ring": [course(name), course(other)]}, "accuracy, %"),
        heat_map({"ring": pd.DataFrame([1.0, 2.0], [name, other], ["1"])}, ("a", "b"), "R²", 4),
        mean_ranks(Ranking({name: 1.0, other: 2.0}, "3 seeds", 0.5, 5.0)),
    ):
        assert figure.get_figwidth() < 20
        shown = [text for text in figure.findobj(Text) if "$" in text.get_text()]  # type: ignore[attr-defined]
        assert len({text.get_text() for text in shown}) == 2, "with the end, where they differ"
        assert not [text for text in shown if text.get_parse_math()]


@pytest.mark.parametrize(("form", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_a_figure_is_written_in_the_format_of_its_name(form: str, magic: bytes, tmp_path: Path) -> None:
    written = []
    for _ in range(2):
        figure = mean_ranks(Ranking({"a": 1.0, "b": 2.0}, "3 seeds", 0.5, 0.5))
        write_figure(tmp_path / f"figure.{form}", figure)
        written.append((tmp_path / f"figure.{form}").read_bytes())
    assert written[0].startswith(magic)
    assert written[0] == written[1], "without the time of day"
