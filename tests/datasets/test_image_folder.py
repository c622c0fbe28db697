"""Images of any size in a folder for each class."""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image, ImageColor, ImageOps

from nsvm_cli.datasets import Data
from nsvm_cli.datasets.image_folder import FORMATS, ImageReader
from nsvm_cli.datasets.torchvision_import import import_torchvision
from nsvm_cli.datasets.unlabelled import blocks
from nsvm_cli.errors import InputError
from nsvm_cli.output import saying
from tests.cli.process import nsvm, trained
from tests.datasets.helpers import load, refusal


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write dark images of cats and bright images of dogs, some of them wide and some of them tall."""
    folder, rng = tmp_path_factory.mktemp("pets"), np.random.default_rng(0)
    for name, mean in (("cat", 60), ("dog", 190)):
        (folder / name).mkdir()
        for n in range(20):
            pixels = mean + rng.integers(-40, 40, (30 + n, 50 - n, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{n}.png")
    return folder


def loaded(folder: Path, **settings: object) -> Data:
    return load("image_folder", path=str(folder), **{"size": 8, **settings})


def refused(folder: Path, **settings: object) -> str:
    return refusal("image_folder", path=str(folder), **settings)


def copied(pets: Path, folder: Path) -> Path:
    return Path(shutil.copytree(pets, folder / "pets"))


def test_images_are_those_that_torchvision_scales_and_cuts(pets: Path) -> None:
    datasets, v2 = map(import_torchvision, ("datasets", "transforms.v2"))
    data = loaded(pets, size=24)
    assert data.task.classes == ("cat", "dog")
    ours = data.splits["all"].x
    assert ours.shape == (40, 3, 24, 24)
    theirs = datasets.ImageFolder(pets, v2.Compose([v2.Resize(24), v2.CenterCrop(24), v2.PILToTensor()]))
    away = torch.stack([image for image, _ in theirs]).double() - ours.double()
    assert away.abs().mean() < 8, "pixels differ by more than a shift of one pixel explains"
    assert loaded(pets, grey=True).splits["all"].x.shape == (40, 1, 8, 8)


def test_a_run_predicts_for_images_of_any_size(pets: Path, tmp_path: Path) -> None:
    words = ["dataset=image_folder", f"dataset.path={pets}", "dataset.size=20", "network=mlp"]
    words += ["algorithm.steps=40", "algorithm.solver_steps=200", "engine=torch", "curves=false"]
    run, result = trained(*words, cwd=tmp_path)
    assert result["test_accuracy"] == 1
    nsvm("predict", run, pets / "dog", "--output", "dogs.csv", cwd=tmp_path, code=0)
    predicted = pd.read_csv(tmp_path / "dogs.csv")
    assert len(predicted) == 20
    assert (predicted["prediction"] == "dog").mean() > 0.9


def read(file: Path, shape: tuple[int, ...] = (3, 9, 9), background: str | None = "white") -> np.ndarray:
    return ImageReader(shape, background)(file)


@pytest.mark.parametrize("background", ["white", "black", "#808080"])
def test_transparent_pixels_are_laid_on_a_background(tmp_path: Path, background: str) -> None:
    """Icons often have black shapes on transparent black, and differ only in transparency."""
    for name, box in (("circle", (2, 2, 6, 6)), ("square", (0, 0, 4, 4))):
        (tmp_path / name).mkdir()
        for n in range(3):
            image = Image.new("RGBA", (9, 9), (0, 0, 0, 0))
            image.paste((0, 0, 0, 255), box)
            image.save(tmp_path / name / f"{n}.png")
    data = loaded(tmp_path, size=9, background=background)
    x = data.splits["all"].x
    beneath = torch.tensor(ImageColor.getrgb(background), dtype=torch.uint8)
    assert torch.equal(x[0, :, 8, 8], beneath)
    assert torch.equal(x[0, :, 3, 3], torch.zeros(3, dtype=torch.uint8))
    [transparent, equal] = data.remarks()[:2]
    assert transparent.startswith("6 images, such as ")
    assert transparent.endswith(f"transparent pixels; the background was filled with {background}")
    assert equal == f"{4 if background != 'black' else 5} of 6 images have the same pixels as another image"
    palette = Image.new("RGBA", (9, 9), (0, 0, 0, 0)).convert("P")
    palette.save(tmp_path / "p.png", transparency=0)
    np.testing.assert_array_equal(read(tmp_path / "p.png", background=background)[:, 0, 0], beneath)


@pytest.mark.parametrize("ending", [*FORMATS])
def test_formats(tmp_path: Path, ending: str) -> None:
    """Suffixes may be in upper case, and prediction reads the same pixels as training."""
    image = Image.linear_gradient("L").resize((48, 48)).convert("1" if ending == ".pbm" else "RGB")
    image = image.convert("L") if ending == ".pgm" else image
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for n in range(3):
            image.rotate(90 * n).save(tmp_path / name / f"{n}{ending.upper()}", FORMATS[ending])
    data = loaded(tmp_path, size=24)
    x = data.splits["all"].x
    assert x.shape == (6, 3, 24, 24)
    np.testing.assert_allclose(x[0, 0].double().mean(), 127, atol=3)
    assert x[0, 0, 0].double().mean() < 40 < 200 < x[0, 0, -1].double().mean()
    [(again, beside)] = blocks(tmp_path, (3, 24, 24), None, background="white")
    assert torch.equal(again, x)
    assert beside["file"][3] == f"b/0{ending.upper()}"


def test_pixels_of_16_bits_are_scaled(tmp_path: Path) -> None:
    for mode in (np.uint16, np.int32):
        values = np.linspace(0, 65535, 81).reshape(9, 9).astype(mode)
        Image.fromarray(values).save(tmp_path / "deep.tif")
        reader = ImageReader((1, 9, 9), "white")
        np.testing.assert_array_equal(reader(tmp_path / "deep.tif")[0], values // 257)
        assert reader.remarks == (
            f"{tmp_path / 'deep.tif'} has 16 bits per channel, which were scaled to 8 bits",
        )
    for values, says in (
        (np.full((9, 9), 70000, np.int32), "65535"),
        (np.ones((9, 9), np.float32), "floating-point"),
    ):
        Image.fromarray(values).save(tmp_path / "deep.tif")
        with pytest.raises(InputError, match=says):
            read(tmp_path / "deep.tif")


def test_a_large_photograph_looks_as_if_it_was_decoded_whole(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    waves = np.add.outer(np.sin(np.arange(600) / 45), np.cos(np.arange(800) / 35))
    pixels = (120 + 50 * waves)[..., None] + rng.integers(-5, 5, (600, 800, 3))
    image = Image.fromarray(pixels.astype(np.uint8))
    image.save(tmp_path / "whole.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # the image must be rotated by 90 degrees
    image.rotate(90, expand=True).save(tmp_path / "turned.jpg", quality=95, exif=exif)
    whole, turned = (read(tmp_path / name, (3, 60, 80)).astype(int) for name in ("whole.png", "turned.jpg"))
    assert np.abs(whole - turned).mean() < 2


def test_height_and_width(pets: Path) -> None:
    x = loaded(pets, size=[20, 36]).splits["all"].x
    assert x.shape == (40, 3, 20, 36)
    with Image.open(pets / "cat" / "0.png") as image:
        theirs = np.asarray(ImageOps.fit(image, (36, 20), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(x[0], theirs.transpose(2, 0, 1))


def test_splits_in_a_folder_are_recognised(pets: Path, tmp_path: Path) -> None:
    """A test set may lack classes. A test folder without class folders, as in competitions, is skipped."""
    for split in ("Train", "val", "test"):
        shutil.copytree(pets, tmp_path / split)
    shutil.rmtree(tmp_path / "test" / "cat")
    whole = loaded(pets)
    data = loaded(tmp_path)
    assert data.task.classes == ("cat", "dog")
    assert data.splits.sizes == {"train": 40, "validation": 40, "test": 20, "all": 100}
    assert torch.equal(data.splits["train"].x, whole.splits["all"].x)
    named = {"path": "Train", "validation_path": "val", "test_path": "test"}
    stated = load("image_folder", size=8, **{key: str(tmp_path / name) for key, name in named.items()})
    assert stated.samples.sha256 == data.samples.sha256
    assert f"found splits: train in {tmp_path / 'Train'}, " in data.remarks()[0]
    shutil.rmtree(tmp_path / "test")
    shutil.copytree(pets / "dog", tmp_path / "test")
    data = loaded(tmp_path)
    assert data.remarks()[0] == f"{tmp_path / 'test'} was skipped because it has no class folders"
    assert data.splits.sizes["validation"] == 40
    shutil.copytree(pets / "dog", tmp_path / "plane")
    says = "found Train, plane, test, val; to choose the training folder, set "
    assert f"{says}dataset.path={tmp_path / 'Train'}" in refused(tmp_path)
    shutil.copytree(pets, tmp_path / "other")
    (tmp_path / "other" / "cat").rename(tmp_path / "other" / "owl")
    says = f"{tmp_path / 'other'}: expected only classes of the training folder {pets}, also found owl"
    assert refused(pets, test_path=str(tmp_path / "other")) == says


@pytest.mark.parametrize(
    "names", [("training-images", "test-images"), ("Train_Data", "Test_Data"), ("images train", "images val")]
)
def test_folders_of_splits_may_have_longer_names(pets: Path, tmp_path: Path, names: tuple[str, str]) -> None:
    for name in names:
        shutil.copytree(pets, tmp_path / name)
    data = loaded(tmp_path)
    assert data.task.classes == ("cat", "dog")
    assert f"found splits: train in {tmp_path / names[0]}, " in data.remarks()[0]
    (tmp_path / names[1]).rename(tmp_path / "train_station")
    assert {*loaded(tmp_path).task.classes} == {names[0], "train_station"}


def test_hidden_and_other_files_are_no_images(pets: Path, tmp_path: Path) -> None:
    folder = copied(pets, tmp_path)
    for name in ("cat/._0.png", ".DS_Store", "cat/.ipynb_checkpoints/0.png", "cat/notes.txt", "dog/a.svg"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("no image")
    for name in ("dog/more", "__MACOSX"):
        shutil.copytree(pets / "dog", folder / name)
    (folder / "hen").mkdir()
    shutil.copy(pets / "dog" / "0.png", folder)
    data = loaded(folder)
    assert (data.task.classes, data.splits.sizes["all"]) == (("cat", "dog"), 60)
    assert data.remarks()[:3] == [
        f"{folder}: skipped 1 images that are not in a class folder",
        f"{folder}: skipped files in other formats: 1 .txt, 1 .svg",
        f"{folder}: found no images in the folders hen",
    ]
    assert sum(len(x) for x, _ in blocks(folder, (3, 8, 8), None, background="white")) == 61


@pytest.mark.parametrize("named", ["by path", "by name"])
def test_a_table_of_labels(pets: Path, tmp_path: Path, named: str) -> None:
    folder, listed = tmp_path / "flat", tmp_path / "labels.csv"
    folder.mkdir()
    files = [file.relative_to(pets) for file in sorted(pets.rglob("*.png"))]
    for file in files:
        shutil.copy(pets / file, folder / f"{file.parent}{file.name}")
    names = [f"{file.parent}{file.name if named == 'by path' else file.stem}" for file in files]
    table = pd.DataFrame({"file": names, "label": [file.parent.name for file in files]})
    table.iloc[1:].to_csv(listed, index=False)
    data = loaded(folder, labels=str(listed))
    assert torch.equal(data.splits["all"].x, loaded(pets).splits["all"].x[1:])
    assert f"{folder}: skipped 1 images that are not listed in {listed}" in data.remarks()
    table.assign(file="away.png").to_csv(listed, index=False)
    said = refused(folder, labels=str(listed))
    assert said.startswith("40 of 40 images cannot be read; set dataset.skip_unreadable=true to skip them: ")
    assert "away.png cannot be read as an image: No such file or directory" in said
    table.rename(columns={"label": "animal"}).to_csv(listed, index=False)
    says = f"dataset.labels: {listed} has no column 'label'; expected one of"
    assert refused(folder, labels=str(listed)).startswith(says)


def test_a_table_of_labels_names_images_in_subfolders(pets: Path, tmp_path: Path) -> None:
    """The name of a file suffices unless several files have this name."""
    folder, table = tmp_path / "all", tmp_path / "labels.csv"
    for file in pets.rglob("*.png"):
        (folder / file.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / file.parent.name / f"{file.parent.name}{file.name}")
    names = [file.name for file in sorted(folder.rglob("*.png"))]
    pd.DataFrame({"file": names, "label": [name[:3] for name in names]}).to_csv(table, index=False)
    x = loaded(folder, labels=str(table)).splits["all"].x
    assert torch.equal(x, loaded(folder).splits["all"].x)
    shutil.copy(folder / "dog" / "dog1.png", folder / "cat")
    several = f"{folder / 'cat' / 'dog1.png'}, {folder / 'dog' / 'dog1.png'}"
    says = f"dog1.png matches several files ({several}); give the path relative to {folder}"
    assert f"dataset.labels={table}: {says}" in refused(folder, labels=str(table))


def test_what_is_no_folder_of_images(pets: Path, tmp_path: Path) -> None:
    assert "dataset.path=nowhere does not exist: expected a folder of images" in refused(Path("nowhere"))
    assert "expected a folder of images for each class, found none" in refused(tmp_path)
    shutil.copy(pets / "dog" / "0.png", tmp_path)
    says = "found only 1 images outside class folders; set dataset.labels to a table of their"
    assert says in refused(tmp_path)
    shutil.copytree(pets, tmp_path / "data" / "all")
    path = tmp_path / "data" / "all"
    says = f"found only all; if the folders inside all are the classes, set dataset.path={path}"
    assert says in refused(tmp_path / "data")
    assert "there is no class 'hen'" in refused(pets, classes=["cat", "hen"])
    assert "background" in refused(pets, background="colourless")


def test_unreadable_images_are_listed_at_once(pets: Path, tmp_path: Path) -> None:
    """An EPS image is refused under any file name, because Pillow would run Ghostscript to read it."""
    folder = copied(pets, tmp_path)
    with Image.open(pets / "cat" / "0.png") as image:
        image.save(folder / "cat" / "1.png", "EPS")
    (folder / "dog" / "2.png").write_bytes((pets / "dog" / "2.png").read_bytes()[:200])
    said = refused(folder)
    assert said.startswith("2 of 40 images cannot be read; set dataset.skip_unreadable=true to skip them: ")
    assert f"{folder / 'cat' / '1.png'} cannot be read as an image: the image format is unknown" in said
    assert "2.png cannot be read as an image" in said
    data = loaded(folder, skip_unreadable=True)
    assert data.splits.sizes["all"] == 38
    assert "skipped unreadable images: 2" in data.remarks()
    said_after = list[str]()
    with saying(said_after.append):
        [(x, beside)] = blocks(folder, (3, 8, 8), None, background="white", skip=True)
    assert torch.equal(x, data.splits["all"].x)
    assert len(beside["file"]) == 38
    assert said_after == ["skipped unreadable images: 2"]


def test_what_is_read_inexactly_is_said(pets: Path, tmp_path: Path) -> None:
    """Only the first frame of an animation is read. A photo with thumbnails (MPO) is not an animation."""
    for name in ("cat", "hen"):
        (tmp_path / name).mkdir()
        for n in range(4):
            shutil.copy(pets / "cat" / f"{n}.png", tmp_path / name)
    frames = [Image.new("RGB", (9, 9), colour) for colour in ("red", "blue")]
    several = {"save_all": True, "append_images": frames[1:]}
    frames[0].save(tmp_path / "cat" / "a.gif", **several)
    frames[0].save(tmp_path / "cat" / "b.jpg", "MPO", **several)
    frames[0].convert("CMYK").save(tmp_path / "hen" / "c.jpg")
    remarks = loaded(tmp_path, size=9).remarks()
    assert remarks[:2] == [
        f"{tmp_path / 'hen' / 'c.jpg'} has CMYK colours, which were converted to RGB without colour profile",
        f"{tmp_path / 'cat' / 'a.gif'} has several frames; only the first frame is used",
    ]
    said = list[str]()
    with saying(said.append):
        found = [*blocks(tmp_path, (3, 9, 9), None, background="white")]
    assert sum(len(x) for x, _ in found) == 11
    assert said == remarks[:2]


def test_classes_of_one_image_are_named(pets: Path, tmp_path: Path) -> None:
    (hen := copied(pets, tmp_path) / "hen").mkdir()
    shutil.copy(pets / "dog" / "0.png", hen)
    says = "expected at least 2 samples of class hen, found 1; add 'dataset.classes=[cat,dog]' to remove the"
    assert says in refused(hen.parent)


def test_a_warning_of_pillow_blames_no_other_image(pets: Path, tmp_path: Path) -> None:
    file = copied(pets, tmp_path) / "dog" / "z.png"
    content = (pets / "cat" / "0.png").read_bytes()
    chunk = b"acTL" + bytes(8)  # declares an animation without frames
    chunk = len(chunk[4:]).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big")
    file.write_bytes(content[:33] + chunk + content[33:])
    [line] = [line for line in loaded(tmp_path / "pets").remarks() if "Pillow" in line]
    assert line == "Pillow warned about an image: Invalid APNG, will use default PNG image if possible"


def test_decoded_images_are_kept(pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images are decoded again if a file or a setting has changed, or if the cache file is damaged."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("nsvm_cli.datasets.image_folder.KEPT_SECONDS", 0)
    folder = copied(pets, tmp_path)
    with Image.open(pets / "cat" / "0.png") as image:
        image.putalpha(90)
        image.save(folder / "cat" / "0.png")

    def kept() -> list[Path]:
        return sorted((tmp_path / "cache" / "nsvm" / "images").glob("*.safetensors"))

    first, [file] = loaded(folder), kept()
    with monkeypatch.context() as patch:
        patch.setattr(Image, "open", None)
        again = loaded(folder)
    assert (again.samples.sha256, again.remarks()) == (first.samples.sha256, first.remarks())
    file.write_bytes(file.read_bytes()[:500])
    assert loaded(folder).samples.sha256 == first.samples.sha256
    os.utime(file, (0, 0))
    assert loaded(folder, background="black").samples.sha256 != first.samples.sha256
    assert len(kept()) == 1, "a cache file that was unused for long should be deleted"
    shutil.copy(pets / "dog" / "1.png", folder / "cat" / "1.png")
    assert loaded(folder, background="black").samples.x[1].mean() > 150
