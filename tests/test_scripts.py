"""The scripts are seldom run: that they import shows that they still fit the package.

``scripts/setup`` and ``scripts/test`` run in a folder of their own, with commands that only say they ran.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"


@pytest.mark.parametrize("package", sorted(folder.parent.name for folder in SCRIPTS.glob("*/__main__.py")))
def test_every_module_imports(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    for file in sorted((SCRIPTS / package).glob("*.py")):
        importlib.import_module(f"{package}.{file.stem}")


@pytest.mark.parametrize("algorithm", ["alg2", pytest.param("alg3", marks=pytest.mark.thorough)])
def test_the_eager_loop_goes_on_where_a_trainer_is(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    trainers: Any = importlib.import_module("benchmarks.trainers")
    words = "dataset=ringnorm", "dtype=float64", "network.dropout=0", "engine=torch", "algorithm.steps=300"
    experiment = trainers.Cell("ringnorm", algorithm, words).prepare(0)
    trainer, problem = experiment.trainer, experiment.problem
    state = trainer.start(problem, experiment.F)
    trainer.advance(problem, state, 200)
    eager, k = trainers.eager_from(experiment, state), trainer.k
    steps = eager.algorithm_2(300, begin=200) if k == 1 else eager.algorithm_3(300, k, begin=200)
    trainers.exhaust(steps)
    trainer.advance(problem, state, 300)
    ours = torch.from_numpy(state.coefficients.alpha) * problem.y
    assert len(eager.j) > 20
    torch.testing.assert_close(eager.alpha, ours, rtol=0, atol=1e-10)


def test_the_constraints_name_every_package() -> None:
    """The direct and the indirect ones, but not CUDA, which comes with the torch that asks for it."""
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


FAKE_PYTHON = """\
#!/bin/sh
case "$*" in
"-m venv "*)
    mkdir -p "$3/bin" "$3/lib"
    touch "$3/pyvenv.cfg"
    cp "$0" "$3/bin/python"
    echo venv >> calls;;
"-m pip install "*)
    mkdir pip-at-work || echo "two at once" >> calls
    for package; do :; done
    echo "$package" >> calls
    touch .venv/lib/half-installed
    sleep 0.1
    rmdir pip-at-work
    [ "$package" != "$INTERRUPTED_AT" ] || exit 130
    mv .venv/lib/half-installed ".venv/lib/$package";;
"-m pip --version" | "-c ") ;;
*) exec {python} -S "$@";;
esac
"""
ALL = ["torch", ".[fast]"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing but what the scripts read."""
    (tmp_path / "scripts").mkdir()
    for script in ("setup", "test"):
        shutil.copy(SCRIPTS / script, tmp_path / "scripts")
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "constraints.txt").write_text("# exact versions\na==1\nb==1; old\nb==2; new\n")
    (tmp_path / "python").write_text(FAKE_PYTHON.replace("{python}", sys.executable))
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def start(checkout: Path, script: str = "setup", **env: str) -> subprocess.Popen[bytes]:
    environment = {"PATH": os.environ["PATH"], "PYTHON": str(checkout / "python"), **env}
    return subprocess.Popen(
        f"scripts/{script}".split(), cwd=checkout, env=environment, stderr=subprocess.DEVNULL
    )


def calls(checkout: Path, **env: str) -> list[str]:
    """Set up, and return the environments that it made and what it installed."""
    (checkout / "calls").write_text("")
    assert start(checkout, **env).wait(20) == 0
    return (checkout / "calls").read_text().split("\n")[:-1]


def test_of_two_set_ups_at_once_the_second_waits(checkout: Path) -> None:
    setups = [start(checkout) for _ in range(2)]
    assert [setup.wait(20) for setup in setups] == [0, 0]
    assert (checkout / "calls").read_text().split() == ["venv", *ALL]
    assert calls(checkout) == []


@pytest.mark.parametrize("package", ALL)
def test_an_interrupted_set_up_is_started_over(package: str, checkout: Path) -> None:
    assert start(checkout, INTERRUPTED_AT=package).wait(20) != 0
    assert (checkout / ".venv" / "lib" / "half-installed").exists()
    assert calls(checkout) == ["venv", *ALL]
    assert sorted(file.name for file in (checkout / ".venv" / "lib").iterdir()) == sorted(ALL)
    assert calls(checkout) == []


def test_an_interrupted_update_is_started_over(checkout: Path) -> None:
    assert start(checkout, "setup dev").wait(20) == 0
    (checkout / "constraints.txt").write_text("a==2\n")
    assert start(checkout, INTERRUPTED_AT="torch").wait(20) != 0
    assert calls(checkout) == ["venv", *ALL]
    (checkout / "constraints.txt").write_text("a==3\n")
    assert calls(checkout) == ALL, "a whole environment is brought up to date"


def test_a_folder_that_is_no_environment_keeps_its_files(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "mine").touch()
    assert calls(checkout) == ["venv", *ALL]
    assert (checkout / ".venv" / "mine").exists()


def test_the_gate_adds_what_a_run_does_not_need(checkout: Path) -> None:
    before = calls(checkout)
    assert start(checkout, "setup dev").wait(20) == 0
    assert (checkout / "calls").read_text().split() == [*before, "torch", ".[dev]"]
    assert calls(checkout) == [], "that is enough for a run"
    (checkout / ".venv" / "bin" / "python").unlink()
    assert calls(checkout) == ["venv", *ALL], "an environment whose Python is gone is made anew"


def test_versions_to_have_instead(checkout: Path) -> None:
    (checkout / "newer.txt").write_text("# the newest b\nb==3\n")
    assert calls(checkout, CONSTRAINTS="newer.txt") == ["venv", *ALL]
    used = (checkout / ".venv" / "constraints.txt").read_text()
    assert [line for line in used.splitlines() if "==" in line] == ["b==3", "a==1"]
    assert calls(checkout) == ALL, "without them, another environment is asked for"


FAKE_TOOL = """\
#!/bin/sh
name=$(basename "$0")
echo "$name" >> calls
touch "began-$name"
for i in $(seq 300); do [ -e "began-{other}" ] || sleep 0.01; done
[ -e "began-{other}" ] && [ "$name" != "$FAILING" ]
"""
GATE = ["ruff", "ruff", "mypy", "sphinx-build", "pytest"]


def ran(checkout: Path, script: str, failing: str, side_by_side: dict[str, str]) -> tuple[int, list[str]]:
    """Run the gate with tools of which some wait for each other, and return its exit code and what it ran."""
    assert start(checkout, "setup dev").wait(20) == 0
    for tool in GATE:
        file = checkout / ".venv" / "bin" / tool
        file.write_text(FAKE_TOOL.replace("{other}", side_by_side.get(tool, tool)))
        file.chmod(0o755)
    (checkout / "calls").write_text("")
    code = start(checkout, script, FAILING=failing).wait(20)
    return code, sorted((checkout / "calls").read_text().split())


@pytest.mark.parametrize(
    ("failing", "number"), [("", 5), ("ruff", 1), ("mypy", 4), ("sphinx-build", 4), ("pytest", 5)]
)
def test_what_fails_ends_the_gate(failing: str, number: int, checkout: Path) -> None:
    """And types and documents are checked side by side: here, neither ends before the other has begun."""
    side_by_side = {"mypy": "sphinx-build", "sphinx-build": "mypy"}
    assert ran(checkout, "test", failing, side_by_side) == (1 if failing else 0, sorted(GATE[:number]))


@pytest.mark.parametrize("failing", ["", "mypy", "pytest"])
def test_the_fast_gate_builds_no_documents(failing: str, checkout: Path) -> None:
    found = ran(checkout, "test --fast", failing, {"mypy": "pytest", "pytest": "mypy"})
    assert found == (1 if failing else 0, ["mypy", "pytest", "ruff", "ruff"])
