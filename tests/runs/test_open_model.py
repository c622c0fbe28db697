"""Models opened from the checkpoints of runs that were killed or are still training."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

from nsvm_cli.datasets import DATASETS, Samples
from nsvm_cli.datasets.image_files import SklearnDigits
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.output import saying
from nsvm_cli.runs.checkpoint import load_checkpoint, save_checkpoint
from nsvm_cli.runs.open_model import evaluate_model, open_model
from nsvm_cli.storage.files import locked
from nsvm_cli.storage.metrics_file import read_metrics
from nsvm_cli.storage.run_directory import checkpoints_in
from nsvm_cli.storage.tensor_file import BLANK
from tests.artifacts.test_model_file import contents, write_with_checksum
from tests.runs.test_train import VALUES, go, interrupt, settings_with
from tests.small_tables import KINDS, small_table


def killed(folder: Path, **changes: Any) -> Path:
    interrupt(folder / "run", settings_with(**changes))
    return folder / "run"


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_killed_has_the_model_of_its_last_checkpoint(kind: str, tmp_path: Path) -> None:
    table = small_table(kind, tmp_path)
    if kind == "three classes":
        table["calibration"] = "sigmoid"
    run, said = killed(tmp_path, **table), list[str]()
    with locked(run), saying(said.append):  # like a process that resumes the run
        file, model = open_model(run, {"device": "cpu"})
    assert file == checkpoints_in(run)[0]
    assert model.metadata.steps == load_checkpoint(file).step
    assert said == [f"{file}: using the model after step {model.metadata.steps} of 300"]
    assert (model.sigmoids is None) == (kind == "regression")
    validated = [r for r in read_metrics(run / "metrics.jsonl") if r["step"] == model.metadata.steps]
    name = "r2" if kind == "regression" else "accuracy"
    figures = evaluate_model(file, model, None, None, {})
    assert figures[name] == validated[0][f"validation_{name}"]
    assert figures["same_data"] is True


@dataclass(frozen=True, kw_only=True)
class Moving(SklearnDigits):
    """Digits that can be loaded only if the folder ``root`` has a certain file."""

    root: str

    def load(self, rng: np.random.Generator) -> Samples:
        (Path(self.root) / "digits").read_text()
        return super().load(rng)


def test_the_data_of_a_checkpoint_may_have_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, "moving", Moving)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "digits").write_text("here")
    dataset = {"name": "moving", "root": str(tmp_path / "old"), "validation": 20}
    run = killed(tmp_path, dataset=dataset, algorithm={"name": "alg2", "steps": 200})
    root = str((tmp_path / "old").rename(tmp_path / "new"))
    with pytest.raises(FileNotFoundError):
        open_model(run)
    assert open_model(run, {"dataset.root": root})[1].settings.dataset["root"] == root


@pytest.mark.parametrize(
    ("keep", "steps"), [("none", []), (3, [200, 250, 300]), ("all", [*range(50, 301, 50)])]
)
def test_which_checkpoints_stay(keep: str | int, steps: list[int], tmp_path: Path) -> None:
    """The checkpoint of the last step contains the final model."""
    checkpoint = {"every": 50, "keep": keep}
    run = killed(tmp_path, checkpoint=checkpoint)
    assert len(checkpoints_in(run)) >= 2, "training should keep a second checkpoint to fall back to"
    assert go(run, settings_with(checkpoint=checkpoint))["exact"] is True
    files = sorted(run.glob("step-*.safetensors"))
    assert [file.stem for file in files] == [f"step-{step:08}" for step in steps]
    metadata = [open_model(file)[1].metadata for file in files]
    assert [fact.steps for fact in metadata] == steps
    assert metadata[-1:] == [open_model(run)[1].metadata][: len(metadata)]


def test_a_checkpoint_that_is_damaged_or_a_strangers(tmp_path: Path) -> None:
    run = killed(tmp_path)
    last, previous = checkpoints_in(run)
    checkpoint = load_checkpoint(last)
    settings, environment = checkpoint.settings, checkpoint.environment
    for changes, refused in (
        ({"values": {**checkpoint.values, "state": {}}}, "does not fit this run"),
        ({"settings": {**settings, "kernel": {"name": "os.system"}}}, "there is no kernel"),
        ({"settings": {"seed": 1}}, "dataset"),
        ({"environment": {**environment, "data": "0" * 64}}, "has changed since the run"),
        ({"environment": {**environment, "plugins_sha256": "x"}}, "plugins_sha256: String should match"),
    ):
        save_checkpoint(last, replace(checkpoint, **changes))
        with pytest.raises(InputError, match=refused):
            open_model(last)
    last.write_bytes(last.read_bytes()[:-1])
    with pytest.raises(InputError, match="cannot be read"):
        open_model(last)
    said: list[str] = []
    with saying(said.append):
        file, model = open_model(run)
    assert (file, model.metadata.steps) == (previous, load_checkpoint(previous).step)
    assert said[0].endswith("falling back to the previous checkpoint")


def test_part_1_of_algorithm_4_has_no_svm(tmp_path: Path) -> None:
    algorithm = {"name": "alg4", "steps": 200, "solver_steps": 100}
    with pytest.raises(
        InputError, match=r"has no SVM yet, at step \d+ of 300: expected a checkpoint of Part 2"
    ):
        open_model(killed(tmp_path, algorithm=algorithm))


def test_trained_for_longer_and_killed_meanwhile(tmp_path: Path) -> None:
    """With more steps, a finished run resumes from its last checkpoint, and its old result is deleted."""
    same = {"validation": {"every": None}, "engine": "torch"}
    longer = {"algorithm": VALUES["algorithm"] | {"steps": 500}, **same}
    go(run := tmp_path / "run", settings_with(**same))
    interrupt(run, settings_with(**longer), 400, allow_mismatch=True)
    assert not (run / "result.json").exists()
    step = open_model(run)[1].metadata.steps
    assert 300 < step < 500
    result = go(run, settings_with(**longer))
    assert (result["steps"], result["exact"], result["resumed"]) == (500, False, 2)
    go(whole := tmp_path / "whole", settings_with(**longer))
    assert (run / "final.safetensors").read_bytes() == (whole / "final.safetensors").read_bytes()
    steps = [record["step"] for record in read_metrics(whole / "metrics.jsonl")]
    assert [r["step"] for r in read_metrics(run / "metrics.jsonl")] == sorted({*steps, 300})


def test_a_checkpoint_whose_theta_is_not_finite(tmp_path: Path) -> None:
    """The last value, 1e200, is finite, but the norm of theta is not."""
    file = checkpoints_in(killed(tmp_path, dtype="float64"))[0]
    tensors, metadata = contents(file)
    kind, text = next(iter(metadata.items()))
    blank = {kind: json.dumps({**json.loads(text), "sha256": BLANK})}
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    for value in (float("inf"), float("nan"), 1e200):
        next(tensor for name, tensor in tensors.items() if name.startswith("F/")).view(-1)[0] = value
        write_with_checksum(file, save(tensors, blank))
        with pytest.raises(InputError, match=f"{file.name} cannot be used: "):
            open_model(file)


def test_no_checkpoint_is_written_that_could_not_be_read(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(file := checkpoints_in(killed(tmp_path))[0])
    checkpoint.values["state"]["more"] = torch.tensor([1.0, float("inf")])
    before = file.read_bytes()
    with pytest.raises(RunError, match="tensor 'state/more' contains NaN or infinity"):
        save_checkpoint(file, checkpoint)
    assert file.read_bytes() == before
