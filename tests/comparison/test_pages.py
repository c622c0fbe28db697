"""Reports of several runs: the best settings, figures, and warnings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nsvm_cli.comparison.pages import write_report
from nsvm_cli.comparison.records import RunRecord, runs_table
from nsvm_cli.comparison.table import EXPLANATIONS
from tests.comparison.test_compare import failed, run, runs_of
from tests.comparison.test_figures import validated, written
from tests.page.reader import Reader


def report(records: list[RunRecord], folder: Path) -> tuple[Reader, list[str]]:
    lines = write_report(folder / "page.html", records, {})
    reader = Reader((folder / "page.html").read_text())
    reader.check()
    return reader, lines


def best(page: Reader) -> list[str]:
    return [element.text for element in page.all("dd")]


def test_the_best_settings_are_those_of_the_lowest_rank_on_each_data_set(tmp_path: Path) -> None:
    records = runs_of({"alg1": [66, 71], "alg2": [50, 62], "alg3": [70, 80]})
    records += runs_of({"alg1": [10, 30], "alg2": [50, 60], "alg3": [20, 20]}, "moons")
    lost = [failed(2, "alg1"), failed(0, "alg3"), failed(1, "alg3", "running")]
    lost[1].settings["dataset"] = {"name": "wine"}
    page, lines = report([*records, *lost], tmp_path)
    assert "2 of 3 (1 failed)" in page.sections["Comparison"]
    assert "Excluded: 1 of 15 runs (" in page.sections["Comparison"]
    assert lines == []
    assert best(page) == ["alg1 or alg3", "98.00 ± 1.41", "alg2", "94.40 ± 0.85"]


def test_test_scores_come_with_a_caution(tmp_path: Path) -> None:
    records = runs_of({"alg1": [66], "alg2": [50]})
    assert EXPLANATIONS["test"] in report(records, tmp_path)[0].sections["Comparison"]
    assert EXPLANATIONS["test"] not in report(runs_of({"alg1": [66, 70]}), tmp_path)[0].sections["Comparison"]
    assert EXPLANATIONS["test"] not in report(validated(records), tmp_path)[0].sections["Comparison"]


def test_damaged_metrics_cost_the_figures_and_nothing_else(tmp_path: Path) -> None:
    records = written(runs_of({"alg1": [50, 62], "alg2": [66, 71]}), tmp_path)
    page, lines = report(records, tmp_path)
    assert [*page.sections] == ["Comparison", "Figures", "Runs"]
    assert (page.all("h1")[0].text, len(page.all("img")), lines) == (tmp_path.name, 1, [])
    (records[0].path / "metrics.jsonl").write_text("nothing\n")
    page, lines = report(records, tmp_path)
    assert best(page)[0] == "alg1"
    assert lines == [f"Figures: {page.sections['Figures']}"]
    assert "metrics.jsonl, line 1" in lines[0]


def test_runs_that_cannot_be_compared_are_told_of_once(tmp_path: Path) -> None:
    records = [replace(run(seed), status="failed", message="diverged") for seed in (0, 1)]
    page, lines = report(records, tmp_path)
    assert [*page.sections] == ["Comparison", "Runs"]
    assert lines == [
        "Comparison: This section is skipped: there are no finished runs to compare; "
        "list the runs with nsvm runs."
    ]


def test_the_metric_of_the_runs_comes_first() -> None:
    records = [replace(run(0, test_roc_auc=0.9), settings=run(0).settings | {"metric": "roc_auc"}), run(1)]
    _, _, columns = runs_table(records)
    assert [name for name in columns if name.startswith("test")] == ["test_roc_auc", "test_accuracy"]
    assert columns["test_roc_auc"] == ["0.9000", ""]


@pytest.mark.parametrize("number", [10**400, -(10**400)])
def test_a_figure_of_any_size_is_no_reason_to_fail(number: int) -> None:
    records = [run(0), run(1, test_accuracy=number, train_accuracy=0.5)]
    records[0].figures["test_accuracy"] = 0.25
    _, _, columns = runs_table(records)
    assert columns["test_accuracy"] == ["25.00 %", ""]
