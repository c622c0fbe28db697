"""Untrusted model files and run directories are refused in one line, and run no code."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save

from nsvm_cli.config.settings import plain
from nsvm_cli.datasets.image_files import MNIST
from nsvm_cli.errors import Interrupted
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage.run_directory import RunDirectory
from nsvm_cli.storage.tensor_file import BLANK
from tests.artifacts.test_model_file import contents, write_with_checksum
from tests.cli.witness import expect_refusals
from tests.runs.test_train import FakeSignals
from tests.small_runs import small_run, small_settings

Change = Callable[[dict[str, torch.Tensor], dict[str, Any]], object]


def setting(section: str, **values: object) -> Change:
    return lambda tensors, content: content["settings"][section].update(values)


def fact(**values: object) -> Change:
    return lambda tensors, content: content["facts"].update(values)


def table(path: str) -> Change:
    return lambda tensors, content: content["settings"].update(dataset={"name": "csv", "path": path})


def images(root: str) -> Change:
    def change(tensors: dict[str, torch.Tensor], content: dict[str, Any]) -> None:
        tensors.update({name: tensors[name].mean() for name in ("mean", "std")})
        content["settings"].update(dataset={"name": "mnist", "root": root})

    return change


def large_samples(tensors: dict[str, torch.Tensor], content: dict[str, Any]) -> None:
    content["settings"]["dataset"].update(samples=10**8)
    content["settings"].update(memory_budget=10**7)  # a file must not raise its own memory limit


def make_data(here: Path) -> None:
    """Create a named pipe, and files that are small on disk but large when read."""
    with (here / "sparse.csv").open("wb") as sparse:
        sparse.truncate(10**11)
    os.mkfifo(here / "fifo")
    mebibyte = b"1,1,1,1\n" * 2**17
    (here / "b.csv.gz").write_bytes(2000 * gzip.compress(mebibyte))  # gzip allows concatenation
    for root, target in (("sparse", "sparse.csv"), ("bombs", "b.csv.gz")):
        raw = here / root / "MNIST" / "raw"
        raw.mkdir(parents=True)
        for name in MNIST.sums:
            (raw / name).symlink_to(here / target)


REFUSED_CONTENT: dict[str, Change] = {
    "samples": setting("dataset", samples=10**8),
    "samples_and_budget": large_samples,
    "proc": table("/proc/self/pagemap"),
    "fifo": table("../data/fifo"),
    "folder": table("../data"),
    "sparse_table": table("../data/sparse.csv"),
    "sparse_images": images("../data/sparse"),
    "bomb_images": images("../data/bombs"),
    "target": setting("kernel", _target_="os.system", command="touch marker"),
    "target_name": setting("network", name="os.system"),
    "resolver": setting("kernel", gamma="${oc.env:SECRET}"),
    "resolver_create": setting("network", widths="${oc.create:{a: 1}}"),
    "plugin": lambda t, c: c["settings"].update(plugins=["evil"], kernel={"name": "evil"}),
    "optimizer": setting("optimizer", name="../../evil"),
    "algorithm": setting("algorithm", steps="__import__('os').system('touch marker')"),
    "wide": setting("network", widths=[2**31, 2**31]),
    "deep": setting("network", widths=[1] * 50_000),
    "degree": lambda t, c: c["settings"].update(kernel={"name": "polynomial", "degree": 10**18}),
    "image": fact(shape=[1, 2**20, 2**20]),
    "shape": fact(shape=[2**62]),
    "long": fact(source="x" * 500_000),
    "passwd": table("../../../../etc/passwd"),
    "endless": table("/dev/zero"),
    "mnist": lambda t, c: c["settings"].update(dataset={"name": "mnist", "root": "../../.."}),
    "device": lambda t, c: c["settings"].update(device="cuda:0; touch marker"),
    "nan": lambda t, c: t["z"].fill_(float("nan")),
    "extra": lambda t, c: t.update({"../../marker": torch.ones(3)}),
}


def header_of(text: str, rest: bytes = b"") -> bytes:
    return len(text.encode()).to_bytes(8, "little") + text.encode() + rest


def entry(shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


def empty_tensors(number: int) -> str:
    one = json.dumps(entry([0], 0, 0))
    return "{" + ", ".join(f'"t{i}": {one}' for i in range(number)) + "}"


REFUSED_FILES = {
    "pickle": lambda: b"\x80\x04cos\nsystem\n(S'touch marker'\ntR.",
    "endless_header": lambda: (2**63).to_bytes(8, "little") + b"{}",
    "million": lambda: header_of(empty_tensors(1_000_000)),
    "nested": lambda: header_of('{"a":' * 100_000),
    "gigantic": lambda: header_of(json.dumps({"z": entry([10**9, 10**9], 0, 4 * 10**18)})),
    "negative": lambda: header_of(json.dumps({"z": entry([-4, -4], 0, 64)}), bytes(64)),
    "overlapping": lambda: header_of(json.dumps({"a": entry([4], 0, 16), "b": entry([4], 0, 16)}), bytes(16)),
    "twice": lambda: header_of('{"__metadata__": {}, "__metadata__": {"nsvm-model-3": "{}"}}'),
    "wide_text": lambda: header_of("{}").replace(b"{}", "{}".encode("utf-16")),
    "digits": lambda: header_of(f'{{"a": {"9" * 100_000}}}'),
}


LAUGHS = "\n".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 12))
CONFIGS = {
    "constructor": "seed: !!python/object/apply:os.system ['touch marker']",
    "bomb": f"l0: &l0 [1]\n{LAUGHS}",
    "nested": f"seed: {'[' * 100_000}",
    "large": "seed: [" + "1, " * 1_000_000 + "1]",
    "list": "[1, 2]",
    "digits": f"seed: 0x{'f' * 20_000}",
    "target": "_target_: os.system",
    "resolver": "seed: ${oc.env:SECRET}",
}


LARGE_SETTINGS: dict[str, dict[str, Any]] = {
    "samples": {"dataset": {"name": "ringnorm", "samples": 10**8}},
    "budget": {"dataset": {"name": "ringnorm", "samples": 10**12}, "memory_budget": 10**7},
    "pagemap": {"dataset": {"name": "csv", "path": "/proc/self/pagemap"}},
}


def make_files(here: Path, model: Path) -> None:
    for name, change in REFUSED_CONTENT.items():
        tensors, metadata = contents(model)
        content = json.loads(metadata["nsvm-model-3"])
        del content["sha256"]
        change(tensors, content)
        text = json.dumps({"sha256": BLANK, **content})
        write_with_checksum(here / f"{name}.safetensors", save(tensors, {"nsvm-model-3": text}))
    for name, make in REFUSED_FILES.items():
        (here / f"{name}.safetensors").write_bytes(make())
    with (here / "sparse.safetensors").open("wb") as sparse:
        sparse.write(header_of(json.dumps({"z": entry([2**38], 0, 2**40)})))
        sparse.truncate(2**40)
    os.mkfifo(here / "pipe.safetensors")
    (here / "zero.safetensors").symlink_to("/dev/zero")


def make_run_directories(here: Path) -> None:
    recorded = plain(small_settings())
    large = {f"large_{name}": yaml.safe_dump({**recorded, **c}) for name, c in LARGE_SETTINGS.items()}
    for name, text in (CONFIGS | large).items():
        (here / name).mkdir()
        (here / name / "config.yaml").write_text(text)
    (here / "sparse").mkdir()
    with (here / "sparse" / "config.yaml").open("wb") as sparse:
        sparse.truncate(10**11)
    settings = small_settings(checkpoint={"every": 1})
    with RunDirectory(here / "evil", plain(settings)) as run, pytest.raises(Interrupted):
        train_run(prepare(settings), run, [stop := FakeSignals(pauses=30)], stop)
    config = here / "evil" / "config.yaml"
    config.write_text(config.read_text().replace("plugins: []", "plugins: [evil]").replace("rbf", "evil"))


def test_what_a_stranger_has_made_is_refused(tmp_path: Path) -> None:
    small_run(tmp_path / "run")
    for name in ("files", "runs", "data"):
        (tmp_path / name).mkdir()
    make_data(tmp_path / "data")
    make_files(tmp_path / "files", tmp_path / "run" / "final.safetensors")
    make_run_directories(tmp_path / "runs")
    files, runs = (sorted((tmp_path / name).iterdir()) for name in ("files", "runs"))
    assert len(files) == len(REFUSED_CONTENT) + len(REFUSED_FILES) + 3
    assert len(runs) == len(CONFIGS) + len(LARGE_SETTINGS) + 2
    commands = [(tmp_path / "files", ["evaluate", path.name]) for path in files]
    commands += [(tmp_path / "runs", ["train", f"resume={path.name}"]) for path in runs]
    expect_refusals(commands, tmp_path)
