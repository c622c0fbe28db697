"""What the tables and the figure of a reproduction say, and RESULTS.md against the published runs."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from nsvm_cli.paper.reproduce import Row, read_rows
from nsvm_cli.paper.results import compared, draw_results, markdown
from nsvm_cli.storage.files import write_csv

ROOT = Path(__file__).parents[2]
WRITTEN = ROOT / "outputs"


@pytest.mark.parametrize("name", ["paper", "mnist10", "tables"])
def test_the_tables_come_from_the_runs(name: str) -> None:
    tables = markdown(compared(read_rows(WRITTEN / name / "runs.csv"), full=True))
    written = (WRITTEN / name / "table.md").read_text()
    assert written.startswith(tables)
    text = (ROOT / "RESULTS.md").read_text()
    for block in tables.split("\n\n"):
        assert block.strip() in text
    assert written.strip().splitlines()[-1] in text, "command and versions"


@pytest.mark.parametrize(("name", "cells", "count"), [("paper", 9, 10), ("mnist10", 1, 5), ("tables", 8, 3)])
def test_each_cell_was_run_on_seeds_that_tuning_never_used(name: str, cells: int, count: int) -> None:
    seeds: dict[tuple[str, str], list[int]] = {}
    for row in read_rows(WRITTEN / name / "runs.csv"):
        seeds.setdefault((row.cell, row.method), []).append(row.seed)
    assert len([cell for cell, method in seeds if method == "nsvm"]) == cells
    assert set(map(tuple, seeds.values())) == {tuple(range(count))}


def rows_of(cell: str, method: str, errors: list[int], samples: int = 740) -> list[Row]:
    dataset = cell.partition("_")[0]
    about: dict[str, Any] = {"cell": cell, "dataset": dataset, "method": method, "samples": samples}
    about |= {"seconds": 3.0, "support_vectors": 100, "theta_steps": 7, "accuracy": 0.5}
    about["overlap"] = 1 / 9 if dataset == "ringnorm" else 0.0
    return [Row(**about, seed=seed, errors=e) for seed, e in enumerate(errors)]


ROWS = rows_of("ringnorm_alg1", "nsvm", [10, 14, 12]) + rows_of("ringnorm_alg1", "network", [20, 21, 22])
ROWS += rows_of("ringnorm", "svc", [9, 13, 11])
ROWS += rows_of("mnist_alg3", "nsvm", [0, 0, 1], 2115) + rows_of("mnist", "svc", [1, 1, 1], 2115)
REAL = [
    replace(row, errors=None, accuracy=None, rmse=1.0, mae=0.5, r2=r2)
    for method, scores in {"nsvm": (0.85, 0.86, 0.84), "svc_tuned": (0.84, 0.85, 0.83)}.items()
    for row, r2 in zip(rows_of("ringnorm_alg1", method, [0, 0, 0]), scores, strict=True)
]


def test_methods_are_compared_with_the_neural_svm_of_each_experiment() -> None:
    text = markdown(compared(ROWS, full=True))
    assert "ringnorm_alg1 (98.1 in the paper): test accuracy, %\n" in text
    assert "| neural SVM | 3 | 98.38 ± 0.27 | [97.40, 99.06] |  |  | 2 | 100 | 3.0 |" in text
    assert "| SVC on the inputs | 3 | 98.51 ± 0.27 | [97.51, 99.19] | +0.14 [-0.16, +0.43] |" in text
    assert "mnist_alg3 (0 in the paper): test errors of 2115\n" in text
    assert "| neural SVM | 3 | 0.33 ± 0.58 | [0.00, 6.60] |  |  | 1 | 100 | 3.0 |" in text
    assert "| SVC on the inputs | 3 | 1.00 ± 0.00 | " in text
    assert ("paper" in markdown(compared(ROWS, full=False)), "rozen" in text) == (False, False)
    notes = " ".join(text.rpartition("\n\n")[2].split())
    assert "SVC on the inputs: scikit-learn's SVC with its default" in notes
    rows = [replace(row, trained=row.method != "network" or row.seed > 0) for row in ROWS]
    assert "| same network, no SVM (not trained) | 3 |" in markdown(compared(rows, full=False))
    two = markdown(compared([row for row in ROWS if row.seed < 2], full=False))
    assert "Intervals and tests need 3 seeds." in " ".join(two.split())
    assert "[" not in two


def test_r2_has_students_intervals_and_four_decimals() -> None:
    nsvm, svr = compared(REAL, full=False)
    half = 4.302653 * 0.01 * (1 / 3 + 1 / 9) ** 0.5
    assert (nsvm.cell.score.low, nsvm.cell.score.high) == pytest.approx((0.85 - half, 0.85 + half))
    assert svr.minus is not None
    assert (svr.minus.low, svr.minus.high) == pytest.approx((-0.01, -0.01)), "errors would have a floor"
    assert "| -0.0100 [-0.0100, -0.0100] |" in markdown([nsvm, svr])


def test_the_figure_is_a_picture_even_of_one_seed(tmp_path: Path) -> None:
    for rows in (ROWS, REAL, [row for row in ROWS if row.seed == 0]):
        draw_results(compared(rows, full=True), tmp_path / "figure.png")
        assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_rows_are_written_and_read(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    write_csv(file, [asdict(row) for row in [*ROWS, *REAL]])
    assert read_rows(file) == [*ROWS, *REAL]
