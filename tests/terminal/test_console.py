"""The tables of results after training and of nsvm evaluate, on terminals of several widths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from nsvm_cli.terminal.console import show_evaluation, show_result
from nsvm_cli.words import figures_of

RESULT: dict[str, Any] = {"algorithm": "alg4", "dataset": "mine", "seed": 0, "train_seconds": 1.0}
RESULT |= {"steps": 10, "violations": 3, "support_vectors": 4, "parameters": 154, "alignment": None}
RESULT |= {"theta_change": 0.5, "feature_change": 0.25}
RESULT |= {"data": {"samples": {"train": 90, "validation": 0, "test": 10}, "classes": []}}


def classified(C: int, validation: int = 0) -> dict[str, Any]:
    """Return a result on C classes of 10 samples each, where the last class is mistaken for the first."""
    confusion = [[10 * (i == j) for j in range(C)] for i in range(C - 1)] + [[10] + [0] * (C - 1)]
    accuracy = {"accuracy": (C - 1) / C, "errors": 10, "balanced_accuracy": (C - 1) / C}
    held_out, empty = (
        ("validation", {"test_accuracy": None, "test_errors": None}) if validation else ("test", {})
    )
    scores = {f"{split}_{name}": value for split in (held_out, "train") for name, value in accuracy.items()}
    samples = {"train": 90, "validation": validation, "test": 10 * C}
    classes = {"recall": [*[1.0] * (C - 1), 0.0], "confusion": confusion}
    data = {"samples": samples, "classes": [f"class {i}" for i in range(C)]}
    return {**RESULT, **empty, **scores, **classes, "data": data}


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def show(result: dict[str, Any], width: int = 80) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        (show_evaluation if "split" in result else show_result)(
            result, *([] if "split" in result else [Path("run")])
        )
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= width
        return text

    return show


def test_errors_of_regression_are_in_the_units_of_the_data(shown: Any) -> None:
    scores = {"r2": 0.91234, "rmse": 52345.6, "mae": 2.5}
    result = {**RESULT, **{f"{split}_{k}": v for split in ("test", "train") for k, v in scores.items()}}
    text = shown(result)
    assert "test R^2      │ 0.9123" in text
    assert "test RMSE     │ 52346" in text
    assert "train MAE     │ 2.500" in text
    assert "accuracy" not in text
    assert "undefined" in shown({**result, "test_r2": None})


def test_a_matrix_where_there_is_room_and_else_the_worst_confusions(shown: Any) -> None:
    matrix = "test: true classes in rows, decisions in columns"
    text = shown(classified(3))
    assert matrix in text
    assert "class 2       10        .        .    0.0 %" in text
    assert matrix in shown(classified(12), width=150)
    for text in (shown(classified(12), width=80), shown(classified(13), width=300)):
        assert matrix not in text
        assert "test: the most frequent confusions" in text
        assert text.count("10 of 10") == 1
    assert "confusions" not in shown({**classified(13), "confusion": [[0] * 13] * 13})


def test_balanced_accuracy_is_shown_where_it_differs(shown: Any) -> None:
    assert "balanced" not in shown(classified(2, validation=10))
    assert "validation balanced accuracy │ 70.00 %" in shown(
        {**classified(2, validation=10), "validation_balanced_accuracy": 0.7}
    )


def test_the_answer_that_is_the_same_for_all_stands_beside_a_score(shown: Any) -> None:
    sentence = "No better than always predicting the most frequent class (accuracy 80.00 %)."
    result = {**classified(2), "test_majority_accuracy": 0.8}
    assert "test accuracy of the majority class │ 80.00 %" in shown(result)
    assert sentence in shown(result)
    assert "No better" not in shown({**result, "test_accuracy": 0.81})
    assert "No better" not in shown({**result, "metric": "f1"}), "a choice by F1 may cost accuracy"
    errors = {"test_r2": -0.1, "test_rmse": 2.0, "test_mae": 1.0, "test_mean_rmse": 1.9}
    errors |= {"train_r2": 0.5, "train_rmse": 1.0, "train_mae": 1.0}
    assert "No better than always predicting the mean (RMSE 1.900)." in shown({**RESULT, **errors})


def test_few_figures_come_first_and_each_of_the_others_with_a_word(shown: Any) -> None:
    title, *lines = shown({**classified(2), "alignment": 0.5}).splitlines()
    assert title == "alg4 on mine, seed 0"
    first = [line.split("│")[1].strip() for line in lines if line.startswith("│")]
    assert first == ["test accuracy", "test errors", "train accuracy", "train errors", "training time"]
    others = [line.strip() for line in lines[lines.index("Run directory: run") - 7 : -1]]
    names = ("steps", "violations", "support vectors", "parameters", "theta change", "feature change")
    for line, name in zip(others, [*names, "kernel alignment"], strict=True):
        assert re.match(rf"{name} +[\d.]+( %)?  [a-z]+ [a-z ]+", line), line


def test_without_an_svm_nothing_is_said_of_one(shown: Any) -> None:
    """This holds for models without an SVM and for records of a run before its SVM exists."""
    text = shown({**classified(2), "support_vectors": None, "violations": None})
    assert "violations" not in text
    assert "support vectors" not in text
    record = {"step": 1, "violations": 0, "support_vectors": 0, "objective": 0.5}
    assert figures_of(record) == ["objective 0.5"]


def test_evaluate_shows_the_same_and_what_an_old_file_does_not_know_is_left_out(shown: Any) -> None:
    figures = {**RESULT, "checkpoint": "final.safetensors", "source": "table", "same_data": True}
    figures |= {"split": "train", "samples": 20, "accuracy": 0.5, "errors": 10, "balanced_accuracy": 0.5}
    figures |= {"confusion": [[10, 10], [0, 0]], "recall": [1.0, None], "classes": ["\x1b[31m", "b" * 90]}
    figures |= {"theta_change": None, "feature_change": None}
    text = shown(figures)
    assert "train: true classes in rows" in text
    assert "\x1b" not in text
    assert "change" not in text
    assert "parameters" in text
