"""Comparisons of settings over seeds: agreement with SciPy, and runs that cannot be compared."""

from __future__ import annotations

import csv
import io
import itertools
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from nsvm_cli.comparison.compare import Cell, cells, compare, ranking
from nsvm_cli.comparison.intervals import holm
from nsvm_cli.comparison.records import RunRecord, runs_table
from nsvm_cli.comparison.table import answers, notes, to_csv, to_latex, to_markdown
from nsvm_cli.errors import InputError

SAMPLES = 1000


def run(
    seed: int = 0, errors: int = 50, algorithm: str = "alg1", dataset: str = "ring", **more: Any
) -> RunRecord:
    """Return a finished run on generated data, which differ between seeds."""
    samples = {"train": 9 * SAMPLES, "validation": 0, "test": SAMPLES}
    data = {"sha256": f"{dataset}{seed}", "official_split": False, "generated": True, "origins": []}
    figures: dict[str, Any] = {
        "test_accuracy": (SAMPLES - errors) / SAMPLES,
        "seed": seed,
        "steps": 200,
        "support_vectors": 10 * seed,
    }
    figures |= {"train_seconds": 1.0, "data": {**data, "samples": samples}, **more}
    settings: dict[str, Any] = {"algorithm": {"name": algorithm}, "dataset": {"name": dataset}}
    settings |= {"seed": seed, "task": "classification"}
    path = Path(f"{dataset}-{algorithm}-{seed}")
    return RunRecord(path, "finished", "", settings, [f"algorithm={algorithm}"], figures)


def runs_of(errors: dict[str, list[int]], dataset: str = "ring") -> list[RunRecord]:
    return [run(seed, e, name, dataset) for name, many in errors.items() for seed, e in enumerate(many)]


def changed(record: RunRecord, **data: Any) -> RunRecord:
    record.figures["data"].update(data)
    return record


def failed(seed: int, algorithm: str, status: str = "failed") -> RunRecord:
    record = run(seed, 0, algorithm)
    return replace(record, status=status, message="it diverged", figures={})


def page(records: list[RunRecord], guess: bool = False) -> str:
    """Return the tables of a comparison with the notes below them."""
    found = cells(records, guess)
    rows = compare(found)
    return to_markdown(rows, notes(rows, ranking(found), len(records)))


ERRORS = {"alg1": [50, 62, 41, 55, 57], "alg2": [66, 71, 60, 59, 80], "alg3": [52, 60, 47, 58, 55]}


def test_intervals_and_tests_agree_with_scipy() -> None:
    rows = compare(cells(runs_of(ERRORS)), "alg1")
    assert [row.cell.candidate for row in rows] == ["alg1", "alg3", "alg2"]
    accuracy = {name: 100 - 100 * np.array(errors) / SAMPLES for name, errors in ERRORS.items()}
    reference, *others = rows
    assert reference.minus is None
    assert np.isnan(reference.p)
    expected = {}
    for row in others:
        theirs = accuracy[row.cell.candidate]
        test = stats.ttest_rel(theirs, accuracy["alg1"])
        expected[row.cell.candidate] = test.pvalue
        assert row.cell.score.mean == pytest.approx(theirs.mean())
        assert row.cell.score.std == pytest.approx(theirs.std(ddof=1))
        interval = test.confidence_interval(0.95)
        assert row.minus.low <= interval.low + 1e-9
        assert row.minus.high >= interval.high - 1e-9
    assert rows[2].p == pytest.approx(2 * expected["alg2"])
    assert rows[1].p == pytest.approx(expected["alg3"])


def test_a_reference_that_the_scores_chose_has_p_values_adjusted_for_all_pairs() -> None:
    errors = {**ERRORS, "alg4": [58, 71, 44, 50, 66]}
    p_values = [stats.ttest_rel(a, b).pvalue for a, b in itertools.combinations(errors.values(), 2)]
    adjusted = dict(zip(itertools.combinations(errors, 2), holm(p_values), strict=True))
    found = cells(runs_of(errors))
    chosen, named = ({row.cell.candidate: row.p for row in compare(found, of)} for of in (None, "alg1"))
    assert np.isnan([chosen["alg1"], named["alg1"]]).all(), "expected no p-value for the reference"
    with pytest.raises(InputError, match="did you mean alg1"):
        compare(found, "alg11")
    for name in ("alg2", "alg3", "alg4"):
        assert chosen[name] == pytest.approx(adjusted["alg1", name])
    assert named["alg2"] == pytest.approx(3 * p_values[0])


def test_a_test_needs_three_seeds_that_both_have() -> None:
    records = runs_of(ERRORS) + [run(seed, 60, "alg4") for seed in (3, 4, 5)] + [run(9, 60, "alg5")]
    rows = {row.cell.candidate: row for row in compare(cells(records))}
    assert [name for name in rows if np.isnan(rows[name].p)] == ["alg1", "alg4", "alg5"]
    assert [name for name in rows if not getattr(rows[name].minus, "seeds", 0)] == ["alg1", "alg5"]


def test_overlapping_splits_widen_the_interval_and_raise_p() -> None:
    alone, overlapping = (
        compare(cells([changed(record, generated=generated) for record in runs_of(ERRORS)]))[2]
        for generated in (True, False)
    )
    ratio = np.sqrt((1 / 5 + 1 / 9) / (1 / 5))  # Nadeau and Bengio (2003)
    width = alone.minus.high - alone.minus.low
    assert overlapping.minus.high - overlapping.minus.low == pytest.approx(ratio * width)
    d = np.array(ERRORS["alg1"]) - ERRORS["alg2"]
    t = d.mean() / (ratio * d.std(ddof=1) / np.sqrt(5))
    assert overlapping.p == pytest.approx(3 * 2 * stats.t.sf(abs(t), 4))


def test_the_answer_is_in_words() -> None:
    """The answer names the best candidate, its lead, and candidates that overfit or only match a constant."""
    figures = {"train_accuracy": 1.0, "test_majority_accuracy": 0.7}
    records = [
        *(run(seed, 50 + seed, "svc", **figures) for seed in range(4)),
        *(run(seed, 60 - 5 * seed, "trees", **figures) for seed in range(4)),
        *(run(seed, 290 + seed, "overfitted", **figures) for seed in range(4)),
        *(run(seed, 300 + seed, "majority", **figures) for seed in range(4)),
    ]
    best, *others = answers(compare(cells(records)))
    minus = {row.cell.candidate: row.minus for row in compare(cells(records))}["majority"]
    assert minus is not None
    by = rf"majority \(by 25\.00, at 95 % between {-minus.high:.2f} and {-minus.low:.2f}\)"
    assert re.search(rf"^ring: test accuracy, %: svc has the best score, 94\.85.*: better than .*{by}", best)
    assert best.endswith("no significant difference from trees.")
    first, *_ = answers(compare(cells([record for record in records if record.settings["seed"] == 0])))
    assert first == "ring: test accuracy, %: svc has the best score, 95.00."
    assert others == [
        "overfitted is overfitted: 100.00 % on the training set, 70.85 % on the test set, 70.00 % for a "
        "constant prediction.",
        "majority: no better than always predicting the most frequent class (accuracy 70.00 %).",
    ]
    assert answers(compare(cells(records), against="trees")) == [], "expected no answer about the best"
    assert answers(compare(cells(records[:4]))) == [], "expected no answer for a single candidate"
    assert best in page(records)


def test_holm_is_closed_testing_with_bonferroni() -> None:
    """An adjusted p-value is the largest Bonferroni-adjusted p-value of all sets that contain the test."""
    for p in np.random.default_rng(0).uniform(size=(20, 5)) ** 3:
        sets = [list(s) for size in range(1, 6) for s in itertools.combinations(range(5), size)]
        closed = [max(min(1, len(s) * p[s].min()) for s in sets if i in s) for i in range(5)]
        assert holm([*p]) == pytest.approx(closed)


def test_ranks_over_data_sets_with_ties_and_over_seeds_agree_with_scipy() -> None:
    errors = {"ring": [10, 10, 30, 40], "moons": [5, 50, 20, 60], "wine": [9, 30, 30, 9]}
    errors |= {"iris": [1, 2, 3, 4]}
    records = [r for d, row in errors.items() for r in runs_of({f"a{i}": [e] for i, e in enumerate(row)}, d)]
    for over, found, scores in (
        ("4 data sets", cells(records), [*errors.values()]),
        ("5 seeds", cells(runs_of(ERRORS)), [*zip(*ERRORS.values(), strict=True)]),
    ):
        ranks, (n, k) = ranking(found), np.shape(scores)
        assert ranks.over == over
        expected = stats.rankdata(scores, axis=1).mean(axis=0)
        assert [*ranks.ranks.values()] == pytest.approx(sorted(expected))
        assert ranks.p == pytest.approx(stats.friedmanchisquare(*zip(*scores, strict=True)).pvalue)
        q = stats.studentized_range.isf(0.05, k, np.inf) / np.sqrt(2)
        assert ranks.critical == pytest.approx(q * np.sqrt(k * (k + 1) / (6 * n)))


OWN_SPLITS = "Mean ranks are omitted, because Friedman's test requires independent"
ONE_TEST_SET = "If all seeds use the same held-out data"


@pytest.mark.parametrize(
    ("datasets", "data", "note"),
    [
        (["ring"], {"generated": True}, None),
        (["ring"], {"generated": False}, OWN_SPLITS),
        (["ring"], {"generated": False, "official_split": True}, ONE_TEST_SET),
        (["digits 0, 1", "digits 0, 2", "wine"], {"origins": ["digits"]}, OWN_SPLITS),
        (["digits 0, 1", "digits 0, 2", "wine"], {}, None),
    ],
)
def test_blocks_that_share_samples_are_no_blocks_to_rank_in(
    datasets: list[str], data: dict[str, Any], note: str | None
) -> None:
    """Seeds may split the same samples, and data sets may be selections of classes from the same source."""
    records = [changed(r, **data) for dataset in datasets for r in runs_of(ERRORS, dataset)]
    assert (ranking(cells(records)) is None) is (note == OWN_SPLITS)
    said = [n for n in (OWN_SPLITS, ONE_TEST_SET) if n in page(records)]
    assert said == [note] * bool(note)


def test_candidates_are_named_by_what_was_overridden() -> None:
    errors = {"alg1": [1, 2], "alg2": [3, 4]}
    records = runs_of(errors, "ring") + runs_of(errors, "moons")
    for record in records:  # a default that differs between the data sets
        record.settings["optimizer"] = {"lr": len(record.settings["dataset"]["name"])}
    found = cells(records)
    names = [(cell.dataset, cell.candidate) for cell in found]
    assert names == [*itertools.product(("moons", "ring"), ("alg1", "alg2"))]
    records[0].settings["optimizer"]["lr"] = 1  # the seeds now differ, although no override says so
    assert [cell.candidate for cell in cells(records)[2:]] == ["alg1 lr=1", "alg1 lr=4", "alg2"]


def test_a_label_has_no_more_than_tells_candidates_of_its_data_set_apart() -> None:
    errors = {"alg4": [1, 2], "svc": [3, 4]}
    records = [run for dataset in ("mnist", "ring", "ring", "ring") for run in runs_of(errors, dataset)]
    scales = [1.0, 2**0.5, 2.0, 2.00001]
    for record, scale in zip(records, np.repeat(scales, 4), strict=True):
        record.settings["network"] = {"scale": float(scale)}
        record.overrides.append("network.scale=1")
    for many, scales_of_ring in ((12, ["1.414", "2"]), (16, ["1.4142135623730951", "2.0", "2.00001"])):
        found = [(cell.dataset, cell.candidate) for cell in cells(records[:many])]
        expected = [("ring", f"{name} scale={scale}") for name in errors for scale in scales_of_ring]
        assert sorted(found) == [("mnist", "alg4"), ("mnist", "svc"), *expected]


def test_real_targets_and_validation_data() -> None:
    records = runs_of({"alg1": [0] * 3, "alg2": [0] * 3})
    for record in records:
        del record.figures["test_accuracy"]
        record.figures.update(test_r2=None, validation_r2=0.5 + record.figures["seed"] / 10)
        record.figures["data"]["samples"]["validation"] = 100
    rows = compare(cells(records))
    assert [row.cell.title for row in rows] == ["ring: validation R²"] * 2
    assert rows[0].cell.score.mean == pytest.approx(0.6)
    assert rows[1].p == 1.0
    worse = np.array([0.3, 0.1, 0.2])
    for record, less in zip(records[3:], worse, strict=True):
        record.figures["validation_r2"] -= less
        changed(record, generated=False)
    (_, row) = compare(cells(records), "alg1")
    scale = np.sqrt(1 / 3 + 100 / (9 * SAMPLES)) * worse.std(ddof=1)  # Nadeau and Bengio (2003)
    assert (row.minus.low, row.minus.high) == pytest.approx(stats.t.interval(0.95, 2, -worse.mean(), scale))
    assert row.p == pytest.approx(2 * stats.t.sf(worse.mean() / scale, 2))


def by(metric: str | None, record: RunRecord) -> RunRecord:
    return replace(record, settings={**record.settings, "metric": metric})


@pytest.mark.parametrize(
    ("metric", "head", "best"),
    [("f1", "F1", "alg2"), ("log_loss", "log loss", "alg1"), (None, "accuracy, %", "alg1")],
)
def test_runs_that_share_a_metric_are_compared_by_it(metric: str | None, head: str, best: str) -> None:
    records = [
        by(metric, run(s, e, name, test_f1=f1 + s / 100, test_log_loss=f1 + s / 100))
        for name, e, f1 in (("alg1", 40, 0.2), ("alg2", 50, 0.6), ("alg3", 60, 0.4))
        for s in range(4)
    ]
    found = cells(records)
    rows, ranks = compare(found), ranking(found)
    assert {row.cell.title for row in rows} == {f"ring: test {head}"}
    order = {"f1": ["alg2", "alg3", "alg1"], "log_loss": ["alg1", "alg3", "alg2"]}
    expected = order.get(metric or "", ["alg1", "alg2", "alg3"])
    assert [row.cell.candidate for row in rows] == expected
    assert expected[0] == best
    assert [row.rank for row in rows] == [1, 2, 3]
    assert ranks is not None
    assert [*ranks.ranks] == expected
    assert f"ring: test {head}" in page(records)
    if metric:
        assert rows[0].cell.score.mean == pytest.approx({"f1": 0.615, "log_loss": 0.215}[metric])
        low, high = stats.t.interval(0.95, 3, 0.215, np.std([0, 1, 2, 3], ddof=1) / 100 / 2)
        alg1 = next(cell for cell in found if cell.candidate == "alg1").score
        assert (alg1.low, alg1.high) == pytest.approx((low, high))
    mixed = page([*records[:8], *(by("roc_auc", record) for record in records[8:])])
    assert "ring: test accuracy, %" in mixed
    assert f"The runs set different metrics ({', '.join(sorted([metric or 'none', 'roc_auc']))})" in mixed
    assert "different metrics" not in page(records)
    usual = page([by(None, records[0]), *(by("accuracy", record) for record in records[1:])])
    assert "ring: test accuracy, %" in usual
    assert "different metrics" not in usual, "accuracy is also the metric of the task"


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([by("f1", run()), by("f1", run(1, test_f1=0.5))], "ring-alg1-0 has no score on test data"),
        ([failed(0, "alg1")], "there are no finished runs to compare; list the runs with nsvm runs"),
        ([run(), changed(run(algorithm="alg2"), sha256="other")], "trained on different data"),
        (
            [run(), run(1, test_accuracy=None, validation_accuracy=0.3)],
            "ring-alg1-1 has no score on test data",
        ),
        ([run(), run(1, test_accuracy=None, test_r2=None)], "ring-alg1-1 has no score on test data"),
        ([run(), run(1, test_accuracy="high")], "ring-alg1-1/result.json is damaged"),
        ([run(), run(1, train_accuracy="high")], "ring-alg1-1/result.json is damaged"),
        ([run(), run(1, test_rmse="low", test_mean_rmse=1.0)], "ring-alg1-1/result.json is damaged"),
        ([run(), run(1, data={})], "ring-alg1-1/result.json is damaged"),
        ([run(), changed(run(1), origins=[[]])], "ring-alg1-1/result.json is damaged"),
    ],
)
def test_runs_that_cannot_be_compared(records: list[RunRecord], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cells(records)


def test_steps_are_shown_where_settings_differ_in_them() -> None:
    def records(steps: dict[str, tuple[int, list[int]]]) -> list[RunRecord]:
        return [
            run(seed, algorithm=name, theta_steps=theta + seed, part_steps=parts)
            for name, (theta, parts) in steps.items()
            for seed in (0, 2)
        ]

    unequal = records({"alg3": (10, [10]), "alg4": (10, [10, 20])})
    head, _, *lines = to_markdown(compare(cells(unequal))).splitlines()[2:6]
    assert head.endswith("| training, s | steps of each part |")
    assert {line.split(" | ")[-1] for line in lines} == {"10 |", "10+20 |"}
    equal = records({"alg3": (10, [10]), "alg4": (10, [10])})
    assert "steps" not in to_markdown(compare(cells(equal)))
    more = records({"alg3": (10, [10]), "alg4": (90, [10])})
    table = to_markdown(compare(cells(more))).splitlines()
    assert table[2].endswith("| training, s | steps of theta |")
    assert {line.split(" | ")[-1] for line in table[4:6]} == {"11 |", "91 |"}
    figures = {row["settings"]: row for row in csv.DictReader(io.StringIO(to_csv(compare(cells(unequal)))))}
    assert (figures["alg4"]["theta_steps"], figures["alg4"]["part_steps"]) == ("11.0", "10+20")
    _, _, columns = runs_table(unequal)
    assert columns["theta_steps"] == ["10", "12", "10", "12"]
    assert columns["part_steps"] == ["10", "10", "10+20", "10+20"]
    assert "part_steps" not in runs_table(equal)[2]


def test_a_run_that_repeats_another_counts_once() -> None:
    records = runs_of(ERRORS)
    again = replace(run(0, 51), path=Path("tried again"))
    assert to_csv(compare(cells([*records, again]))) == to_csv(compare(cells(records)))
    assert "Excluded: 1 of 16 runs (" in page([*records, again])
    assert "Excluded" not in page(records)


def test_failed_seeds_and_settings_are_counted() -> None:
    records = [r for r in runs_of(ERRORS) if r.path.name != "ring-alg1-1"]
    records += [failed(1, "alg1"), failed(1, "alg1"), failed(0, "alg4"), failed(1, "alg4")]
    records += [failed(3, "alg3"), failed(5, "alg2", "interrupted"), RunRecord(Path("early"), "failed")]
    found = cells(records)
    text, ranks = page(records), ranking(found)
    assert "| alg1 | 4 of 5 (1 failed) | 94.92 ± 0.71 |" in text
    assert "| alg3 | 5 | " in text, "expected no failure, because another run with seed 3 finished"
    assert text.count(" (pairs: 4) |") == 2, "expected 4 seeds that alg2 and alg3 share with alg1"
    assert text.splitlines()[-3].startswith("| alg4 | 0 of 2 (2 failed) |  |  |  |  |  |  |  |")
    assert "Failed runs are excluded" in text
    assert "Excluded: 4 of 21 runs (they have not finished, failed before recording settings, or" in text
    assert ("alg4" in ranks.ranks, ranks.over) == (False, "4 seeds")
    lines = csv.DictReader(io.StringIO(to_csv(compare(found))))
    assert [[line[name] for name in ("settings", "seeds", "failed", "pairs", "rank")] for line in lines] == [
        ["alg1", "4", "1", "", "1.0"],
        ["alg3", "5", "0", "4", "2.0"],
        ["alg2", "5", "0", "4", "3.0"],
        ["alg4", "0", "2", "0", ""],
    ]


def test_a_failed_run_may_score_as_guessing() -> None:
    with pytest.raises(InputError, match=r"accuracy or R\^2 as the metric, but the runs set metric=f1"):
        cells([by("f1", run(test_f1=0.5))], guess=True)
    records = runs_of(ERRORS)[1:]
    for record in records:
        record.figures.update(test_majority_accuracy=0.5, validation_majority_accuracy=0.9)
    records += [failed(0, "alg1"), failed(0, "alg4")]
    found = {cell.candidate: cell for cell in cells(records, guess=True)}
    assert (found["alg1"].scores[0, ""], found["alg4"].scores) == (50, {(0, ""): 50})
    assert "| alg1 | 5 (1 guessed) |" in page(records, guess=True)
    for record in records[:-2]:
        record.figures["test_r2"] = record.figures.pop("test_accuracy")
    assert cells(records, guess=True)[0].scores[0, ""] == 0


@pytest.mark.parametrize(("code", "told"), [("a", False), ("b", True), (None, False)])
def test_runs_of_other_code_are_told_of(code: str | None, told: bool) -> None:
    records = [run(plugins_sha256="a"), run(1, plugins_sha256=code)]
    note = "The code of plugins differs between runs, such as ring-alg1-0 and ring-alg1-1."
    assert (note in page(records)) == ("code of plugins" in page(records)) == told
    other_parts = [run(plugins_sha256="a"), run(algorithm="alg4", plugins_sha256="b")]
    assert "code of plugins" not in page(other_parts)


STRANGE = [
    *("a_b & 50% #1 $x_{2}$ ~^\\", "[1, 2] *", "größe|ñandú", "«λ» 中 😀 ą", "1\x1b[31m\n2", '<a> `b\' "c"')
]


def test_a_name_cannot_leave_its_cell() -> None:
    lines = page(runs_of({name: [n, n + 1, n] for n, name in enumerate(STRANGE)})).splitlines()
    assert len([line for line in lines if line.startswith("| ")]) == 2 + len(STRANGE)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("|")} == {10}
    assert r"| größe\|ñandú |" in "\n".join(lines)
    assert r"1\x1b[31m\n2" in "\n".join(lines)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("engine", "names"), [("pdflatex", [*STRANGE[:3], *STRANGE[4:]]), ("lualatex", STRANGE)]
)
def test_latex_compiles_whatever_the_names(engine: str, names: list[str], tmp_path: Path) -> None:
    errors = {name: [n, n + 7, n] for n, name in enumerate(names)}
    rows = compare(cells([record for dataset in names for record in runs_of(errors, dataset)]))
    table = to_latex(rows, notes(rows, None, 0))
    assert table.count(r"\begin{tabular}") == table.count(r"\end{tabular}") == len(names)
    assert r"$\pm$" in table
    if not shutil.which(engine):
        pytest.skip(f"needs {engine}, with booktabs")
    preamble = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}"
    (tmp_path / "all.tex").write_text(f"{preamble}\n{table}\n\\end{{document}}\n")
    command = [engine, "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]


def test_among_equal_candidates_the_best_seldom_differs_from_any() -> None:
    rng, studies, found = np.random.default_rng(0), 40, 0
    for _ in range(studies):
        errors = rng.binomial(SAMPLES, 0.15, (10, 10))
        runs = [{seed: run(seed, int(e)) for seed, e in enumerate(row)} for row in errors]
        candidates = [Cell("ring", str(n), "test", of[0].figures, of) for n, of in enumerate(runs)]
        found += any(row.p < 0.05 for row in compare(candidates))
    assert found <= 0.05 * studies, "expected 5 %; adjusting only for pairs with the best gives 13 %"
