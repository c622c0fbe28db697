"""Several processes give the single process's result, for every algorithm, with and without dropout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from nsvm_cli.parallel.distributed import Processes
from tests.cli.process import nsvm
from tests.every_algorithm import train_all

ROOT = Path(__file__).parents[2]


def torchrun(processes: int, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return nsvm(*words, cwd=cwd, env={"PYTHONPATH": str(ROOT)}, command=command)


@pytest.mark.parametrize("processes", [2, 4])
def test_shares_add_up(processes: int, tmp_path: Path) -> None:
    done = torchrun(processes, str(ROOT / "tests" / "every_algorithm.py"), "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    together, alone = load_file(tmp_path / "out"), train_all(Processes())
    assert together.keys() == alone.keys()
    for name, tensor in alone.items():
        torch.testing.assert_close(
            together[name], tensor, rtol=0, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_a_run_on_two_processes_is_one_run(tmp_path: Path) -> None:
    """The first of them writes the run directory; the other leaves nothing behind."""
    words = ["train", "algorithm=alg2", "dataset=digits", "dtype=float64", "algorithm.steps=300"]
    done = torchrun(2, "-m", "nsvm_cli", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert nsvm(*words, "hydra.run.dir=alone", cwd=tmp_path).returncode == 0
    (together,) = tmp_path.glob("outputs/*/*")
    theirs, ours = (load_file(run / "final.safetensors") for run in (tmp_path / "alone", together))
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=1e-10)
    assert done.stdout.count("test accuracy") == 1


def test_a_sweep_on_several_processes_is_refused(tmp_path: Path) -> None:
    done = torchrun(2, "-m", "nsvm_cli", "train", "-m", "seed=0,1", cwd=tmp_path)
    assert done.returncode != 0
    assert "expected one run under torchrun" in done.stderr


def test_gathering_restores_the_order() -> None:
    rows = torch.arange(7)
    shares = [Processes(rank, 3).shard(rows) for rank in range(3)]
    assert [share.tolist() for share in shares] == [[0, 3, 6], [1, 4], [2, 5]]
    assert all(Processes(rank, 3).owns(int(row)) for rank, share in enumerate(shares) for row in share)
