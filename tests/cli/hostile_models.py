"""Model files of a few kilobytes or megabytes whose sizes multiply: believed, each would take gigabytes.

Each is a model that could have been trained, with a correct checksum and sizes of its own choice; its tensors
hold zeros, and mostly there are no support vectors, so that hardly anything has to be in the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save
from torch import Tensor

from nsvm_cli.models.networks import empty_network
from nsvm_cli.storage.tensor_file import BLANK
from nsvm_cli.tasks import task_for
from tests.artifacts.test_model_file import write_with_checksum
from tests.small_runs import SETTINGS

ROWS, IMAGES = 20_000, 12
"""Samples in a table and in a folder: those of somebody who wants to know what such a model says."""


@dataclass(frozen=True, kw_only=True)
class Hostile:
    """What is in a model file, and what it is used on.

    Attributes:
        on: what ``make_samples`` writes, for ``nsvm predict``; or the words of another command.
        classes: their names, or how many.
        n: the features; None for as many as a sample has values.
        s: the support vectors.
    """

    on: str | Sequence[str] = "table.csv"
    shape: tuple[int, ...] = (2,)
    classes: int | Sequence[str] = 2
    network: dict[str, Any] = field(default_factory=lambda: {"name": "identity"})
    kernel: dict[str, Any] = field(default_factory=lambda: {"name": "linear"})
    n: int | None = None
    s: int = 0
    one_vs_one: bool = False
    calibration: str | None = None
    dtype: str = "float32"
    columns: Any = None
    facts: dict[str, Any] = field(default_factory=dict)
    dataset: dict[str, Any] = field(default_factory=lambda: {"name": "csv", "path": "labelled.csv"})
    change: Callable[[dict[str, Any]], object] = lambda content: None

    @property
    def names(self) -> list[str]:
        """The names of the classes."""
        return [*map(str, range(self.classes))] if isinstance(self.classes, int) else [*self.classes]

    def write(self, file: Path) -> None:
        """Write the model file."""
        dtype, C = getattr(torch, self.dtype), len(self.names)
        task = task_for(self.names)
        outputs = (C * (C - 1) // 2,) if self.one_vs_one else task.outputs
        n = int(np.prod(self.shape)) if self.n is None else self.n
        s, double = (self.s,), torch.float64
        theta = empty_network(self.network, self.shape, task.outputs).state_dict()
        tensors = {f"theta.{name}": torch.zeros(t.shape, dtype=dtype) for name, t in theta.items()}
        tensors |= {"z": torch.zeros(self.s, n, dtype=dtype), "alpha": torch.ones(*s, *outputs, dtype=dtype)}
        tensors["bias" if outputs else "y"] = torch.ones(outputs or s, dtype=dtype)
        tensors |= {"mean": torch.zeros((), dtype=double), "std": torch.ones((), dtype=double)}
        if self.calibration:
            tensors["sigmoids"] = torch.ones(2, *task.outputs, dtype=double)
        settings = {"dataset": self.dataset, "network": self.network, "kernel": self.kernel}
        settings |= {"dtype": self.dtype, "calibration": self.calibration, "memory_budget": 10**6}
        facts = {"scale": 1.0, "bias": 0.0, "shape": self.shape, "classes": self.names, "steps": 1}
        facts |= {"one_vs_one": self.one_vs_one, "source": "x", "sha256": BLANK, "columns": self.columns}
        content = {"settings": {**SETTINGS, **settings}, "facts": facts | self.facts}
        self.change(content)
        write(file, tensors, content)

    def command(self, file: Path) -> list[str]:
        """Return the words of the command that uses it."""
        if isinstance(self.on, str):
            return ["predict", file.name, self.on, "--output", "out.csv"]
        command, *words = self.on
        return [command, file.name, *words]


def write(file: Path, tensors: dict[str, Tensor], content: dict[str, Any]) -> None:
    text = json.dumps({"sha256": BLANK, **content})
    write_with_checksum(file, save(tensors, {"nsvm-model-2": text}))


EVALUATE = ("evaluate", "split=all")
LONG = [f"{i}{'x' * 3900}" for i in range(1000)]
CATEGORIES = [*map("".join, product(ascii_lowercase, repeat=2))] + [f"t{i}" for i in range(300)]
MLP, CNN = ({"name": name} for name in ("mlp", "cnn"))
MiB = 2**20


def nested(text: str) -> Callable[[dict[str, Any]], object]:
    """Return a change that puts JSON into the facts, as long as a header can hold it."""
    values = [json.loads(text)] * (3 * MiB // (len(text) + 2))
    return lambda content: content["facts"].update(more=values)


HOSTILE: dict[str, Hostile] = {
    # outputs
    "pairs_400": Hostile(classes=400, one_vs_one=True, on="short.csv"),
    "pairs_2000": Hostile(classes=2000, one_vs_one=True, dtype="float64", on="few.csv"),
    "classes_10000": Hostile(classes=10_000, on="short.csv"),
    "classes_10000_evaluated": Hostile(classes=10_000, dtype="float64", on=EVALUATE),
    "sigmoids_10000": Hostile(classes=10_000, on="short.csv", calibration="sigmoid"),
    "long_names": Hostile(classes=LONG),
    "head_10000": Hostile(
        classes=10_000, network={**MLP, "widths": [3], "head": True}, n=10_000, on="short.csv"
    ),
    # samples
    "pixels": Hostile(shape=(1, 2048, 2048), on="images2048"),
    "values": Hostile(shape=(2**24,), dtype="float64"),
    "columns_by_position": Hostile(shape=(2000,), on="wide.csv", dtype="float64"),
    # networks
    "hidden": Hostile(network={**MLP, "widths": [2**20, 1]}, n=1, on="short.csv"),
    "features": Hostile(network={**MLP, "widths": [2**20], "normalize": True}, n=2**20, on="some.csv"),
    "channels": Hostile(network={**CNN, "channels": [64, 1]}, shape=(1, 512, 512), n=125**2, on="images512"),
    "columns_of_convolutions": Hostile(
        network={**CNN, "channels": [10, 1]},
        shape=(1, 1024, 1024),
        n=253**2,
        on="images1024",
        dtype="float64",
    ),
    # support vectors
    "support_vectors": Hostile(s=2**20, kernel={"name": "rbf"}, on="some.csv"),
    "support_vectors_of_classes": Hostile(
        s=500, classes=10_000, kernel={"name": "laplacian"}, on="short.csv"
    ),
    # columns and categories
    "categories": Hostile(columns={"a": CATEGORIES[:900]}, shape=(900,), on="text.csv"),
    "columns": Hostile(columns={f"{i:x}": 1.0 for i in range(120_000)}, shape=(120_000,)),
    "wrong_columns": Hostile(columns={f"{i:x}": [] for i in range(200_000)}),
    # JSON
    "lists": Hostile(change=nested("[]")),
    "drop": Hostile(dataset={"name": "csv", "path": "labelled.csv", "drop": [1] * 700_000}),
    "unknown": Hostile(facts={f"{i:x}": 1 for i in range(200_000)}),
}


def make_samples(folder: Path) -> None:
    """Write the samples that the models are used on: small files all of them."""
    rows = np.arange(ROWS)
    lines = "".join(f"{row % 7},{row % 5}\n" for row in rows)
    (folder / "table.csv").write_text(f"a,b\n{lines}")
    for name, length in ("short", 1000), ("some", 300), ("few", 20):
        (folder / f"{name}.csv").write_text(f"a,b\n{lines[: 4 * length]}")
    (folder / "labelled.csv").write_text("a,b,label\n" + "".join(f"{r % 7},{r % 5},{r % 2}\n" for r in rows))
    letters = [",".join(CATEGORIES[row % 900] for _ in range(10)) for row in rows]
    (folder / "text.csv").write_text("\n".join([",".join("abcdefghij"), *letters, ""]))
    wide = ",".join("1" * 2000)
    (folder / "wide.csv").write_text("\n".join([",".join(f"c{i}" for i in range(2000)), *[wide] * 2000, ""]))
    for size in (64, 512, 1024, 2048):
        (folder / f"images{size}").mkdir()
        for i in range(IMAGES if size > 64 else 100):
            Image.new("L", (size, size)).save(folder / f"images{size}" / f"{i:03}.png")
