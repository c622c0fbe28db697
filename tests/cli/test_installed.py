"""A built wheel outside of the checkout, and the types that users' type checkers see."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]


# prints the path of the package, which must be the wheel and not the checkout
COMMANDS = """
import nsvm_cli
from nsvm_cli.cli import main

print(nsvm_cli.__file__)
train = "train algorithm=alg3 dataset=digits algorithm.steps=30 engine=literal curves=false hydra.run.dir=run"
for line in (train, "evaluate run --json"):
    try:
        main(line.split())
    except SystemExit as exit:
        assert exit.code == 0
"""


def test_a_wheel_carries_conf_and_trains_and_evaluates_from_a_foreign_folder(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "site"
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    assert (site / "nsvm_cli" / "py.typed").exists()
    for file in (ROOT / "conf").rglob("*.yaml"):
        assert (site / "nsvm_cli" / file.relative_to(ROOT)).is_file()
    for file in (ROOT / "nsvm_cli").rglob("*.jinja"):
        assert (site / file.relative_to(ROOT)).is_file()
    assert not [name for name in ("tests", "outputs", "scripts") if (site / name).exists()]
    assert "nsvm = nsvm_cli.__main__:main" in next(site.glob("*.dist-info/entry_points.txt")).read_text()
    (foreign := tmp_path / "foreign").mkdir()
    # -P keeps the current folder off the path, as for the installed command
    command = [sys.executable, "-P", "-c", COMMANDS]
    env = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=foreign, env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == str(site / "nsvm_cli" / "__init__.py")
    assert '"samples": 36' in done.stdout


PROGRAM = """
from dataclasses import dataclass
from typing import assert_type

import numpy as np
import pandas as pd
from torch import Tensor

from nsvm_cli import NSVMClassifier, NSVMRegressor, load_model, load_runs
from nsvm_cli.metrics import metric
from nsvm_cli.models.kernels import KERNELS, Kernel, squared_distances
from nsvm_cli.models.nsvm import NSVM


@metric()
def share(y: np.ndarray, prediction: np.ndarray, weights: np.ndarray | None) -> float:
    return float((y == prediction).mean())


@KERNELS.register("matern52")
@dataclass(frozen=True)
class Matern52(Kernel):
    length: float = 1.0

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        d = assert_type(squared_distances(a, b), Tensor).sqrt() / self.length
        return (1 + d) * (-d).exp()


assert_type(Matern52(2.0).length, float)
X, y = np.eye(4), np.array([0, 1, 0, 1])
classifier = NSVMClassifier("alg4", kernel=Matern52(2.0), steps=10, settings={"metric": "share"}).fit(X, y)
assert_type(classifier, NSVMClassifier)
assert_type(classifier.history_, pd.DataFrame)
assert_type(classifier.predict(X), np.ndarray)
classifier.save("model.safetensors")
assert_type(NSVMRegressor.load("model.safetensors"), NSVMRegressor)
model = assert_type(load_model("model.safetensors"), NSVM)
assert_type(model.parameters, int)
assert_type(load_runs("outputs"), pd.DataFrame)
"""


@pytest.mark.thorough
def test_a_users_program_has_types(tmp_path: Path) -> None:
    """``mypy --strict`` accepts a program that uses the package, and infers the expected types."""
    (tmp_path / "program.py").write_text(PROGRAM)
    # report errors only in the program, as for an installed package
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "program.py"]
    env = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
