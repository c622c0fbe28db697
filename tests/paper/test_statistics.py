"""Means and intervals of a reproduction, and what its table says."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from nsvm_cli.paper.figure import _by_dataset, _draw_group, draw_results
from nsvm_cli.paper.reproduce import Row, read_rows
from nsvm_cli.paper.statistics import groups, markdown, summarise
from nsvm_cli.storage.files import write_csv


def row(cell: str, method: str, seed: int, errors: int, samples: int = 740) -> Row:
    return Row(
        cell=cell,
        dataset=cell.partition("_")[0] if "_alg" in cell else cell,
        method=method,
        seed=seed,
        accuracy=(samples - errors) / samples,
        errors=errors,
        samples=samples,
        overlap=1 / 9 if cell.startswith("ringnorm") else 0.0,
        seconds=2.0 + seed,
        support_vectors=100,
        theta_steps=7,
    )


ROWS = [row("ringnorm_alg1", "nsvm", seed, errors) for seed, errors in enumerate([10, 14, 12])]
ROWS += [row("ringnorm_alg1", "network", seed, 20 + seed) for seed in range(3)]
ROWS += [row("ringnorm", "svc", seed, errors) for seed, errors in enumerate([9, 13, 11])]
ROWS += [row("mnist_alg3", "nsvm", seed, errors, 2115) for seed, errors in enumerate([0, 0, 1])]
ROWS += [row("mnist", "svc", seed, 1, 2115) for seed in range(3)]


def test_two_seeds_have_no_interval() -> None:
    text = markdown(summarise([r for r in ROWS if r.seed < 2]), full=True)
    assert "| `ringnorm_alg1` | 98.38 ± 0.38 |  | 98.1 | 2.5 | 100 |" in text
    assert "[" not in text
    assert text.count("Intervals need 3 seeds.") == 2


def test_accuracy_for_ringnorm_and_errors_for_images() -> None:
    by = {(s.cell, s.method): s for s in summarise(ROWS)}
    assert by["ringnorm_alg1", "nsvm"].score.mean == pytest.approx(100 * (1 - 12 / 740))
    assert by["mnist_alg3", "nsvm"].scores.each == [0, 0, 1]
    assert by["mnist_alg3", "nsvm"].unit == "errors of 2115"
    assert by["ringnorm_alg1", "nsvm"].seconds == 3.0


def test_baselines_are_compared_seed_by_seed() -> None:
    by = {(s.cell, s.method): s for s in summarise(ROWS)}
    assert "share one test set" in markdown(summarise(ROWS), full=True)
    gain = by["ringnorm_alg1", "svc"].gain
    assert (gain.mean, gain.std) == pytest.approx((-100 / 740, 0), abs=1e-9), "one error more, every time"
    assert by["mnist_alg3", "svc"].gain.mean == pytest.approx(-2 / 3)


def test_the_table_says_it_all() -> None:
    text = markdown(summarise(ROWS), full=True)
    assert "| `ringnorm_alg1` | 98.38 ± 0.27 | [97.40, 99.06] | 98.1 | 3.0 | 100 | 97.16 ± 0.14 |" in text
    assert "| `mnist_alg3` | 0.33 ± 0.58 | [0.00, 6.60] | 0 | 3.0 | 100 | 1.00 ± 0.00 |" in text
    assert "paper" not in markdown(summarise(ROWS), full=False)
    for table in (block.splitlines() for block in text.split("\n\n") if block.startswith("|")):
        assert len({line.count("|") for line in table}) == 1


def test_frozen_features_have_a_column_and_a_note_only_where_they_were_run() -> None:
    frozen = [row("ringnorm_alg1", "frozen", seed, 200) for seed in range(3)]
    text = markdown(summarise(ROWS + frozen), full=True)
    assert "| support vectors | frozen features | same network, no SVM |" in text
    assert "Frozen features: the same network with its initial, random θ" in " ".join(text.split())
    assert "rozen" not in markdown(summarise(ROWS), full=True)


def test_frozen_features_far_below_leave_room_for_the_others() -> None:
    frozen = [row("ringnorm_alg1", "frozen", seed, 200) for seed in range(3)]
    accuracy, _ = groups(summarise(ROWS + frozen))
    axis = Figure().subplots()
    _draw_group(axis, accuracy, full=False)
    low, high = axis.get_ylim()
    assert 95 < low < high < 100
    assert [text.get_text() for text in axis.texts] == ["↓ 73.0"]


def test_the_figure_is_a_picture_even_of_one_seed(tmp_path: Path) -> None:
    for rows in (ROWS, [r for r in ROWS if r.seed == 0]):
        draw_results(summarise(rows), True, tmp_path / "figure.png")
        assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def of_targets(cell: str, method: str, seed: int, r2: float) -> Row:
    dataset = f"table_{cell}"
    return Row(
        cell=cell if method in ("nsvm", "frozen") else dataset,
        dataset=dataset,
        method=method,
        seed=seed,
        r2=r2,
        rmse=1.0,
        mae=0.5,
        samples=800,
        overlap=1 / 9,
        seconds=1.0,
        support_vectors=10,
        theta_steps=7,
    )


REAL = [of_targets("houses_alg4", "nsvm", seed, r2) for seed, r2 in enumerate([0.85, 0.86, 0.84])]
REAL += [of_targets("houses_alg4", "frozen", seed, 0.6) for seed in range(3)]
REAL += [of_targets("houses_alg4", "svc_tuned", seed, r2) for seed, r2 in enumerate([0.84, 0.85, 0.83])]


def test_r2_has_students_intervals_and_four_decimals() -> None:
    nsvm, _, svr = summarise(REAL)
    half = 4.302653 * 0.01 * (1 / 3 + 1 / 9) ** 0.5
    assert (nsvm.score.low, nsvm.score.high) == pytest.approx((0.85 - half, 0.85 + half))
    assert (svr.gain.low, svr.gain.high) == pytest.approx((0.01, 0.01)), "errors would have a floor"
    text = markdown(summarise(REAL), full=True)
    assert "| `houses_alg4` | 0.8500 ± 0.0100 | [0.8213, 0.8787] | 1.0 | 10 | 0.6000 ± 0.0000 |" in text
    assert "| +0.2500 [+0.2213, +0.2787] | +0.0100 [+0.0100, +0.0100] |" in text
    assert "above 0 is better" in text
    assert "minus SVR on the inputs, tuned" in text
    assert not re.search("SVC|paper", text)
    assert "[" not in markdown(summarise([r for r in REAL if r.seed < 2]), full=True)


def test_a_table_compares_what_has_the_same_baselines() -> None:
    tables = [row("letter_alg1", "nsvm", seed, 40, 2000) for seed in range(3)]
    tables += [row("letter_alg1", "network", seed, 50, 2000) for seed in range(3)]
    tables += [row("optdigits_alg4", "nsvm", seed, 6, 562) for seed in range(3)]
    tables += [row(name, "svc_tuned", seed, 30, 562) for name in ("letter", "optdigits") for seed in range(3)]
    found = groups(summarise(ROWS + tables + REAL))
    assert [[*group.cells] for group in found] == [
        ["ringnorm_alg1"],
        ["mnist_alg3"],
        ["letter_alg1", "optdigits_alg4"],
        ["houses_alg4"],
    ]
    text = markdown(summarise(ROWS + tables + REAL), full=True)
    assert "| `optdigits_alg4` | 98.93 ± 0.00 | [98.32, 99.37] | 3.0 | 100 |  | 94.66 ± 0.00 |" in text
    assert text.count("paper, one run") == 2
    notes = " ".join(text.rpartition("\n\n")[2].split())
    assert [note in notes for note in ("not tuned", "SVC with C and gamma from", "SVR with")] == [True] * 3


def test_the_figure_has_the_data_sets_of_a_table_side_by_side(tmp_path: Path) -> None:
    other = [of_targets("cpu_act_alg4", "nsvm", seed, 0.98) for seed in range(3)]
    other += [of_targets("cpu_act_alg4", "svc_tuned", seed, 0.97) for seed in range(3)]
    (group,) = groups(summarise(REAL + other))
    assert [[*part.cells] for part in _by_dataset(group)] == [["houses_alg4"], ["cpu_act_alg4"]]
    draw_results(summarise(REAL + other), True, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


EARLIER = """\
cell,dataset,method,seed,accuracy,errors,samples,overlap,seconds,support_vectors,theta_steps,generated,trained
mnist_alg1,mnist,network,0,0.98,42,2115,0.0,10.9,,815,False,True
"""


def test_rows_are_read_also_of_earlier_versions(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    file.write_text(EARLIER)
    (earlier,) = read_rows(file)
    assert (earlier.errors, earlier.support_vectors, earlier.r2) == (42, None, None)
    write_csv(file, [asdict(r) for r in [earlier, *REAL]])
    assert read_rows(file) == [earlier, *REAL]
    file.write_text(EARLIER.replace(",42,", ",,"))
    with pytest.raises(ValueError, match="expected the scores"):
        read_rows(file)
