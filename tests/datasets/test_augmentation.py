"""Augmentation: torchvision's transforms on standardised images, drawn independently for each image."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from nsvm_cli.datasets import build_source
from nsvm_cli.datasets.augmentation import AUGMENTATIONS, Augmentation, Change, Transform, build_augmentation
from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.errors import InputError
from tests.datasets.helpers import refusal

IMAGES = ("mnist", "fashion_mnist", "kmnist", "digits")
SHAPE = (1, 28, 28)
SCALING = Scaling(torch.tensor(0.25, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64))
ALWAYS = {"flip": {"p": 1.0}, "erase": {"p": 1.0}}


def augmentation(*sections: object, scaling: Scaling = SCALING) -> Augmentation:
    built = build_augmentation(sections, scaling, SHAPE)
    assert built is not None
    return built


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(m: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return standardised images, all different, with pixels in 0..1."""
    pixels = torch.rand(m, *SHAPE, generator=seeded(9), dtype=torch.float64)
    return SCALING(pixels, dtype)


def pixels(x: Tensor) -> Tensor:
    return x.double() * SCALING.std + SCALING.mean


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_images_change_and_stay_images(name: str, dtype: torch.dtype) -> None:
    x = images(12, dtype)
    before = x.clone()
    changed = augmentation({"name": name, **ALWAYS.get(name, {})})(x, seeded())
    assert torch.equal(x, before)
    assert (changed.shape, changed.dtype) == (x.shape, dtype)
    assert pixels(changed).min() > -1e-6
    assert pixels(changed).max() < 1 + 1e-6
    # a shift by nothing at all may be drawn, once in 25 times
    assert (changed != x).flatten(1).any(1).sum() >= 10


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_images_depend_only_on_the_generator(name: str) -> None:
    augment, x, before = augmentation(name), images(12), torch.get_rng_state()
    generator = seeded(3)
    first = augment(x, generator)
    then = augment(x, generator)
    assert torch.equal(torch.get_rng_state(), before), "the global generator is as it was"
    torch.rand(5)
    assert torch.equal(augment(x, seeded(3)), first)
    assert not torch.equal(then, first)
    assert not torch.equal(augment(x, seeded(4)), first)


def test_images_depend_only_on_the_state_of_the_generator() -> None:
    """A resumed run relies on it."""
    generator, x = seeded(), images(4)
    augmentation("affine", "erase")(x, generator)
    state = generator.get_state()
    expected = augmentation("affine", "erase")(x, generator)
    generator.set_state(state)
    assert torch.equal(augmentation("affine", "erase")(x, generator), expected)


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_each_image_has_its_own_draw(name: str) -> None:
    x = images(1).expand(20, -1, -1, -1)
    assert len(augmentation(name)(x, seeded()).unique(dim=0)) > (1 if name == "flip" else 5)


def test_part_of_a_batch_is_changed_as_in_the_whole() -> None:
    augment, x, generator = augmentation("affine", "erase"), images(6), seeded()
    whole = augment(x, seeded())
    rows = torch.tensor([4, 1])
    assert torch.equal(augment(x[rows], generator, (6, rows)), whole[rows])
    none = augment(x[:0], seeded(), (6, torch.arange(0)))
    assert none.shape == (0, *SHAPE)
    following = seeded()
    augment(x, following)
    assert torch.equal(generator.get_state(), following.get_state())


def test_crop_shifts_by_at_most_its_padding_and_fills_with_black() -> None:
    white = SCALING(torch.ones(40, *SHAPE, dtype=torch.float64))
    black = pixels(augmentation({"name": "crop", "padding": 3})(white, seeded())).round() == 0
    rows, columns = (black.all(dim).sum(-1).flatten() for dim in (-1, -2))
    assert rows.max() == 3
    assert columns.max() == 3


def test_flip_mirrors_left_and_right() -> None:
    x = images(5, torch.float64)
    torch.testing.assert_close(augmentation({"name": "flip", "p": 1})(x, seeded()), x.flip(-1))
    torch.testing.assert_close(augmentation({"name": "flip", "p": 0})(x, seeded()), x)


def test_affine_takes_its_limits_from_its_settings() -> None:
    x = images(5, torch.float64)
    still = {"name": "affine", "degrees": 0, "translate": 0}
    torch.testing.assert_close(augmentation(still)(x, seeded()), x)
    half = pixels(augmentation({**still, "scale": [0.5, 0.5]})(x, seeded()))
    assert half[..., :7, :].abs().max() < 1e-9
    assert half[..., 7:21, 7:21].min() > 1e-9


def test_erase_sets_a_rectangle_to_black() -> None:
    x = SCALING(torch.ones(20, *SHAPE, dtype=torch.float64))
    section = {"name": "erase", "p": 1, "scale": [0.1, 0.2], "ratio": [0.5, 2]}
    erased = pixels(augmentation(section)(x, seeded())).round() == 0
    heights, widths = (erased.any(dim).sum(-1).flatten() for dim in (-1, -2))
    assert torch.equal(heights * widths, erased.sum((1, 2, 3)))
    area = (heights * widths) / 28**2
    assert 0.08 < area.min() < 0.15 < area.max() < 0.22


def test_jitter_multiplies_brightness() -> None:
    x = SCALING(torch.full((30, *SHAPE), 0.5, dtype=torch.float64))
    changed = pixels(augmentation({"name": "jitter", "brightness": 0.4, "contrast": 0})(x, seeded()))
    assert 0.29 < changed.min() < 0.4 < 0.6 < changed.max() < 0.71


def test_elastic_moves_pixels_by_about_one() -> None:
    ramp = (torch.arange(28, dtype=torch.float64) / 27).expand(10, 1, 28, 28)
    moved = pixels(augmentation("elastic")(SCALING(ramp), seeded())) - ramp
    inner = moved[..., 4:-4, 4:-4] * 27
    assert 0.5 < inner.std() < 2


def test_transforms_are_applied_in_order() -> None:
    x = images(3)
    half = {"name": "affine", "degrees": 0, "translate": 0, "scale": [0.5, 0.5]}
    erase = {"name": "erase", "p": 1, "scale": [0.3, 0.3], "ratio": [1, 1]}
    assert not torch.equal(augmentation(half, erase)(x, seeded()), augmentation(erase, half)(x, seeded()))


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
        ("crop", "dataset.augment: expected a list, such as [crop], got 'crop'"),
        ([3], "dataset.augment.0: expected the name of an augmentation, or a section"),
        (
            ["flip", "crp"],
            "dataset.augment.1: augmentation: there is no augmentation 'crp'; did you mean",
        ),
        ([{"padding": 3}], "there is no augmentation None"),
        (
            [{"name": "crop", "pading": 3}],
            "augmentation.pading: crop has no such setting; did you mean",
        ),
        (
            [{"name": "crop", "padding": 0}],
            "augmentation.padding should be greater than or equal to 1",
        ),
        ([{"name": "affine", "degrees": 181}], "augmentation.degrees should be less than or equal to 180"),
        ([{"name": "affine", "scale": [2, 1]}], "expected a lower and an upper limit, got [2.0, 1.0]"),
        ([{"name": "erase", "p": float("nan")}], "augmentation.p should be a finite number"),
        (["crop"] * 17, "dataset.augment: expected at most 16 augmentations, got 17"),
    ],
)
def test_bad_settings_are_refused_in_one_line(name: str, augment: object, said: str) -> None:
    assert said in refusal(name, augment=augment)


def test_other_data_sets_have_no_augmentation() -> None:
    assert "dataset.augment: ringnorm has no such setting" in refusal("ringnorm", augment=["crop"])


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
    augmentation({"name": "elastic", "sigma": 6.7})(images(1), seeded())


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
        seeds = torch.randint(2**63 - 1, (2,), generator=seeded(3)).tolist()
        changed = pixels(Augmentation([Noise()], SCALING, (28, 28))(x, seeded(3)))
    noise = torch.stack([torch.rand(SHAPE, generator=seeded(seed)) for seed in seeds])
    torch.testing.assert_close(changed - pixels(x), noise.double())
