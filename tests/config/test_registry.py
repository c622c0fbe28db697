"""A user's own parts are built from settings, whether they are dataclasses, other classes or functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from nsvm_cli.config.registry import build
from nsvm_cli.datasets import Source
from nsvm_cli.errors import InputError


@dataclass(frozen=True)
class Standard(Source):
    size: int = 600


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True)
class Checked(Source):
    size: int = 600


class Plain(Source):
    def __init__(self, size: int = 600, validation: int = 0) -> None:
        super().__init__(validation=validation)
        object.__setattr__(self, "size", size)


def function(size: int = 600, validation: int = 0) -> Source:
    return Standard(size=size, validation=validation)


@pytest.mark.parametrize("kind", [Standard, Checked, Plain, function])
def test_settings_reach_every_kind_of_part(kind: Callable[..., Any]) -> None:
    def built(**settings: Any) -> Any:
        return build({"mine": kind}, "dataset", {"name": "mine", **settings})

    assert built().size == 600
    part = built(size="40", validation=5)
    assert (part.size, part.validation) == (40, 5), "text should be converted to a number"
    with pytest.raises(InputError, match=r"^dataset\.size should be a valid integer, got 'many'$"):
        built(size="many")
    with pytest.raises(InputError, match="sizes") as caught:
        built(sizes=1)
    assert "\n" not in str(caught.value)


def test_what_a_constructor_refuses_is_one_line_about_the_part() -> None:
    class Picky:
        def __init__(self, size, shape=None):  # type: ignore[no-untyped-def]
            if size != 3:
                raise ValueError(f"three is the size,\nnot {size}")
            self.shape = len(shape)

    with pytest.raises(InputError, match=r"^kernel=picky: three is the size, not 4$"):
        build({"picky": Picky}, "kernel", {"name": "picky", "size": 4})
    with pytest.raises(InputError, match=r"^kernel=picky: object of type 'NoneType' has no len\(\)$"):
        build({"picky": Picky}, "kernel", {"name": "picky", "size": 3})
