"""Limits of files: many classes can be saved, and what exceeds a limit is refused before the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nsvm_cli.config.settings import Settings, plain
from nsvm_cli.errors import InputError
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage import tensor_file
from nsvm_cli.storage.run_directory import RunDirectory
from tests.runs.test_train import resumed
from tests.small_runs import small_settings

pytestmark = pytest.mark.usefixtures("shapes")


def on_table(file: Path, algorithm: dict[str, Any], **changes: Any) -> Settings:
    dataset = {"name": "csv", "path": str(file), "test_path": str(file)}
    return small_settings(dataset=dataset, algorithm=algorithm, network={"name": "identity"}, **changes)


def test_an_svm_of_many_classes_is_saved_and_resumes_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint joins the tensors of the 36 pairs of classes, which would exceed the limit otherwise."""
    monkeypatch.setattr(tensor_file, "TENSORS", 36)
    x = np.random.default_rng(0).normal(size=(18, 4)).round(3)
    rows = [f"{','.join(map(str, row))},c{i % 9}" for i, row in enumerate(x)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,d,label", *rows]))
    settings = on_table(tmp_path / "t.csv", {"name": "svc", "lam": 1e-2}, checkpoint={"every": 20})
    assert len(resumed(tmp_path, settings, 40)["data"]["classes"]) == 9


@pytest.mark.parametrize("name", ["alg1", "svc"])
def test_what_files_cannot_hold_is_refused_before_the_first_step(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_file, "HEADER_BYTES", 40_000)
    wide = [f"{'x' * 4000}{j}" for j in range(11)]
    rows = [f"{','.join(str((i * j) % 7) for j in range(11))},{'ab'[i % 2]}" for i in range(8)]
    (tmp_path / "t.csv").write_text("\n".join([",".join([*wide, "label"]), *rows]))
    steps = {} if name == "svc" else {"steps": 5}
    settings = on_table(tmp_path / "t.csv", {"name": name, **steps}, kernel={"name": "rbf"})
    with RunDirectory(tmp_path / "run", plain(settings)) as run:
        with pytest.raises(InputError, match=r"cannot be written: .* bytes of header"):
            train_run(prepare(settings), run)
        assert (tmp_path / "run" / "metrics.jsonl").read_text() == ""


@pytest.mark.parametrize(
    "tensor", [torch.zeros(2, dtype=torch.int16), torch.zeros(2, dtype=torch.complex64), torch.zeros([1] * 9)]
)
def test_a_tensor_that_would_not_be_read_is_not_written(tensor: torch.Tensor, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot hold 'buffer': expected F32"):
        tensor_file.write(tmp_path / "file", "test", {}, {"buffer": tensor})
    assert not (tmp_path / "file").exists()
