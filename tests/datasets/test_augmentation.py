"""Augmentation: random transforms of scaled samples, drawn independently for each sample."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nsvm_cli.datasets.augmentation import AUGMENTATIONS, Augmentation, build_augmentation
from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.errors import InputError
from tests.datasets.helpers import load, refusal

pytestmark = pytest.mark.usefixtures("shapes")

SHAPES = ((1, 28, 28), (3, 32, 32))
SCALING = Scaling(torch.tensor(0.25, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64))
NEEDED = {
    "RandomCrop": {"padding": 2},
    "RandomRotation": {"degrees": 10},
    "RandomAffine": {"degrees": 10, "translate": [0.1, 0.1], "interpolation": "bilinear"},
    "ColorJitter": {"brightness": 0.5, "contrast": 0.5},
    "GaussianBlur": {"kernel_size": 3},
}
"""Arguments that a transform needs in order to change images."""


def augmentation(*sections: object, shape: tuple[int, ...] = SHAPES[0]) -> Augmentation:
    return build_augmentation(sections, SCALING.mean, SCALING.std, shape)  # type: ignore[return-value]


def apply(augment: Augmentation, x: Tensor, key: int = 0, i: Sequence[int] | None = None) -> Tensor:
    return augment(x, np.arange(len(x)) if i is None else np.array(i, np.int64), key)


def images(m: int, shape: tuple[int, ...] = SHAPES[0]) -> Tensor:
    """Return different random images, standardised from pixels in 0..1."""
    return SCALING(torch.rand(m, *shape, generator=torch.Generator().manual_seed(9)).double(), torch.float32)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_how_an_image_changes_depends_on_its_index_and_the_key_alone(name: str) -> None:
    shape = SHAPES[[*AUGMENTATIONS].index(name) % 2]
    augment, x = augmentation({"name": name, **NEEDED.get(name, {})}, shape=shape), images(12, shape)
    before = x.clone()
    changed = apply(augment, x, 3)
    assert torch.equal(x, before)
    assert (changed.shape, changed.dtype) == (x.shape, x.dtype)
    pixels = changed * SCALING.std + SCALING.mean
    assert -1e-6 < pixels.min() < pixels.max() < 1 + 1e-6
    assert torch.equal(apply(augment, x[[4, 1]], 3, i=[4, 1]), changed[[4, 1]])
    assert not torch.equal(apply(augment, x, 4), changed)
    alike = apply(augment, x[:1].expand(20, -1, -1, -1), 3)
    assert len(alike.unique(dim=0)) > 1, "all images were transformed in the same way"


def test_transforms_take_their_arguments_and_are_applied_in_order() -> None:
    x = images(3)
    half = {"name": "RandomAffine", "degrees": 0, "scale": [0.5, 0.5]}
    erase = {"name": "RandomErasing", "p": 1, "scale": [0.3, 0.3], "ratio": [1, 1]}
    halved = apply(augmentation(half), x) * SCALING.std + SCALING.mean
    assert halved[..., :7, :].abs().max() < 1e-6 < halved[..., 8:20, 8:20].min()
    assert not torch.equal(apply(augmentation(half, erase), x), apply(augmentation(erase, half), x))


def test_without_augmentation_torchvision_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)  # importing it raises an error
    load("digits", augment=None)
    load("digits", augment=["RandomCrop", {"name": "RandomRotation", "degrees": 5}])
    assert build_augmentation(None, SCALING.mean, SCALING.std, (20,)) is None
    own(monkeypatch)
    load("ringnorm", samples=100, augment=["noise", {"name": "rolled", "most": 2}])
    assert augmentation("noise", "rolled", shape=(20,))


class Noise(nn.Module):
    def __init__(self, std: float = 0.1) -> None:
        super().__init__()
        self.std = nn.Parameter(torch.tensor(std))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.std * torch.randn_like(x)


def rolled(x: Tensor, most: int = 5, shift: float = 0.0) -> np.ndarray:
    """Transform with the global generators of NumPy and Python, and return an array instead of a tensor."""
    return np.roll(x.numpy(), np.random.randint(1, most + 1), -1) + shift * random.random()


def own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, part in (("noise", Noise), ("rolled", rolled), ("cut", lambda x: x[..., 1:])):
        monkeypatch.setitem(AUGMENTATIONS, name, part)


@pytest.mark.parametrize(
    ("section", "shape"),
    [
        ("noise", (20,)),
        ("rolled", (20, 4)),
        ({"name": "rolled", "most": 1, "shift": 0.5}, SHAPES[0]),
        ("noise", SHAPES[1]),
    ],
)
def test_a_transform_of_ones_own_draws_for_a_sample_and_a_step_alone(
    section: object, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    own(monkeypatch)
    augment, x = augmentation(section, shape=shape), images(1, shape).expand(12, *shape)
    changed = apply(augment, x, 3)
    assert len(changed.unique(dim=0)) > 1, "all samples were transformed in the same way"
    assert torch.equal(apply(augment, x[:2], 3, i=[7, 4]), changed[[7, 4]])
    assert not torch.equal(apply(augment, x, 4), changed)
    assert not changed.requires_grad


def test_a_transform_of_ones_own_sees_samples_in_their_original_units(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(AUGMENTATIONS, "least", lambda x, bound: x.clamp_min(bound))
    x = images(5)
    pixels = apply(augmentation({"name": "least", "bound": 0.5}), x) * SCALING.std + SCALING.mean
    torch.testing.assert_close(pixels, (x * SCALING.std + SCALING.mean).clamp_min(0.5))


@pytest.mark.parametrize(
    ("augment", "said"),
    [
        ("RandomCrop", "dataset.augment should be a valid tuple, got 'RandomCrop'"),
        ([3], "dataset.augment.0: expected a transform such as RandomCrop or {name: RandomCrop}, got 3"),
        (["RandomErasing", "RandomCorp"], "dataset.augment.1: there is no transform 'RandomCorp'; did you"),
        ([{"padding": 3}], "dataset.augment.0: there is no transform None"),
    ],
)
def test_bad_names_are_refused_in_one_line(augment: object, said: str) -> None:
    assert said in refusal("digits", augment=augment)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("RandomCrop", "dataset.augment: expected images for RandomCrop, got samples of shape (20,)"),
        ({"name": "noise", "sd": 3}, "augmentation.sd: noise has no such setting; did you mean std"),
        ({"name": "rolled", "mot": 3}, "augmentation.mot: rolled has no such setting; did you mean most"),
        ({"name": "rolled", "most": "x"}, "augmentation.most should be a valid integer, got 'x'"),
        ({"name": "rolled", "most": 0}, "augmentation=rolled: "),
        ({"name": "cut"}, "expected cut to return samples of shape [1, 28, 28], got [1, 28, 27]"),
        ({"name": "RandomCrop", "pading": 3}, "augmentation.pading: RandomCrop has no such setting; did you"),
        ({"name": "RandomCrop", "padding": "x"}, "augmentation.padding: 'str' instances are not allowed"),
        (
            {"name": "RandomCrop", "size": 20},
            "expected RandomCrop to return samples of shape [1, 28, 28], got [1, 20, 20]",
        ),
        ({"name": "RandomErasing", "p": 2}, "augmentation=RandomErasing: "),
        ({"name": "RandomRotation"}, "augmentation.degrees requires a value for augmentation=RandomRotation"),
        ({"name": "ElasticTransform", "sigma": 9}, "dataset.augment: ElasticTransform: "),
    ],
)
def test_bad_arguments_are_refused_in_one_line(
    section: object, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(monkeypatch)
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        augmentation(section, shape=SHAPES[0] if isinstance(section, dict) else (20,))
    assert "\n" not in str(caught.value)
