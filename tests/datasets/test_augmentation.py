"""Augmentation: torchvision's transforms on standardised images, drawn independently for each image."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor

from nsvm_cli.datasets import build_source
from nsvm_cli.datasets.augmentation import AUGMENTATIONS, Augmentation, Change, Transform, build_augmentation
from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.errors import InputError
from nsvm_cli.randomness import number_at
from tests.datasets.helpers import refusal

IMAGES = ("mnist", "fashion_mnist", "kmnist", "digits")
SHAPE = (1, 28, 28)
SCALING = Scaling(torch.tensor(0.25, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64))
ALWAYS = {"flip": {"p": 1.0}, "erase": {"p": 1.0}}


def augmentation(*sections: object, scaling: Scaling = SCALING) -> Augmentation:
    return build_augmentation(sections, scaling, SHAPE)  # type: ignore[return-value]


def apply(augment: Augmentation, x: Tensor, key: int = 0, i: Sequence[int] | None = None) -> Tensor:
    return augment(x, np.arange(len(x)) if i is None else np.array(i, np.int64), key)


def images(m: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return standardised images, all different, with pixels in 0..1."""
    pixels = torch.rand(m, *SHAPE, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return SCALING(pixels, dtype)


def pixels(x: Tensor) -> Tensor:
    return x.double() * SCALING.std + SCALING.mean


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_images_change_and_stay_images(name: str, dtype: torch.dtype) -> None:
    x = images(12, dtype)
    before = x.clone()
    changed = apply(augmentation({"name": name, **ALWAYS.get(name, {})}), x)
    assert torch.equal(x, before)
    assert (changed.shape, changed.dtype) == (x.shape, dtype)
    assert pixels(changed).min() > -1e-6
    assert pixels(changed).max() < 1 + 1e-6
    # a shift by nothing at all may be drawn, once in 25 times
    assert (changed != x).flatten(1).any(1).sum() >= 10


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_images_depend_only_on_the_key(name: str) -> None:
    augment, x, before = augmentation(name), images(12), torch.get_rng_state()
    first = apply(augment, x, 3)
    assert torch.equal(torch.get_rng_state(), before), "the global generator is as it was"
    torch.rand(5)
    assert torch.equal(apply(augment, x, 3), first)
    assert not torch.equal(apply(augment, x, 4), first)


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_each_image_has_its_own_draw(name: str) -> None:
    x = images(1).expand(20, -1, -1, -1)
    assert len(apply(augmentation(name), x).unique(dim=0)) > (1 if name == "flip" else 5)


def test_an_image_is_changed_alike_in_every_batch() -> None:
    augment, x = augmentation("affine", "erase"), images(6)
    whole = apply(augment, x)
    assert torch.equal(apply(augment, x[[4, 1]], i=[4, 1]), whole[[4, 1]])
    assert apply(augment, x[:0]).shape == (0, *SHAPE)


def test_crop_shifts_by_at_most_its_padding_and_fills_with_black() -> None:
    white = SCALING(torch.ones(40, *SHAPE, dtype=torch.float64))
    black = pixels(apply(augmentation({"name": "crop", "padding": 3}), white)).round() == 0
    rows, columns = (black.all(dim).sum(-1).flatten() for dim in (-1, -2))
    assert rows.max() == 3
    assert columns.max() == 3


def test_affine_takes_its_limits_from_its_settings() -> None:
    x = images(5, torch.float64)
    still = {"name": "affine", "degrees": 0, "translate": 0}
    torch.testing.assert_close(apply(augmentation(still), x), x)
    half = pixels(apply(augmentation({**still, "scale": [0.5, 0.5]}), x))
    assert half[..., :7, :].abs().max() < 1e-9
    assert half[..., 7:21, 7:21].min() > 1e-9


def test_erase_sets_a_rectangle_to_black() -> None:
    x = SCALING(torch.ones(20, *SHAPE, dtype=torch.float64))
    section = {"name": "erase", "p": 1, "scale": [0.1, 0.2], "ratio": [0.5, 2]}
    erased = pixels(apply(augmentation(section), x)).round() == 0
    heights, widths = (erased.any(dim).sum(-1).flatten() for dim in (-1, -2))
    assert torch.equal(heights * widths, erased.sum((1, 2, 3)))
    area = (heights * widths) / 28**2
    assert 0.08 < area.min() < 0.15 < area.max() < 0.22


def test_elastic_moves_pixels_by_about_one() -> None:
    ramp = (torch.arange(28, dtype=torch.float64) / 27).expand(10, 1, 28, 28)
    moved = pixels(apply(augmentation("elastic"), SCALING(ramp))) - ramp
    inner = moved[..., 4:-4, 4:-4] * 27
    assert 0.5 < inner.std() < 2


def test_transforms_are_applied_in_order() -> None:
    x = images(3)
    half = {"name": "affine", "degrees": 0, "translate": 0, "scale": [0.5, 0.5]}
    erase = {"name": "erase", "p": 1, "scale": [0.3, 0.3], "ratio": [1, 1]}
    assert not torch.equal(apply(augmentation(half, erase), x), apply(augmentation(erase, half), x))


@pytest.mark.parametrize("nothing", [None, []])
def test_without_augmentation_torchvision_is_not_imported(
    nothing: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchvision", None)  # to import it is an error
    for name in IMAGES:
        assert build_source({"name": name, "augment": nothing}) == build_source({"name": name})
        build_source({"name": name, "augment": ["crop", {"name": "affine", "degrees": 5}]})
    assert build_augmentation(nothing, SCALING, (20,)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize(
    ("augment", "said"),
    [
        ("crop", "dataset.augment should be a list, got 'crop'"),
        ([3], "dataset.augment.0: expected the name of an augmentation, or a section"),
        (["flip", "crp"], "dataset.augment.1: augmentation: there is no augmentation 'crp'; did you mean"),
        ([{"padding": 3}], "there is no augmentation None"),
        ([{"name": "crop", "pading": 3}], "augmentation.pading: crop has no such setting; did you mean"),
        ([{"name": "crop", "padding": 0}], "augmentation.padding should be greater than or equal to 1"),
        ([{"name": "affine", "degrees": 181}], "augmentation.degrees should be less than or equal to 180"),
        ([{"name": "affine", "scale": [2, 1]}], "expected a lower and an upper limit, got [2.0, 1.0]"),
        ([{"name": "erase", "p": float("nan")}], "augmentation.p should be a finite number"),
        (["crop"] * 17, "dataset.augment should have at most 16 items"),
    ],
)
def test_bad_settings_are_refused_in_one_line(name: str, augment: object, said: str) -> None:
    assert said in refusal(name, augment=augment)


@pytest.mark.parametrize(
    ("section", "shape", "said"),
    [
        ("crop", (20,), "dataset.augment expects images, got samples of shape (20,)"),
        ({"name": "elastic", "sigma": 7}, SHAPE, "elastic.sigma=7.0 is too large for images of 28x28 pixels"),
    ],
)
def test_unsuitable_transforms_are_refused(section: object, shape: tuple[int, ...], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        build_augmentation([section], SCALING, shape)


def test_the_largest_accepted_sigma_works() -> None:
    apply(augmentation({"name": "elastic", "sigma": 6.7}), images(1))


class Noise(Transform):
    """Add noise, while another thread seeds torch's global generator."""

    def change(self, size: tuple[int, int]) -> Change:
        def with_noise(image: Tensor) -> Tensor:
            with ThreadPoolExecutor(1) as other:
                other.submit(torch.manual_seed, 99).result()
            return image + torch.rand(size)

        return with_noise


def test_other_threads_do_not_change_what_is_drawn() -> None:
    x = images(2, torch.float64)
    with torch.random.fork_rng(devices=[]):
        changed = pixels(apply(Augmentation([Noise()], SCALING, (28, 28)), x, key=3))
    generators = [torch.Generator().manual_seed(seed) for seed in number_at(3, np.arange(2)).tolist()]
    noise = torch.stack([torch.rand(SHAPE, generator=generator) for generator in generators])
    torch.testing.assert_close(changed - pixels(x), noise.double())
