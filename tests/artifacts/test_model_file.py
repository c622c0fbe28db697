"""Model files: saved models load unchanged, and all other files are refused."""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save, save_file

from nsvm_cli.artifacts.model_file import load_model, save_model
from nsvm_cli.errors import InputError
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.open_model import open_model
from nsvm_cli.storage import tensor_file
from nsvm_cli.storage.tensor_file import BLANK
from tests.small_runs import SETTINGS, small_run, small_settings


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the bytes of a model file."""
    small_run(path := tmp_path_factory.mktemp("trained") / "run")
    return (path / "final.safetensors").read_bytes()


@pytest.fixture
def file(trained: bytes, tmp_path: Path) -> Path:
    file = tmp_path / "run" / "final.safetensors"
    file.parent.mkdir()
    file.write_bytes(trained)
    return file


def contents(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


@pytest.mark.parametrize(("dtype", "solver"), [("float32", "pegasos"), ("float64", "svc")])
def test_the_loaded_model_has_the_same_decision_function(tmp_path: Path, dtype: str, solver: str) -> None:
    changes = {"dtype": dtype, "algorithm": {**SETTINGS["algorithm"], "solver": solver}}
    result, settings = small_run(tmp_path / "run", **changes), small_settings(**changes)
    loaded = load_model(tmp_path / "run" / "final.safetensors")
    experiment = prepare(settings)
    test = experiment.data.splits["test"]
    assert loaded.settings == settings
    assert loaded.decision_function(test.x).equal(experiment.train().decision_function(test.x))
    assert loaded.score(test.x, test.y)["errors"] == result["test_errors"]
    assert (loaded.expansion.bias != 0) == (solver == "svc")
    assert str(loaded.decision_function(test.x).dtype) == f"torch.{dtype}"


def refused(path: Path, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_missing_truncated_and_foreign_files_are_refused(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    refused(tmp_path / "nothing", "does not exist: expected a model file")
    refused(tmp_path, "is not a file")
    for size in [*range(0, 300, 7), len(data) // 2, len(data) - 1]:
        file.write_bytes(data[:size])
        refused(file, "cannot be read as a model file")
    file.write_bytes(data + b"more")
    refused(file, "cannot be read as a model file")
    torch.save({"z": torch.ones(100)}, pickled := io.BytesIO())
    for other in (b"theta: 3,", b"age,label\n1,2\n", pickled.getvalue(), b"\xff" * 8 + b"{"):
        file.write_bytes(other)
        refused(file, "cannot be read as a model file .*: its header has [0-9]+ bytes, expected at most")
    save_file({"weight": torch.ones(3)}, file)
    refused(
        file,
        "is another kind of file, or was written by another version .*: "
        "expected metadata 'nsvm-model-3', found none",
    )
    tensor_file.write(file, "nsvm-training-1", {}, {"weight": torch.ones(3)})
    refused(file, "expected metadata 'nsvm-model-3', found 'nsvm-training-1'$")
    with pytest.raises(InputError, match="expected a run with this file or a checkpoint"):
        open_model(tmp_path)


def test_any_flipped_bit_is_noticed(file: Path) -> None:
    data = file.read_bytes()
    rng = random.Random(0)
    places = [*range(8 * 8), *(rng.randrange(8 * len(data)) for _ in range(40))]
    for place in places:
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        file.write_bytes(flipped)
        refused(file, "cannot be read|cannot be used|of another kind|checksum")


def test_saving_again_gives_the_same_file(file: Path) -> None:
    data = file.read_bytes()
    save_model(file, load_model(file))
    assert file.read_bytes() == data


Tensors = dict[str, torch.Tensor]
Mutation = Callable[[Tensors, dict[str, Any]], object]


def settings_with(**changes: object) -> Mutation:
    return lambda t, m: m["settings"].update(changes)


def facts_with(**changes: object) -> Mutation:
    return lambda t, m: m["facts"].update(changes)


@pytest.mark.parametrize(
    ("mutate", "said"),
    [
        (lambda t, m: t.pop("z"), "'alpha': expected F32 of shape"),
        (lambda t, m: t.update(z=t["z"][0]), "tensor 'z': expected a matrix"),
        (lambda t, m: t.update(alpha=t["alpha"].double()), "'alpha': expected F32 of shape .* got F64"),
        (
            lambda t, m: t.update({"theta.layers.0.weight": t["theta.layers.0.weight"][:-1]}),
            "weight': expected",
        ),
        (lambda t, m: t.pop("theta.layers.0.bias"), "'theta.layers.0.bias': expected F32 .* got none"),
        (lambda t, m: t.update({"theta.extra": torch.ones(1)}), "'theta.extra': expected none, got F32"),
        (lambda t, m: t.update({str(i): torch.ones(1) for i in range(5000)}), "header has|tensors, expected"),
        (lambda t, m: t["z"].fill_(float("nan")), "NaN or infinity"),
        (lambda t, m: t["std"].fill_(0), "tensor 'std' contains zero or negative values, expected positive"),
        (lambda t, m: t["i"].fill_(-1), "tensor 'i' contains negative values, expected indices"),
        (lambda t, m: t.update(z=t["z"][:, :-1]), "tensor 'z' has 5 columns, but the network returns 6"),
        (facts_with(scale=0.0), "scale should be greater than 0"),
        (facts_with(shape=[2**30, 2**30]), "expected samples of at most .* values, got"),
        (facts_with(source="x" * 5000), "source should have at most|at most 4096"),
        (facts_with(columns={"size": 1.0}), r"expected columns with features of shape .*, got 1 features"),
        (facts_with(columns={"a": 1.0, "b": []}), "columns.b"),
        (facts_with(columns={"a": [str(i) for i in range(1001)]}), "at most 1000 items"),
        (facts_with(columns={"a": ["x" * 5000, "y", "z"]}), "at most 4096 characters"),
        (facts_with(columns={"x" * 5000: 1.0, "b": ["y", ""]}), "cannot be used"),
        (facts_with(columns={"a": ["x", None]}), "columns.a"),
        (settings_with(algorithm={"name": "alg3"}), "algorithm.steps requires a value for algorithm=alg3"),
        (settings_with(network={"name": "mlp", "widths": [2**62, 2**62]}), "cannot be used"),
        (settings_with(network={"name": "mlp", "widths": [2**29]}), "expected (none|F32)"),
        (settings_with(kernel={"name": "polynomial", "degree": 10**15}), "kernel.degree should be less"),
        (lambda t, m: m.pop("settings"), "expected the keys settings, facts, got facts"),
        (lambda t, m: m.update(extra=3), "expected the keys settings, facts, got settings, facts, extra"),
        (lambda t, m: m.update(facts=[1]), "cannot be used"),
        (settings_with(extra=1), "extra: there is no such setting"),
        (settings_with(kernel={"_target_": "os.system"}), "there is no kernel None"),
        (settings_with(kernel={"name": "rbf", "_target_": "os.system"}), "no such setting"),
        (settings_with(kernel={"name": "rbf", "gamma": "${oc.env:HOME}"}), "gamma should be a valid number"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(file: Path, mutate: Mutation, said: str) -> None:
    """The checksums of these files are correct."""
    change(file, mutate)
    refused(file, said)


def change(file: Path, mutate: Mutation) -> None:
    """Change the tensors and metadata of a model file, and update its checksum."""
    tensors, metadata = contents(file)
    content = json.loads(metadata["nsvm-model-3"])
    del content["sha256"]
    mutate(tensors, content)
    header = json.dumps({"sha256": BLANK, **content})
    write_with_checksum(
        file, save({name: t.contiguous() for name, t in tensors.items()}, {"nsvm-model-3": header})
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Expecting value"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "recursion"),
        (f'{{"sha256": "{BLANK}", "facts": NaN, "settings": {{}}}}', "expected JSON objects"),
        ('{"sha256": 3}', "no checksum"),
    ],
)
def test_malformed_metadata_are_refused(file: Path, text: str, said: str) -> None:
    write_with_checksum(file, save(contents(file)[0], {"nsvm-model-3": text}))
    refused(file, said)


def write_with_checksum(file: Path, data: bytes) -> None:
    """Write ``data`` to a file, and replace the blank checksum with the correct one."""
    file.write_bytes(data.replace(BLANK.encode(), hashlib.sha256(data).hexdigest().encode(), 1))


def test_a_header_that_promises_more_than_the_file_holds(file: Path) -> None:
    """Sizes in the header are compared with the size of the file before memory is allocated."""
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    for change in ({"shape": [10**9, 6]}, {"data_offsets": [0, 10**9]}, {"dtype": "BF16"}, {"shape": [-1]}):
        text = json.dumps({**header, "z": {**header["z"], **change}}).encode()
        file.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
        refused(file, "cannot be read as a model file")


def test_no_pickle_anywhere() -> None:
    package = Path(__file__).parents[2] / "nsvm_cli"
    for file in package.rglob("*.py"):
        found = re.search(r"\bpickle\b|torch\.load|np\.load|instantiate\(|import joblib", file.read_text())
        assert not found or "No pickle" in file.read_text(), f"{file.name}: {found}"
