"""Augmentation: torchvision's transforms on standardised images, drawn independently for each image."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from nsvm_cli.datasets.augmentation import TRANSFORMS, Augmentation, build_augmentation
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
"""Arguments without which a transform is refused or changes nothing."""


def augmentation(*sections: object, shape: tuple[int, ...] = SHAPES[0]) -> Augmentation:
    return build_augmentation(sections, SCALING, shape)  # type: ignore[return-value]


def apply(augment: Augmentation, x: Tensor, key: int = 0, i: Sequence[int] | None = None) -> Tensor:
    return augment(x, np.arange(len(x)) if i is None else np.array(i, np.int64), key)


def images(m: int, shape: tuple[int, ...] = SHAPES[0]) -> Tensor:
    """Return standardised images, all different, with pixels in 0..1."""
    return SCALING(torch.rand(m, *shape, generator=torch.Generator().manual_seed(9)).double(), torch.float32)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_how_an_image_changes_depends_on_its_index_and_the_key_alone(name: str) -> None:
    shape = SHAPES[TRANSFORMS.index(name) % 2]
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
    assert len(alike.unique(dim=0)) > 1, "each image has its own draw"


def test_transforms_take_their_arguments_and_are_applied_in_order() -> None:
    x = images(3)
    half = {"name": "RandomAffine", "degrees": 0, "scale": [0.5, 0.5]}
    erase = {"name": "RandomErasing", "p": 1, "scale": [0.3, 0.3], "ratio": [1, 1]}
    halved = apply(augmentation(half), x) * SCALING.std + SCALING.mean
    assert halved[..., :7, :].abs().max() < 1e-6 < halved[..., 8:20, 8:20].min()
    assert not torch.equal(apply(augmentation(half, erase), x), apply(augmentation(erase, half), x))


def test_without_augmentation_torchvision_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)  # to import it is an error
    load("digits", augment=None)
    load("digits", augment=["RandomCrop", {"name": "RandomRotation", "degrees": 5}])
    assert build_augmentation(None, SCALING, (20,)) is None


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
        ("RandomCrop", ": expected images, got samples of shape (20,)"),
        ({"name": "RandomCrop", "pading": 3}, "augmentation.pading: RandomCrop has no such setting; did you"),
        ({"name": "RandomCrop", "padding": "x"}, "augmentation.padding: 'str' instances are not allowed"),
        (
            {"name": "RandomCrop", "size": 20},
            "RandomCrop to return images of shape [1, 28, 28], got [1, 20, 20]",
        ),
        ({"name": "RandomErasing", "p": 2}, "augmentation=RandomErasing: "),
        ({"name": "RandomRotation"}, "augmentation.degrees requires a value for augmentation=RandomRotation"),
        ({"name": "ElasticTransform", "sigma": 9}, "dataset.augment: ElasticTransform: "),
    ],
)
def test_bad_arguments_are_refused_in_one_line(section: object, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        augmentation(section, shape=SHAPES[0] if isinstance(section, dict) else (20,))
    assert "\n" not in str(caught.value)
