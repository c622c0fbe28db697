"""Images of any size in a folder for each class."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from nsvm_cli.datasets.image_folder import read_image
from nsvm_cli.datasets.torchvision_import import import_torchvision
from nsvm_cli.datasets.unlabelled import blocks
from nsvm_cli.errors import InputError
from tests.cli.process import nsvm, trained
from tests.datasets.helpers import load, refusal

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dark cats and bright dogs, some of them wide and some of them high."""
    folder, rng = tmp_path_factory.mktemp("pets"), np.random.default_rng(0)
    for name, mean in (("cat", 60), ("dog", 190)):
        (folder / name).mkdir()
        for n in range(20):
            pixels = mean + rng.integers(-40, 40, (30 + n, 50 - n, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{n}.png")
    return folder


def test_images_are_those_that_torchvision_scales_and_cuts(pets: Path) -> None:
    datasets, v2 = map(import_torchvision, ("datasets", "transforms.v2"))
    data = load("image_folder", path=str(pets), size=24)
    assert data.task.classes == ("cat", "dog")
    ours = data.splits["all"].x
    assert ours.shape == (40, 3, 24, 24)
    theirs = datasets.ImageFolder(pets, v2.Compose([v2.Resize(24), v2.CenterCrop(24), v2.PILToTensor()]))
    away = torch.stack([image for image, _ in theirs]).double() - ours.double()
    assert away.abs().mean() < 8, "the squares differ by less than a pixel"
    assert load("image_folder", path=str(pets), grey=True, size=8).splits["all"].x.shape == (40, 1, 8, 8)


def test_a_run_predicts_for_images_of_any_size(pets: Path, tmp_path: Path) -> None:
    words = ["dataset=image_folder", f"dataset.path={pets}", "dataset.size=20", "network=mlp"]
    words += ["algorithm.steps=40", "algorithm.solver_steps=200", "curves=false"]
    run, result = trained(*words, cwd=tmp_path)
    assert result["test_accuracy"] == 1
    nsvm("predict", run, pets / "dog", "--output", "dogs.csv", cwd=tmp_path, code=0)
    predicted = pd.read_csv(tmp_path / "dogs.csv")
    assert len(predicted) == 20
    assert (predicted["prediction"] == "dog").mean() > 0.9


def test_transparency_is_left_out_and_16_bits_are_refused(pets: Path, tmp_path: Path) -> None:
    clear, opaque, deep = tmp_path / "clear.png", tmp_path / "opaque.png", tmp_path / "deep.png"
    with Image.open(pets / "cat" / "0.png") as image:
        image.save(opaque)
        image.putalpha(0)
        image.save(clear)
    seen, expected = (read_image(file, (3, 9, 9), squared=True, remarks={}) for file in (clear, opaque))
    np.testing.assert_array_equal(seen, expected)
    Image.fromarray(np.full((9, 9), 300, np.uint16)).save(deep)
    with pytest.raises(InputError, match=r"deep\.png has pixels of mode I;16: save it as 8-bit grey or RGB"):
        read_image(deep, (3, 9, 9), squared=True, remarks={})


def test_what_is_no_folder_of_images(pets: Path, tmp_path: Path) -> None:
    assert "dataset.path=nowhere: expected a folder for each class: " in refusal(
        "image_folder", path="nowhere"
    )
    for name in ("cat", "hen"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(b"no image")
    assert "1.png cannot be read as an image: " in refusal("image_folder", path=str(tmp_path))
    said = refusal("image_folder", path=str(pets), test_path=str(tmp_path))
    assert f"expected the classes of {pets}, got cat, hen" in said


def test_only_formats_of_pixels_are_read(pets: Path, tmp_path: Path) -> None:
    """For EPS, Pillow would start Ghostscript, whatever the name of the file."""
    (tmp_path / "cat").mkdir()
    with Image.open(pets / "cat" / "0.png") as image:
        image.save(tmp_path / "cat" / "0.png", "EPS")
    said = refusal("image_folder", path=str(tmp_path))
    assert "0.png cannot be read as an image: it does not begin like one" in said


def test_what_is_read_inexactly_is_said(pets: Path, tmp_path: Path) -> None:
    """Of an animation a frame is read; a photo with thumbnails (MPO) is none."""
    for name in ("cat", "hen"):
        (tmp_path / name).mkdir()
        for n in range(4):
            shutil.copy(pets / "cat" / f"{n}.png", tmp_path / name)
    frames = [Image.new("RGB", (9, 9), colour) for colour in ("red", "blue")]
    several = {"save_all": True, "append_images": frames[1:]}
    frames[0].save(tmp_path / "cat" / "a.gif", **several)
    frames[0].save(tmp_path / "cat" / "b.jpg", "MPO", **several)
    frames[0].convert("CMYK").save(tmp_path / "hen" / "c.jpg")
    remarks = load("image_folder", path=str(tmp_path), size=9).remarks()
    cmyk = f"{tmp_path / 'hen' / 'c.jpg'} has CMYK colours: RGB is computed without their profile"
    assert remarks == [
        f"{tmp_path / 'cat' / 'a.gif'} has several frames: of such images the first is used",
        cmyk,
    ]
    said = list[str]()
    for folder in ("cat", "hen"):
        assert sum(
            len(x) for x, _ in blocks(tmp_path / folder, (3, 9, 9), None, squared=True, say=said.append)
        )
    assert said == remarks
