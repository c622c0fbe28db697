"""Values of all kinds for every setting of every part: accepted, or refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import yaml

from nsvm_cli.compose.composition import compose_settings, conf_folder
from nsvm_cli.config.registry import build
from nsvm_cli.config.settings import parse_settings
from nsvm_cli.datasets import build_source
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
    "network": lambda section: build_network(section, (20,), 0),  # large networks require images
    "optimizer": partial(build, OPTIMIZERS, "optimizer"),
}


def refusals(check: Callable[[dict[str, Any]], object], right: dict[str, Any]) -> list[str]:
    """Replace each value in turn with each of ``WRONG``, and return the one-line error messages."""
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
