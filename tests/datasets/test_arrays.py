"""Samples in files of arrays: which arrays are accepted, and how they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from nsvm_cli.datasets import load_data, scaling
from nsvm_cli.datasets.base import ScalingKind
from nsvm_cli.datasets.scaling import fit_scaling
from nsvm_cli.errors import InputError
from nsvm_cli.runs.open_model import evaluate_model, open_model
from tests.small_runs import small_run

RNG = np.random.default_rng(0)
TABLE, IMAGES = RNG.normal(size=(60, 4)), RNG.integers(256, size=(60, 1, 8, 8), dtype=np.uint8)


def section(folder: Path, x: Any, y: Any, **settings: Any) -> dict[str, Any]:
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    return {"name": "npy", "path": str(folder / "x.npy"), "labels": str(folder / "y.npy"), **settings}


@pytest.mark.parametrize(
    ("x", "y", "classes"),
    [
        (TABLE, np.arange(60) % 3, ("0", "1", "2")),
        (TABLE.astype(np.float32), np.arange(60) % 2 == 1, ("False", "True")),
        (np.arange(240).reshape(60, 4), np.array(["no", "yes"] * 30), ("no", "yes")),
        (IMAGES, np.array([7, 5], np.uint8).repeat(30), ("5", "7")),
    ],
)
def test_classes(x: Any, y: Any, classes: tuple[str, ...], tmp_path: Path) -> None:
    data = load_data(section(tmp_path, x, y), seed=0)
    assert data.task.classes == classes
    np.testing.assert_array_equal(data.samples.x, x)
    names = np.array(classes)[data.task.index(data.samples.y).astype(int)]
    np.testing.assert_array_equal(names, y.astype(str))
    assert data.global_scaling == (x is IMAGES)
    assert (data.samples.x.dtype == np.uint8) == (x is IMAGES)


def test_real_targets_and_a_test_set(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    test = section(tmp_path / "more", TABLE[:7], TABLE[:7, 0])
    files = {"test_path": test["path"], "test_labels": test["labels"]}
    data = load_data(section(tmp_path, TABLE, TABLE[:, 0], **files), 0, "regression")
    assert data.splits.sizes == {"train": 60, "validation": 0, "test": 7, "all": 67}
    np.testing.assert_array_equal(data.splits["test"].x, TABLE[:7])
    np.save(tmp_path / "more" / "x.npy", TABLE[:7, :3])
    with pytest.raises(InputError, match=r"test_path=.*x.npy: expected samples of shape \(4,\), as in"):
        load_data(section(tmp_path, TABLE, TABLE[:, 0], **files), 0, "regression")


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_files_of_several_arrays(ending: str, tmp_path: Path) -> None:
    grey, file = IMAGES[:, 0], tmp_path / f"a:b.{ending}"
    arrays = {"x": grey, "y": (np.arange(60) % 2)[:, None]}
    np.savez_compressed(file, **arrays) if ending == "npz" else save_file(arrays, file)
    named = {"name": "npy", "path": f"{file}:x", "labels": f"{file}:y"}
    data = load_data(named, seed=0)
    np.testing.assert_array_equal(data.samples.x, IMAGES)
    np.testing.assert_array_equal(data.samples.y, np.tile([-1, 1], 30))
    for path in (str(file), f"{file}:z"):
        with pytest.raises(InputError, match=r"expected the name of an array in the file; .* names x, y$"):
            load_data({**named, "path": path}, seed=0)
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(InputError, match="cannot be read as an array"):
        load_data(named, seed=0)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_channels_of_images_may_be_first_or_last(channels: int, tmp_path: Path) -> None:
    x = RNG.integers(256, size=(60, channels, 8, 9), dtype=np.uint8)
    for array in (x, np.moveaxis(x, 1, -1)):
        data = load_data(section(tmp_path, array, np.arange(60) % 2), seed=0)
        np.testing.assert_array_equal(data.samples.x, x)
        assert data.splits["train"].x[:].equal(torch.from_numpy(x[data.splits.rows["train"]]))
        data = load_data(section(tmp_path, array / 255, np.arange(60) % 2), seed=0)
        np.testing.assert_array_equal(data.samples.x, x / 255)


@pytest.mark.parametrize(
    ("algorithm", "m", "side"),
    [
        *(({"name": "alg3", "steps": 30}, 2000, 12), ({"name": "alg4", "steps": 30}, 2000, 12)),
        # with many samples, the bits of svc depend on the number of kernel rows that fit
        ({"name": "svc", "virtual": True}, 90, 80),
    ],
    ids=["alg3", "alg4", "svc"],
)
def test_images_that_exceed_the_memory_budget_give_the_same_bits(
    algorithm: dict[str, Any], m: int, side: int, tmp_path: Path
) -> None:
    x = np.random.default_rng(1).integers(256, size=(m, 1, side, side), dtype=np.uint8)
    dataset, bits = section(tmp_path, x, x[:, 0, 0, 0] > 127, validation=m // 20), []
    for budget in (1, 1024):
        same = {"algorithm": algorithm, "dataset": dataset, "engine": "torch"}
        result = small_run(tmp_path / str(budget), **same, memory_budget=budget)
        file, model = open_model(tmp_path / str(budget))
        assert model.metadata.shape == (1, side, side)
        assert evaluate_model(file, model, None, None, {})["accuracy"] == result["validation_accuracy"]
        metrics = {name: value for name, value in result.items() if name.endswith(("accuracy", "ment"))}
        bits.append((load_file(tmp_path / str(budget) / "final.safetensors"), metrics))
    (few, few_metrics), (many, many_metrics) = bits
    assert few_metrics == many_metrics
    assert all(few[name].tobytes() == many[name].tobytes() for name in {**few, **many})


@pytest.mark.parametrize("kind", ["standard", "channels", "minmax", "none"])
def test_blocks_of_images_are_scaled_like_all_images(
    kind: ScalingKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = RNG.integers(256, size=(600, 3, 4, 5), dtype=np.uint8)
    mapped = load_data(section(tmp_path, x, np.arange(600) % 2), seed=0).splits["train"].x
    whole = fit_scaling(mapped[:], True, kind)
    monkeypatch.setattr(scaling, "WHOLE", 0)
    blocks = fit_scaling(mapped, True, kind)
    torch.testing.assert_close(blocks.mean, whole.mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(blocks.std, whole.std, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (TABLE[:, 0], np.arange(60), r"dataset.path: expected numbers of shape \(m, ...\), got float64 of"),
        (TABLE.astype(str), np.arange(60), "dataset.path: expected numbers"),
        (
            TABLE,
            np.arange(59),
            r"dataset.labels: .* of shape \(60,\), as dataset.path has 60 samples, got int64 of",
        ),
        (TABLE, np.array([None] * 60), "dataset.labels=.*y.npy cannot be read as an array: "),
        (TABLE, TABLE[:, 0], "the labels of .* are real targets; set task=regression"),
        (TABLE * np.nan, np.arange(60) % 2, "x.npy: sample 1: expected finite features"),
    ],
)
def test_other_arrays_are_refused(x: Any, y: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_data(section(tmp_path, x, y), seed=0)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    good = section(tmp_path, TABLE, np.arange(60) % 2)
    (tmp_path / "text.npy").write_text("1,2,3")
    for path, reason in (("nowhere.npy", "No such file"), ("text.npy", "magic string"), ("", "")):
        with pytest.raises(InputError, match=rf"cannot be read as an array: .*{reason}"):
            load_data({**good, "path": str(tmp_path / path)}, seed=0)
    with pytest.raises(InputError, match=r"dataset.test_labels=None cannot be read"):
        load_data({**good, "test_path": good["path"]}, seed=0)
