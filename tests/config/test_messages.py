"""Settings of every part, with values of every wrong kind, and of parts of every kind of class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pydantic
import pytest
import yaml

from nsvm_cli.compose.composition import compose_settings, conf_folder
from nsvm_cli.config.registry import build
from nsvm_cli.config.settings import parse_settings
from nsvm_cli.datasets import Source, build_source
from nsvm_cli.errors import InputError
from nsvm_cli.models.composed_kernels import build_kernel
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.optimizers import OPTIMIZERS
from nsvm_cli.trainers import build_trainer

WRONG: list[Any] = ["x", -1, 0, 1.5, float("nan"), None, ["a"], [1, 2, 3], {"a": 1}, 10**99]
BUILD: dict[str, Callable[[dict[str, Any]], object]] = {
    "algorithm": build_trainer,
    "dataset": build_source,
    "kernel": build_kernel,
    "network": lambda section: build_network(section, (20,), 0),  # no images: large networks are not built
    "optimizer": partial(build, OPTIMIZERS, "optimizer"),
}


def refusals(check: Callable[[dict[str, Any]], object], right: dict[str, Any]) -> list[str]:
    """Return what is said when one value after the other is wrong."""
    said = []
    for key in right:
        for value in WRONG:
            try:
                check({**right, key: value})
            except InputError as error:
                said.append(str(error))
    assert not [message for message in said if "\n" in message]
    return said


@pytest.mark.parametrize("group", sorted(BUILD))
def test_about_a_part(group: str) -> None:
    for file in (conf_folder() / group).glob("*.yaml"):
        values = yaml.safe_load(file.read_text())
        right = {key: 1 if "$" in str(value) else value for key, value in values.get(group, values).items()}
        assert refusals(BUILD[group], right)


@pytest.fixture(scope="module")
def right() -> dict[str, Any]:
    return compose_settings([])


def test_about_the_run(right: dict[str, Any]) -> None:
    assert len(refusals(parse_settings, right)) > 50


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"checkpoint": {"every": "5x"}},
            "checkpoint.every: expected a number of steps, a duration such as 30s, ",
        ),
        ({"checkpoint": {"evry": 5}}, "checkpoint.evry: there is no such setting"),
        ({"memory_budget": True}, "memory_budget should be a valid integer, got True"),
        ({"seed": 2**63}, "seed should be less than 9223372036854775808, got 9223372036854775808"),
        ({"plugins": "mine"}, "plugins should be a valid list, got 'mine'"),
        ({"steps": 5}, "steps: there is no such setting; did you mean algorithm.steps?"),
    ],
)
def test_what_is_said(values: dict[str, Any], said: str, right: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refused:
        parse_settings({**right, **values})
    assert str(refused.value).startswith(said)


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
    assert (part.size, part.validation) == (40, 5), "text, as a command line has it, becomes a number"
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
