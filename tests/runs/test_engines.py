"""Runs whose steps are compiled: what they say, and with what they resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")

import nsvm_cli.engines
from nsvm_cli.config.settings import parse_settings, plain, with_values
from nsvm_cli.errors import InputError, Interrupted
from nsvm_cli.runs.checkpoint import load_checkpoint
from nsvm_cli.storage.run_directory import checkpoints_in
from tests.runs.test_train import bits, go, settings_with, stopped_at

pytestmark = pytest.mark.usefixtures("unchecked")


def settings(**changes: Any) -> Any:
    return settings_with(dtype="float64", **changes)


def interrupt(path: Path, **changes: Any) -> None:
    with pytest.raises(Interrupted):
        go(path, settings(**changes), stopped_at(150))


def test_a_compiled_run_resumes_to_the_bit(tmp_path: Path) -> None:
    whole, half = tmp_path / "whole", tmp_path / "half"
    go(whole, settings(engine="numba"))
    interrupt(half, engine="numba")
    assert load_checkpoint(checkpoints_in(half)[0]).environment["engine"].startswith("numba 0.")
    assert go(half, settings(engine="numba"))["resumed"] == 1
    assert bits(half) == bits(whole)


@pytest.mark.parametrize(("before", "now"), [("torch", "numba"), ("numba", "torch")])
def test_another_engine_is_refused(before: str, now: str, tmp_path: Path) -> None:
    interrupt(tmp_path, engine=before)
    with pytest.raises(InputError, match=f"engine was {before}.* and is {now}.*allow_mismatch=true"):
        go(tmp_path, settings(engine=now))
    result = go(tmp_path, settings(engine=now), allow_mismatch=True)
    assert (result["engine"], result["exact"]) == (now, False)


@pytest.mark.parametrize("before", ["torch", "numba"])
def test_auto_goes_on_with_the_engine_that_it_began_with(
    before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nsvm_cli.engines, "pays_off", lambda *_: before == "numba")
    interrupt(tmp_path)
    monkeypatch.setattr(nsvm_cli.engines, "pays_off", lambda *_: before == "torch")
    result = go(tmp_path, settings())
    assert (result["engine"], result["exact"]) == (before, True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"penalties.l1": 0.1}, "engine=literal takes the steps: faster ones do not cover penalties"),
        (
            {"algorithm.objective": "alg1"},
            "engine=literal takes the steps: faster ones do not cover algorithm.objective=alg1",
        ),
        (
            {"kernel.gradient": "spsa"},
            "engine=torch takes the steps: faster ones do not cover kernel.gradient",
        ),
        (
            {"kernel.name": "laplacian"},
            "engine=torch takes the steps: faster ones do not cover kernel Laplacian",
        ),
        ({"kernel.gradient": "spsa", "engine": "torch"}, None),
    ],
)
def test_a_slower_engine_is_named_once(
    changes: dict[str, Any], said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(nsvm_cli.engines, "pays_off", lambda *_: True)
    go(tmp_path, parse_settings(with_values(plain(settings()), changes)), say=lines.append)
    assert lines == ([] if said is None else [said])
