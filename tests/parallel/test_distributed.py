"""Several processes give the single process's result, for every algorithm, with and without dropout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nsvm_cli.engines import select
from nsvm_cli.errors import InputError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernel_gradients import build_gradient, with_gradient
from nsvm_cli.models.kernels import Linear
from nsvm_cli.models.networks import Identity
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.parallel.distributed import Processes
from nsvm_cli.trainers import Problem, Trainer
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.alg2 import Alg2
from nsvm_cli.trainers.pegasos import Pegasos
from tests.cli.process import nsvm
from tests.conftest import LOSSES
from tests.every_algorithm import train_all

ROOT = Path(__file__).parents[2]
RUN = ["train", "algorithm=alg2", "dataset=digits", "dtype=float64", "algorithm.steps=100", "curves=false"]
PROCESSES = [2, *(pytest.param(number, marks=pytest.mark.thorough) for number in (3, 4))]

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.fixture(scope="module", params=PROCESSES)
def together(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, str]:
    """The folder that one torchrun has left behind, and what it printed to stdout and to stderr."""
    folder = tmp_path_factory.mktemp("together")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={request.param}", str(ROOT / "tests" / "every_algorithm.py"), "out", *RUN]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout, done.stderr


@pytest.fixture(scope="module")
def alone() -> dict[str, torch.Tensor]:
    return train_all(Processes())


@pytest.mark.parametrize("task", [*LOSSES, "spsa"])
def test_shards_add_up(task: str, together: tuple[Path, str, str], alone: dict[str, torch.Tensor]) -> None:
    ours = load_file(together[0] / "out")
    assert ours.keys() == alone.keys()
    for name, tensor in alone.items():
        if not name.startswith(task):
            continue
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")


def test_a_run_on_several_processes_is_one_run(together: tuple[Path, str, str], tmp_path: Path) -> None:
    """The first of them writes the run directory; the others leave nothing behind."""
    folder, printed, _ = together
    assert nsvm(*RUN, "hydra.run.dir=alone", cwd=tmp_path).returncode == 0
    (run,) = folder.glob("outputs/*/*")
    ours, theirs = (load_file(path / "final.safetensors") for path in (run, tmp_path / "alone"))
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=1e-10)
    assert printed.count("test accuracy") == 1


def test_an_algorithm_of_ones_own_takes_its_steps_in_a_single_process() -> None:
    """Its steps need not sum over the support vectors of the others; those of a registered one do."""
    own = type("Own", (Pegasos,), {})
    x = torch.randn(6, 2)
    problem = Problem(x, torch.ones(6), Linear(), seed=0, processes=Processes(0, 2))
    F = FeatureMap(Identity((2,)), SGD(0.1), dropout_seed=0)
    assert select("torch", Pegasos(10), problem, F) == "torch"
    options: list[Trainer[Any]] = [
        Alg1(10, budget=5),
        Alg1(10, refresh_every=1),
        Alg2(10, projection="exact"),
    ]
    refused = [("auto", own(10)), ("torch", own(10)), ("literal", Pegasos(10))]
    for asked, trainer in [*refused, *(("auto", t) for t in options)]:
        with pytest.raises(InputError, match="takes its steps in a single process"):
            select(asked, trainer, problem, F)  # type: ignore[arg-type]


def test_random_directions_of_shards_are_refused() -> None:
    """In Algorithm 2, each process would draw those of its own support vectors, unlike a single one."""
    x = torch.randn(6, 2)
    F = FeatureMap(Identity((2,)), SGD(0.1), dropout_seed=0)

    def chosen(trainer: Trainer[Any], how: str) -> str:
        K = with_gradient(Linear(), build_gradient({"gradient": how}))
        return select("auto", trainer, Problem(x, torch.ones(6), K, seed=0, processes=Processes(0, 2)), F)

    assert (chosen(Alg2(10), "finite_difference"), chosen(Alg1(10), "spsa")) == ("torch", "torch")
    with pytest.raises(InputError, match=r"algorithm=alg2 and .* of kernel\.gradient takes its"):
        chosen(Alg2(10), "spsa")


def test_a_signal_to_any_process_counts_for_all(together: tuple[Path, str, str]) -> None:
    assert together[2].count("checkpoint after step ") == 1


def test_a_sweep_on_several_processes_is_refused(tmp_path: Path) -> None:
    done = nsvm("train", "-m", "seed=0,1", cwd=tmp_path, env={"WORLD_SIZE": "2"})
    assert done.returncode != 0
    assert "expected one run under torchrun" in done.stderr


def test_gathering_restores_the_order() -> None:
    rows = torch.arange(7)
    shards = [Processes(rank, 3).shard(rows) for rank in range(3)]
    assert [shard.tolist() for shard in shards] == [[0, 3, 6], [1, 4], [2, 5]]
    assert all(Processes(rank, 3).owns(int(row)) for rank, shard in enumerate(shards) for row in shard)
