"""Every setting of every part, with values of every wrong kind: refused in words of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nsvm_cli.cli.hydra_app import compose_section, compose_settings, conf_folder
from nsvm_cli.config.settings import parse_settings
from nsvm_cli.datasets import build_source
from nsvm_cli.errors import InputError
from nsvm_cli.models.kernels import build_kernel
from nsvm_cli.models.networks import build_network
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
        said = set(refusals(BUILD[group], compose_section(group, file.stem)))
        assert said
        assert not [line for line in said if any(word in line for word in LIBRARY)]


def test_about_the_run() -> None:
    right = compose_settings([])
    said = set(refusals(parse_settings, right))
    for section in ("checkpoint", "validation"):
        said |= set(refusals(lambda values, at=section: parse_settings({**right, at: values}), {"every": 1}))
    assert len(said) > 50
    assert not [line for line in said if any(word in line for word in LIBRARY)]
