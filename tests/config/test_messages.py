"""Every setting of every part, with values of every wrong kind: refused in words of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from pydantic import validate_call
from torch import nn

from nsvm_cli.compose.composition import compose_settings, conf_folder
from nsvm_cli.config.settings import parse_settings, with_values
from nsvm_cli.datasets import build_source
from nsvm_cli.errors import InputError
from nsvm_cli.models.kernels import build_kernel
from nsvm_cli.models.networks import NETWORKS, build_network
from nsvm_cli.models.optimizers import build_optimizer
from nsvm_cli.trainers import build_trainer

WRONG: list[Any] = ["x", "", -1, 0, 1.5, float("nan"), None, [], ["a"], [1, 2, 3], {}, {"a": 1}, 16**20_000]
LIBRARY = ("Input", "unable", "validation,", "keyword", "Args", "constrained", "instance", "cannot be ")
BUILD: dict[str, Callable[[dict[str, Any]], object]] = {
    "algorithm": build_trainer,
    "dataset": build_source,
    "kernel": build_kernel,
    "network": lambda section: build_network(section, (20,), 0),  # no images: large networks are not built
    "optimizer": build_optimizer,
}


def refusals(check: Callable[[dict[str, Any]], object], right: dict[str, Any]) -> Iterator[str]:
    """Yield what is said when one value after the other is wrong."""
    for key in right:
        for value in WRONG:
            try:
                check({**right, key: value})
            except InputError as error:
                yield str(error)


@pytest.mark.parametrize("group", sorted(BUILD))
def test_about_a_part(group: str) -> None:
    for file in (conf_folder() / group).glob("*.yaml"):
        values = yaml.safe_load(file.read_text())
        right = {key: 1 if "$" in str(value) else value for key, value in values.get(group, values).items()}
        said = set(refusals(BUILD[group], right))
        assert said
        assert not [line for line in said if any(word in line for word in LIBRARY)]


@validate_call
def of_a_function(shape: tuple[int, ...], width: int) -> nn.Module:
    return nn.Linear(*shape, width)


@pytest.mark.parametrize(
    ("group", "section", "key"),
    [
        ("algorithm", {"name": "pegasos", "steps": True}, "steps"),
        ("algorithm", {"name": "alg4", "steps": 5, "average": True}, "average"),
        ("dataset", {"name": "ringnorm", "samples": True}, "samples"),
        ("kernel", {"name": "rbf", "gamma": True}, "gamma"),
        ("network", {"name": "mlp", "widths": [3, True]}, "widths"),
        ("network", {"name": "mlp", "widths": [3], "scale": True}, "scale"),
        ("network", {"name": "of_a_function", "width": True}, "width"),
        ("optimizer", {"name": "sgd", "lr": False}, "lr"),
    ],
)
def test_a_boolean_is_no_number(
    group: str, section: dict[str, Any], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NETWORKS, "of_a_function", of_a_function)
    with pytest.raises(InputError, match=rf"\.{key} should be a number, got (True|False)$"):
        BUILD[group](section)


@pytest.mark.parametrize("key", ["seed", "threads", "memory_budget", "checkpoint.every", "validation.every"])
def test_a_boolean_is_no_number_of_a_run(key: str, right: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"^{key} should be a number, got True$"):
        parse_settings(with_values(right, {key: True}))


@pytest.fixture(scope="module")
def right() -> dict[str, Any]:
    return compose_settings([])


def test_about_the_run(right: dict[str, Any]) -> None:
    said = set(refusals(parse_settings, right))
    for section in ("checkpoint", "validation"):
        said |= set(refusals(lambda values, at=section: parse_settings({**right, at: values}), {"every": 1}))
    assert len(said) > 50
    assert not [line for line in said if any(word in line for word in LIBRARY)]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"checkpoint": {"every": "5x"}},
            "checkpoint.every: expected a number of steps, a duration such as 30s, ",
        ),
        ({"checkpoint": 5}, "checkpoint should be a section of settings, got 5"),
        ({"curves": "maybe"}, "curves should be true or false, got 'maybe'"),
        ({"memory_budget": "1GB"}, "memory_budget should be a valid integer, got '1GB'"),
        ({"seed": 16**20_000}, "seed should be less than 9223372036854775808, got an integer of 80001 bits"),
        ({"plugins": "mine"}, "plugins should be a list, got 'mine'"),
        ({"steps": 5}, "steps: there is no such setting; did you mean algorithm.steps?"),
    ],
)
def test_what_is_said(values: dict[str, Any], said: str, right: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refused:
        parse_settings({**right, **values})
    assert str(refused.value).startswith(said)
