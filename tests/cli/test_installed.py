"""A built wheel, run from a foreign folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


def test_the_wheel_carries_conf_and_the_command(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for file in (ROOT / "conf").rglob("*.yaml"):
        assert f"nsvm_cli/{file.relative_to(ROOT)}" in names
    for file in (ROOT / "nsvm_cli").rglob("*.jinja"):
        assert str(file.relative_to(ROOT)) in names
    assert not [name for name in names if name.startswith(("tests/", "outputs/", "scripts/"))]


# prints where the package is from, so that it is known to be the wheel's and not the checkout's
COMMANDS = """
import nsvm_cli
from nsvm_cli.cli import main

print(nsvm_cli.__file__)
train = "train algorithm=alg3 dataset=digits algorithm.steps=30 hydra.run.dir=run"
for line in (train, "evaluate run --json"):
    try:
        main(line.split())
    except SystemExit as exit:
        assert exit.code == 0
"""


def test_it_trains_and_evaluates_from_a_foreign_folder(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    assert "nsvm = nsvm_cli.cli:main" in next(site.glob("*.dist-info/entry_points.txt")).read_text()
    (foreign := tmp_path / "foreign").mkdir()
    # -P, as for the installed command: the current folder is not on the path
    command = [sys.executable, "-P", "-c", COMMANDS]
    env = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=foreign, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == str(site / "nsvm_cli" / "__init__.py")
    assert '"samples": 36' in done.stdout
