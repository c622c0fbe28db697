"""Errors that would otherwise occur at the end of training are raised before its first step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from nsvm_cli.errors import InputError
from nsvm_cli.models.kernels import KERNELS, Kernel
from nsvm_cli.runs.experiment import prepare
from tests.small_runs import small_settings
from tests.small_tables import small_table


def refused(**changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        prepare(small_settings(**changes))
    return str(caught.value)


def table(path: Path, label: str = "yes", value: str = "1.5") -> dict[str, Any]:
    rows = [f"{i % 7},{i % 5},{label if i % 2 else 'no'}" for i in range(60)]
    path.write_text("\n".join(["a,b,label", *rows, f"2,{value},no", f"3,-{value},no"]))
    return {"name": "csv", "path": str(path)}


def test_the_name_of_a_class_that_a_model_file_cannot_hold(tmp_path: Path) -> None:
    said = refused(dataset=table(tmp_path / "t.csv", label="y" * 5000))
    assert re.search("classes.*4096 characters", said)
    assert "2 or more values" not in said, "the error should not be about the number of classes"
    prepare(small_settings(dataset=table(tmp_path / "t.csv", label="y" * 4000)))


def test_what_the_files_of_a_run_cannot_hold(tmp_path: Path) -> None:
    assert "source should be a valid string" in refused(dataset=table(tmp_path / "t\udcff.csv"))


ALG1, ALG2 = ({"algorithm": {"name": name, "steps": 20}} for name in ("alg1", "alg2"))
DATA = {"name": "ringnorm", "samples": 300}
VALIDATED: dict[str, Any] = {"dataset": {**DATA, "validation": 60}, "validation": {"every": 10}}
F1: dict[str, Any] = {**VALIDATED, "metric": "f1", "threshold": "best"}
TEN = {"name": "digits", "classes": None, "validation": 0.2}


def stopping(**settings: Any) -> dict[str, Any]:
    return {**VALIDATED, "callbacks": [{"name": "early_stopping", **settings}]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"log_every": 10**30}, "log_every should be less than or equal to"),
        ({"algorithm": {"name": "alg1", "steps": 10**30}}, "steps should be less than or equal to"),
        ({"validation": {"every": 5}}, "requires a validation set: set dataset.validation"),
        ({"penalties": {"entropy": 1}, **ALG1}, "penalties.entropy requires batches .*batch_size above 1"),
        (
            {"penalties": {"l1": 1}, "algorithm": {"name": "pegasos", "steps": 9}},
            "but theta is fixed in this run",
        ),
        ({"penalties": {"l1": 1}, "network": {"name": "identity"}, **ALG2}, "but theta is fixed in this run"),
        (
            {"kernel": {"name": "rbf", "ard": True, "gradient": "spsa"}},
            "cannot be combined with learnt kernel parameters",
        ),
        (
            {"callbacks": ["erly_stopping"]},
            "there is no callback 'erly_stopping'; did you mean early_stopping",
        ),
        ({"callbacks": [3]}, "callbacks.0 should be"),
        ({"callbacks": ["early_stopping"]}, "metric=validation_accuracy requires validation.every"),
        (stopping(patience=0), "callback.patience should be greater than or equal to 1"),
        (stopping(patienc=3), "did you mean patience"),
        (stopping(metric="acuracy"), "metric=acuracy is unknown; did you mean"),
        (
            {"metric": "r2"},
            "metric=r2: there is no such metric for task=classification; expected one of: accuracy, average",
        ),
        ({"metric": "log_loss"}, "metric=log_loss requires probabilities: set calibration=sigmoid, or"),
        ({"keep": "best", "dataset": {**DATA, "validation": 60}}, "keep=best requires validation.every"),
        ({"calibration": "sigmoid"}, r"requires a validation set: set dataset\.validation"),
        (
            {**F1, "metric": "roc_auc"},
            "requires metric=accuracy or balanced_accuracy or f1, got metric=roc_auc",
        ),
        ({"threshold": "best"}, "threshold=best requires a validation set"),
        ({**F1, "threshold": 0.3, "calibration": None}, "threshold=0.3 requires probabilities: set calibr"),
        ({**F1, "threshold": 1.5}, "threshold: expected best, null, or a probability between 0 and 1"),
        ({**F1, "dataset": TEN}, "two classes, but the data have 10"),
        ({"loss": {"name": "hing"}}, "did you mean hinge"),
        (
            {"loss": {"name": "squared"}},
            "loss=squared requires task=regression, got task=classification; use one of hinge, squ",
        ),
    ],
)
def test_settings_that_do_not_go_together(changes: dict[str, Any], said: str) -> None:
    assert re.search(said, refused(**changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"calibration": "sigmoid"}, "calibration=sigmoid requires task=classification, got task=regression"),
        ({"threshold": "best"}, "threshold=best requires two classes, but the data have none"),
        ({"class_weight": "balanced"}, "class_weight requires task=classification, got task=regression"),
        (
            {"loss": {"name": "hinge"}},
            "loss=hinge requires task=classification, got task=regression; use one of epsilon_",
        ),
        ({"loss": {"name": "epsilon_insensitive", "epsilon": -1}}, "loss.epsilon should be greater than or"),
    ],
)
def test_settings_that_do_not_go_with_real_targets(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert said in refused(**small_table("regression", tmp_path), **changes)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    ("formula", "said"),
    [
        (
            lambda a, b: (a @ b.mT)[..., :-1],
            "expected a return value of (3, 5) of torch.float32 on cpu, got (3, 4) of torch.float32 on cpu",
        ),
        (
            lambda a, b: (a @ b.mT).squeeze(),
            "expected a return value of (1, 5) of torch.float32 on cpu, got (5,) of torch.float32 on cpu",
        ),
        (lambda a, b: 3.0, "expected a return value of (3, 5) of torch.float32 on cpu, got float"),
    ],
)
def test_a_kernel_of_the_wrong_shape_is_named(
    formula: Any, said: str, normalize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bad(Kernel):
        def __call__(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = formula(a, b)
            return result

    monkeypatch.setitem(KERNELS, "bad", Bad)
    assert refused(kernel={"name": "bad", "normalize": normalize}) == f"kernel bad: {said}"


@pytest.mark.parametrize("value", ["1e308", "1e200"])
def test_values_that_cannot_be_standardised_are_named(value: str, tmp_path: Path) -> None:
    """With 1e200, the feature would otherwise silently become 0."""
    said = refused(dataset=table(tmp_path / "t.csv", value=value))
    assert said.startswith("feature 2: the ")
    assert f"because values reach {float(value):.3g}; " in said
    assert "lower optimizer.lr" not in said
