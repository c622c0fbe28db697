"""The scripts, which are seldom run, still fit the package, and the constraints are complete."""

from __future__ import annotations

import importlib
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nsvm_cli.trainers import TRAINERS

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"


def test_every_module_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    with mock.patch.dict(TRAINERS):  # studies.baselines registers methods
        for name in ("benchmarks", "studies", "trials"):
            for file in sorted((SCRIPTS / name).glob("*.py")):
                importlib.import_module(f"{name}.{file.stem}")


@pytest.mark.parametrize("algorithm", ["alg2", pytest.param("alg3", marks=pytest.mark.thorough)])
def test_the_eager_loop_goes_on_where_a_trainer_is(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    trainers: Any = importlib.import_module("benchmarks.trainers")
    words = "dataset=ringnorm", "dtype=float64", "network.dropout=0", "engine=torch", "algorithm.steps=150"
    experiment = trainers.Cell("ringnorm", algorithm, words).prepare(0)
    trainer, problem = experiment.trainer, experiment.problem
    state = trainer.start(problem, experiment.F)
    trainer.advance(problem, state, 100)
    eager, k = trainers.eager_from(experiment, state), trainer.k
    steps = eager.algorithm_2(150, begin=100) if k == 1 else eager.algorithm_3(150, k, begin=100)
    trainers.exhaust(steps)
    trainer.advance(problem, state, 150)
    ours = torch.from_numpy(state.coefficients.alpha) * problem.y
    assert len(eager.j) > 20
    torch.testing.assert_close(eager.alpha, ours, rtol=0, atol=1e-10)


def test_the_constraints_name_every_package() -> None:
    """Indirect dependencies count, except packages for CUDA, whose versions a torch with CUDA sets itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    named = {canonicalize_name(line.split("==")[0]) for line in pins}
    needed: set[tuple[str, str]] = set()
    found = [(line, "") for line in (*project["dependencies"], "nsvm[dev]")]
    while found:
        line, extra_of_parent = found.pop()
        package = Requirement(line)
        name = canonicalize_name(package.name)
        if package.marker and not package.marker.evaluate({"extra": extra_of_parent}):
            continue
        if name.startswith(("cuda-", "nvidia-", "triton")):
            continue
        for extra in {"", *package.extras} - {extra for known, extra in needed if known == name}:
            needed.add((name, extra))
            if name == "nsvm":
                found += [(line, "") for line in project["optional-dependencies"].get(extra, ())]
            else:
                found += [(line, extra) for line in requires(name) or []]
    assert {name for name, _ in needed} - named == {"nsvm"}
