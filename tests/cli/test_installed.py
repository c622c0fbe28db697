"""A built wheel, run from a foreign folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]


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


def test_a_wheel_carries_conf_and_trains_and_evaluates_from_a_foreign_folder(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=PATIENCE)
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
    # -P, as for the installed command: the current folder is not on the path
    command = [sys.executable, "-P", "-c", COMMANDS]
    env = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=foreign, env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == str(site / "nsvm_cli" / "__init__.py")
    assert '"samples": 36' in done.stdout
