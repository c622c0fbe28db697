"""Engines of runs: which engine resumes a run, and remarks on slower engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")

import nsvm_cli.engines
from nsvm_cli.config.settings import parse_settings, plain, with_values
from nsvm_cli.errors import InputError
from tests.runs.test_train import VALUES, bits, go, interrupt, settings_with

pytestmark = pytest.mark.usefixtures("compiled")


def settings(**changes: Any) -> Any:
    """Return settings whose compiled steps other tests share, to save time."""
    return settings_with(dtype="float64", network=VALUES["network"] | {"normalize": True}, **changes)


@pytest.mark.parametrize(("before", "now"), [("torch", "numba"), ("numba", "torch")])
def test_another_engine_is_refused(before: str, now: str, tmp_path: Path) -> None:
    interrupt(tmp_path, settings(engine=before))
    with pytest.raises(InputError, match=f"engine was {before}.* and is {now}.*allow_mismatch=true"):
        go(tmp_path, settings(engine=now))
    result = go(tmp_path, settings(engine=now), allow_mismatch=True)
    assert (result["engine"], result["exact"]) == (now, False)


@pytest.mark.parametrize("before", ["torch", "numba"])
def test_auto_resumes_to_the_bit_with_the_engine_that_it_began_with(
    before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, half = tmp_path / "whole", tmp_path / "half"
    monkeypatch.setattr(nsvm_cli.engines, "pays_off", lambda *_: before == "numba")
    go(whole, settings())
    interrupt(half, settings())
    monkeypatch.setattr(nsvm_cli.engines, "pays_off", lambda *_: before == "torch")
    result = go(half, settings())
    assert (result["engine"], result["exact"]) == (before, True)
    assert bits(half) == bits(whole)


NAMED = "engine={} is used, because faster engines do not support {}"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"penalties.l1": 0.1}, NAMED.format("literal", "penalties")),
        ({"kernel.name": "laplacian"}, NAMED.format("torch", "kernel Laplacian")),
        ({"kernel.gradient": "spsa", "engine": "torch"}, None),
    ],
)
def test_a_slower_engine_is_named_once(
    changes: dict[str, Any], said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(nsvm_cli.engines, "pays_off", lambda *_: True)
    values = with_values(plain(settings()), {"algorithm.steps": 20, **changes})
    go(tmp_path, parse_settings(values), say=lines.append)
    assert lines == ([] if said is None else [said])
