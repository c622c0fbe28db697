"""Checkpoints: what goes in comes out, and nothing else is let in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from nsvm_cli.checkpoint import load_checkpoint, locate
from nsvm_cli.errors import InputError
from nsvm_cli.experiment import conduct, prepare
from nsvm_cli.run_directory import RunDirectory
from nsvm_cli.settings import parse_settings, plain

SETTINGS: dict[str, Any] = {
    "dataset": {"name": "ringnorm", "samples": 300},
    "network": {"name": "mlp", "widths": [10, 6]},
    "kernel": {"name": "rbf"},
    "optimizer": {"name": "sgd", "lr": 0.01},
    "algorithm": {"name": "alg4", "steps": 20, "solver_steps": 100},
    "device": "cpu",
    "threads": 1,
}

Run = Callable[..., tuple[Path, dict[str, Any]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def make(**changes: Any) -> tuple[Path, dict[str, Any]]:
        settings = parse_settings({**SETTINGS, **changes})
        path = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        with RunDirectory(path, plain(settings)) as directory:
            result = conduct(prepare(settings), directory, lambda record: None)
        return path, result

    return make


def contents(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("solver", ["pegasos", "svc"])
def test_the_loaded_model_has_the_same_decision_function(run: Run, dtype: str, solver: str) -> None:
    settings = parse_settings(
        {**SETTINGS, "dtype": dtype, "algorithm": {**SETTINGS["algorithm"], "solver": solver}}
    )
    path, result = run(dtype=dtype, algorithm=settings.algorithm)
    loaded = load_checkpoint(path / "final.safetensors")
    test = prepare(settings).data.parts["test"]
    assert loaded.settings == settings
    assert loaded.model.errors(test.x, test.y) == result["test_errors"]
    assert (loaded.model.expansion.bias != 0) == (solver == "svc")
    again = load_checkpoint(path / "final.safetensors").model.decision_function(test.x)
    assert torch.equal(loaded.model.decision_function(test.x), again)
    assert str(again.dtype) == f"torch.{dtype}"


def test_a_run_directory_holds_what_the_readme_says(run: Run) -> None:
    path, result = run()
    assert {file.name for file in path.iterdir()} == {
        *("config.yaml", "metrics.jsonl", "result.json", "final.safetensors")
    }
    assert json.loads((path / "result.json").read_text()) == result
    keys = "test_accuracy test_errors train_accuracy train_errors steps violations support_vectors alignment"
    assert set(f"{keys} train_seconds seed device threads versions data".split()) <= set(result)
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 121))
    assert locate(path) == path / "final.safetensors"


def test_validation_keeps_the_test_set_closed(run: Run) -> None:
    _, result = run(dataset={**SETTINGS["dataset"], "validation": 20})
    assert result["test_accuracy"] is None
    assert result["test_errors"] is None
    assert result["validation_errors"] == round(40 * (1 - result["validation_accuracy"]))


def test_a_directory_belongs_to_one_run(run: Run) -> None:
    path, _ = run()
    before = {file: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(InputError, match="already holds a run"):
        RunDirectory(path, {})
    assert before == {file: file.read_bytes() for file in path.iterdir()}


def refused(path: Path, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_missing_truncated_or_of_another_kind(run: Run, tmp_path: Path) -> None:
    file = run()[0] / "final.safetensors"
    data = file.read_bytes()
    refused(tmp_path / "nothing", "does not exist: expected a checkpoint")
    refused(tmp_path, "is not a file")
    for size in [*range(0, 300, 7), len(data) // 2, len(data) - 1]:
        file.write_bytes(data[:size])
        refused(file, "cannot be read as a checkpoint")
    file.write_text("theta: 3")
    refused(file, "cannot be read as a checkpoint")
    save_file({"weight": torch.ones(3)}, file)
    refused(file, "is not an nsvm checkpoint: its metadata have no entry nsvm-1")
    with pytest.raises(InputError, match="expected the directory of a finished run"):
        locate(tmp_path)


Tensors = dict[str, torch.Tensor]
Mutation = Callable[[Tensors, dict[str, Any]], object]


def settings_with(**changes: object) -> Mutation:
    return lambda t, m: m["settings"].update(changes)


@pytest.mark.parametrize(
    ("mutate", "said"),
    [
        (lambda t, m: t.pop("z"), "'z'"),
        (lambda t, m: t.update(z=t["z"][:-1]), "do not belong together"),
        (lambda t, m: t.update(alpha=t["alpha"].double()), "are not float32"),
        (lambda t, m: t.update(mean=t["mean"][:-1].clone()), "mean and std"),
        (lambda t, m: t.update({"theta.layers.0.weight": t["theta.layers.0.weight"][:-1]}), "size mismatch"),
        (lambda t, m: t.pop("theta.layers.0.bias"), "theta|Missing key"),
        (lambda t, m: t.update({"theta.extra": torch.ones(1)}), "Unexpected key"),
        (lambda t, m: t["z"].fill_(float("nan")), "NaN or infinity"),
        (lambda t, m: t["y"].fill_(7), "y is not -1 or "),
        (lambda t, m: t.update(z=t["z"][:, :-1]), "columns where the network gives"),
        (lambda t, m: m["facts"].update(scale=0.0), "scale or std is not positive"),
        (settings_with(algorithm={}), "the algorithm has no name"),
        (settings_with(network={"name": "mlp", "widths": [10**30]}), "cannot be used"),
        (lambda t, m: m.pop("settings"), "'settings'"),
        (lambda t, m: m.update(settings=None), "cannot be used"),
        (lambda t, m: m.update(settings=[]), "cannot be used"),
        (lambda t, m: m.update(settings=3), "cannot be used"),
        (lambda t, m: m.update(facts={}), "needs a value"),
        (lambda t, m: m.update(facts=[1]), "cannot be used"),
        (settings_with(extra=1), "extra: there is no such setting"),
        (settings_with(network={"name": "nope"}), "there is no network 'nope'"),
        (settings_with(kernel={"_target_": "os.system"}), "there is no kernel None"),
        (settings_with(kernel={"name": "rbf", "_target_": "os.system"}), "no such setting"),
        (settings_with(dtype="float16"), "dtype"),
    ],
)
def test_one_that_contradicts_itself_is_refused(run: Run, mutate: Mutation, said: str) -> None:
    file = run()[0] / "final.safetensors"
    tensors, metadata = contents(file)
    content = json.loads(metadata["nsvm-1"])
    mutate(tensors, content)
    tensors = {name: t.contiguous() for name, t in tensors.items()}
    save_file(tensors, file, {"nsvm-1": json.dumps(content)})
    refused(file, said)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000])
def test_metadata_that_are_no_settings_are_refused(run: Run, text: str) -> None:
    file = run()[0] / "final.safetensors"
    save_file(contents(file)[0], file, {"nsvm-1": text})
    refused(file, "cannot be used")


def test_no_pickle_anywhere() -> None:
    package = Path(__file__).parents[1] / "nsvm_cli"
    for file in package.rglob("*.py"):
        found = re.search(r"\bpickle\b|torch\.load|np\.load|instantiate\(|joblib", file.read_text())
        assert not found or "No pickle" in file.read_text(), f"{file.name}: {found}"
