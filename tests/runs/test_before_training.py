"""What training would only find out at its end is refused before its first step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from nsvm_cli.errors import InputError
from nsvm_cli.models.kernels import KERNELS, Kernel
from nsvm_cli.runs.experiment import prepare
from tests.small_runs import SETTINGS, small_settings


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
    assert "2 or more values" not in said, "there are two classes"
    prepare(small_settings(dataset=table(tmp_path / "t.csv", label="y" * 4000)))


def test_what_the_files_of_a_run_cannot_hold(tmp_path: Path) -> None:
    assert "source should be a valid string" in refused(dataset=table(tmp_path / "t\udcff.csv"))
    assert "log_every should be less than or equal to" in refused(log_every=10**30)
    steps = {**SETTINGS["algorithm"], "steps": 10**30}
    assert "steps should be less than or equal to" in refused(algorithm=steps)
    assert "needs a validation set: expected dataset.validation" in refused(validation={"every": 5})


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    ("formula", "said"),
    [
        (
            lambda a, b: (a @ b.mT)[..., :-1],
            "returned (3, 4) of torch.float32 on cpu, expected (3, 5) of torch.float32 on cpu",
        ),
        (
            lambda a, b: (a @ b.mT).squeeze(),
            "returned (5,) of torch.float32 on cpu, expected (1, 5) of torch.float32 on cpu",
        ),
        (lambda a, b: 3.0, "returned float, expected (3, 5) of torch.float32 on cpu"),
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
    assert refused(kernel={"name": "bad", "normalize": normalize}) == f"kernel bad {said}"


@pytest.mark.parametrize("value", ["1e308", "1e200"])
def test_values_that_cannot_be_standardised_are_named(value: str, tmp_path: Path) -> None:
    """With 1e200 the feature would silently become 0."""
    said = refused(dataset=table(tmp_path / "t.csv", value=value))
    assert said.startswith(f"feature 2 has values up to {float(value):.3g}: ")
    assert "lower optimizer.lr" not in said
