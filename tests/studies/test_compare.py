"""Settings compared over the seeds of their runs: figures that SciPy agrees with, and runs that cannot be."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from nsvm_cli.errors import InputError
from nsvm_cli.studies.compare import cells, compare, ranking
from nsvm_cli.studies.comparison_table import to_csv, to_latex, to_markdown
from nsvm_cli.studies.intervals import holm
from nsvm_cli.studies.records import RunRecord

SAMPLES = 1000


def run(
    seed: int = 0, errors: int = 50, algorithm: str = "alg1", dataset: str = "ring", **more: Any
) -> RunRecord:
    """A finished run on generated data, which differ from seed to seed."""
    figures = {
        "test_errors": errors,
        "seed": seed,
        "support_vectors": 10 * seed,
        "train_seconds": 1.0,
        "data": {
            "sha256": f"{dataset}{seed}",
            "official_split": False,
            "generated": True,
            "samples": {"train": 9 * SAMPLES, "validation": 0, "test": SAMPLES},
        },
    }
    settings = {
        "algorithm": {"name": algorithm},
        "dataset": {"name": dataset},
        "seed": seed,
        "task": "classification",
    }
    path = Path(f"{dataset}-{algorithm}-{seed}")
    return RunRecord(path, "finished", "", settings, [f"algorithm={algorithm}"], {**figures, **more})


def runs_of(errors: dict[str, list[int]], dataset: str = "ring") -> list[RunRecord]:
    return [run(seed, e, name, dataset) for name, many in errors.items() for seed, e in enumerate(many)]


ERRORS = {"alg1": [50, 62, 41, 55, 57], "alg2": [66, 71, 60, 59, 80], "alg3": [52, 60, 47, 58, 55]}


def test_intervals_and_tests_agree_with_scipy() -> None:
    rows = compare(cells(runs_of(ERRORS)))
    assert [row.cell.candidate for row in rows] == ["alg1", "alg3", "alg2"]
    accuracy = {name: 100 - 100 * np.array(errors) / SAMPLES for name, errors in ERRORS.items()}
    reference, *others = rows
    assert (reference.minus, reference.p) == (None, None)
    expected = {}
    for row in others:
        theirs = accuracy[row.cell.candidate]
        test = stats.ttest_rel(theirs, accuracy["alg1"])
        expected[row.cell.candidate] = test.pvalue
        assert row.score.mean == pytest.approx(theirs.mean())
        assert row.score.std == pytest.approx(theirs.std(ddof=1))
        interval = test.confidence_interval(0.95)
        assert row.minus is not None
        assert row.minus.low <= interval.low + 1e-9
        assert row.minus.high >= interval.high - 1e-9
    assert rows[2].p == pytest.approx(2 * expected["alg2"])
    assert rows[1].p == pytest.approx(expected["alg3"])


def test_the_interval_of_many_errors_is_students() -> None:
    rows = compare(cells(runs_of({"a": [100, 300, 200, 260], "b": [400, 500, 250, 450]})))
    a, b = (100 - np.array(errors) / 10 for errors in ([100, 300, 200, 260], [400, 500, 250, 450]))
    interval = stats.ttest_rel(b, a).confidence_interval(0.95)
    assert rows[1].minus is not None
    assert (rows[1].minus.low, rows[1].minus.high) == pytest.approx((interval.low, interval.high))


def test_overlapping_splits_widen_the_interval_and_raise_p() -> None:
    def row(generated: bool) -> Any:
        records = runs_of(ERRORS)
        for record in records:
            record.figures["data"]["generated"] = generated
        return compare(cells(records))[2]

    alone, overlapping = row(True), row(False)
    ratio = np.sqrt((1 / 5 + 1 / 9) / (1 / 5))  # Nadeau and Bengio
    assert overlapping.cell.overlap == pytest.approx(1 / 9)
    assert overlapping.minus.high - overlapping.minus.low == pytest.approx(
        ratio * (alone.minus.high - alone.minus.low)
    )
    d = np.array(ERRORS["alg1"]) - ERRORS["alg2"]
    t = d.mean() / (ratio * d.std(ddof=1) / np.sqrt(5))
    assert overlapping.p == pytest.approx(2 * 2 * stats.t.sf(abs(t), 4))


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, float("nan"), 0.6])[0] == 1.0


def test_ranks_over_seeds_agree_with_scipy() -> None:
    found = ranking(cells(runs_of(ERRORS)))
    assert found is not None
    assert found.over == "5 seeds"
    scores = [[-e for e in ERRORS[name]] for name in ("alg1", "alg2", "alg3")]
    ranks = stats.rankdata(-np.transpose(scores), axis=1).mean(0)
    assert found.ranks == pytest.approx({"alg1": ranks[0], "alg3": ranks[2], "alg2": ranks[1]})
    assert found.p == pytest.approx(stats.friedmanchisquare(*scores).pvalue)


def test_the_critical_difference_is_that_of_the_published_table() -> None:
    """Demsar (2006), Table 5: q is 2.343 for three classifiers, 2.569 for four."""
    names = [f"d{n}" for n in range(6)]
    for k, q in ((3, 2.343), (4, 2.569)):
        records = [
            r
            for d, name in enumerate(names)
            for r in runs_of({f"a{i}": [10 * i + d] for i in range(k)}, name)
        ]
        found = ranking(cells(records))
        assert found is not None
        assert found.over == "6 data sets"
        assert found.critical == pytest.approx(q * np.sqrt(k * (k + 1) / 36), rel=1e-3)
        assert list(found.ranks.values()) == [1 + i for i in range(k)]


def test_candidates_are_named_by_what_was_overridden() -> None:
    records = runs_of({"alg1": [1, 2], "alg2": [3, 4]}, "ring") + runs_of(
        {"alg1": [5, 6], "alg2": [7, 8]}, "moons"
    )
    for record in records:  # a default that differs between the data sets
        record.settings["optimizer"] = {"lr": len(record.settings["dataset"]["name"])}
    found = cells(records)
    assert [(cell.dataset, cell.candidate) for cell in found] == [
        *(("moons", name) for name in ("alg1", "alg2")),
        *(("ring", name) for name in ("alg1", "alg2")),
    ]
    records[0].settings["optimizer"]["lr"] = 1  # differs from the other seed, though no one asked for it
    assert [cell.candidate for cell in cells(records)[2:]] == ["alg1 lr=1", "alg1 lr=4", "alg2 lr=4"]


def test_real_targets_and_validation_data() -> None:
    records = runs_of({"alg1": [0] * 3, "alg2": [0] * 3})
    for record in records:
        del record.figures["test_errors"]
        record.figures.update(test_r2=None, validation_r2=0.5 + record.figures["seed"] / 10)
        record.figures["data"]["samples"]["validation"] = 100
    rows = compare(cells(records))
    assert [(row.cell.split, row.cell.unit) for row in rows] == [("validation", "R²")] * 2
    assert rows[0].score.mean == pytest.approx(0.6)
    assert rows[1].p == 1.0


def changed(record: RunRecord, **data: Any) -> RunRecord:
    record.figures["data"].update(data)
    return record


def of_task(record: RunRecord, task: str) -> RunRecord:
    record.settings["task"] = task
    return record


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([RunRecord(Path("x"), "failed", "it diverged")], "none of these has finished"),
        ([run(), of_task(run(1), "regression")], "task=classification and .* task=regression"),
        ([run(), changed(run(algorithm="alg2"), sha256="other")], "trained on different data"),
        ([run(), run()], "have the same settings and seed"),
        ([run(), run(1, test_errors=None, validation_errors=3)], "was evaluated on validation data"),
    ],
)
def test_runs_that_cannot_be_compared(records: list[RunRecord], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cells(records)


def test_an_unknown_reference() -> None:
    with pytest.raises(InputError, match="did you mean alg1"):
        compare(cells(runs_of(ERRORS)), "alg11")


def test_tables() -> None:
    found = cells(runs_of(ERRORS))
    rows, ranks = compare(found), ranking(found)
    (first, *_) = csv.DictReader(io.StringIO(to_csv(rows, ranks)))
    assert first["settings"] == "alg1"
    assert float(first["mean"]) == pytest.approx(100 - 5.3)
    assert first["p"] == ""
    markdown = to_markdown(rows, ranks)
    assert "| alg1 | 5 | 94.70 ± 0.80 |" in markdown
    assert "Friedman's test" in markdown
    latex = to_latex(rows, ranks)
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 1
    assert r"94.70 $\pm$ 0.80" in latex
    assert r"accuracy, \%" in latex
