"""Samples without labels, read from tables and images, and files that are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image

from nsvm_cli.datasets.encoding import TableEncoder
from nsvm_cli.datasets.unlabelled import blocks
from nsvm_cli.errors import InputError
from tests.datasets.conftest import Write

SHAPE = (1, 2, 3)
PIXELS = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)


def read(file: Path, shape: tuple[int, ...] = SHAPE, encoder: TableEncoder | None = None) -> np.ndarray:
    return torch.cat([x for x, _ in blocks(file, shape, encoder)]).numpy()


def refusal(file: Path, shape: tuple[int, ...] = SHAPE, encoder: TableEncoder | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read(file, shape, encoder)
    message = str(caught.value)
    assert message.count(str(file)) == 1
    return message


def test_a_block_has_fewer_samples_the_more_each_of_them_takes(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for number, pixels in enumerate(PIXELS):
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
    (tmp_path / "table.csv").write_text("a,b\n" + "1,2\n" * 5)
    for name, shape, sizes in (("images", SHAPE, [2, 2]), ("table.csv", (2,), [2, 2, 1])):
        found = blocks(tmp_path / name, shape, None, outputs=2**18 - 100)
        assert [len(x) for x, _ in found] == sizes


@pytest.mark.parametrize("mode", ["1", "P", "RGB"])
def test_an_image_of_a_mode_that_converts_exactly(tmp_path: Path, mode: str) -> None:
    Image.fromarray(PIXELS[0] // 3 * 40).convert(mode).save(tmp_path / "image.png")
    expected = Image.open(tmp_path / "image.png").convert("RGB")
    np.testing.assert_array_equal(read(tmp_path, (3, 2, 3))[0].transpose(1, 2, 0), expected)
    np.testing.assert_array_equal(read(tmp_path)[0, 0], expected.convert("L"))


@pytest.mark.parametrize("mode", ["I;16", "RGBA", "P with transparency"])
def test_an_image_that_would_be_clipped_or_lose_transparency(tmp_path: Path, mode: str) -> None:
    file = tmp_path / "image.png"
    kind, _, transparent = mode.partition(" with ")
    Image.new(kind, (3, 2)).save(file, **{"transparency": 0} if transparent else {})
    assert refusal(tmp_path).startswith(f"{file} has pixel mode {mode}; save it as 8-bit grey or RGB")


def test_a_single_image(tmp_path: Path) -> None:
    Image.fromarray(PIXELS[1]).save(tmp_path / "image.PNG")
    [(x, files)] = blocks(tmp_path / "image.PNG", SHAPE, None)
    np.testing.assert_array_equal(x.numpy()[0, 0], PIXELS[1])
    assert files == {"file": ["image.PNG"]}
    says = "expected a table, because the model requires samples of shape (30,), got an image"
    assert refusal(tmp_path / "image.PNG", (30,)).endswith(says)


def test_an_image_is_turned_as_its_orientation_says(tmp_path: Path) -> None:
    exif, file = Image.Exif(), tmp_path / "image.png"
    exif[ExifTags.Base.Orientation] = 6
    Image.fromarray(np.rot90(PIXELS[1])).save(file, exif=exif)
    np.testing.assert_array_equal(read(file)[0, 0], PIXELS[1])
    assert refusal(file, (1, 3, 2)) == f"{file} has 3 x 2 pixels, expected 2 x 3"


def test_a_file_that_is_no_image(write: Write) -> None:
    file = Path(write(b"\x89PNG", "image.png"))
    assert refusal(file) == f"{file} cannot be read as an image: the image format is unknown"


@pytest.mark.parametrize("header", ["0,1,2", "1,2,c"])
def test_a_table_for_a_model_without_names(write: Write, header: str) -> None:
    file = Path(write(f"{header}\n1.5,2.5,3.5\n4,5,6\n\n"))
    np.testing.assert_array_equal(read(file, (3,)), [[1.5, 2.5, 3.5], [4, 5, 6]])


@pytest.mark.parametrize("first", ["0.5,1,2", "0,0,0"])
@pytest.mark.parametrize("separator", [",", "\t", ";"])
def test_a_first_sample_is_not_taken_for_a_header(write: Write, first: str, separator: str) -> None:
    file = Path(write(f"{first}\n4,5,6\n".replace(",", separator)))
    np.testing.assert_array_equal(read(file, (3,)), [[*map(float, first.split(","))], [4, 5, 6]])
