"""A built wheel, installed in an environment of its own and run from a foreign folder."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cli.process import nsvm

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
    assert not [name for name in names if name.startswith(("tests/", "outputs/", "scripts/"))]


def test_it_trains_and_evaluates_from_a_foreign_folder(wheel: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    # the libraries of this environment, but not this checkout: its editable link is a .pth file
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=60)
    site = next((venv / "lib").glob("python*/site-packages"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(pip, check=True, timeout=120, capture_output=True)
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    command = [str(venv / "bin" / "python"), "-m", "nsvm_cli"]
    env = {"PYTHONPATH": libraries}

    where = [str(venv / "bin" / "python"), "-c", "import nsvm_cli; print(nsvm_cli.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    if str(site) not in found.stdout:  # PYTHONPATH comes first: put the wheel before it
        env = {"PYTHONPATH": f"{site}:{libraries}"}
    words = ["algorithm=alg3", "dataset=digits", "algorithm.steps=30", "hydra.run.dir=run"]
    done = nsvm("train", *words, cwd=tmp_path, env=env, command=command)
    assert done.returncode == 0, done.stderr
    done = nsvm("evaluate", "run", "--json", cwd=tmp_path, env=env, command=command)
    assert done.returncode == 0, done.stderr
    assert '"samples": 36' in done.stdout
