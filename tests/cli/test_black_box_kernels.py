"""Kernels without gradients: the example of the how-to page, and what a run with kernel.gradient leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nsvm_cli.errors import Interrupted
from tests.cli.process import evaluated, refusal, trained
from tests.cli.test_plugins import PAGE, write_files_of
from tests.runs.test_train import bits, go, settings_with, stopped_at

pytestmark = pytest.mark.usefixtures("unchecked")

PLUGINS = "plugins=[my_parts,quantum]"
SHORT = ["curves=false", "engine=torch", "network.widths=[6,2]", "algorithm.steps=20", "dataset.samples=60"]

OWN = """
import torch
from nsvm_cli.models.kernels import KERNELS, Kernel

class Own(Kernel):
    def __call__(self, a, b):
        values = (a.detach().double() @ b.detach().double().mT).numpy()
        return {returned}

KERNELS["own"] = Own
"""
NO_GRADIENT = "kernel Own returned values without a gradient: expected gradient: spsa or finite_difference"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """Return a folder with the files of the page, and of the one whose data set it uses."""
    write_files_of(PAGE.read_text(), tmp_path)
    files = write_files_of(PAGE.with_name("black-box-kernels.md").read_text(), tmp_path)
    assert files == {"quantum.py", "my_conf/kernel/quantum.yaml"}
    return tmp_path


def test_the_quantum_kernel_of_the_page_is_trained_from_its_values(example: Path) -> None:
    choice = [
        "dataset=moons",
        "kernel=quantum",
        "algorithm=alg4",
        "network.widths=[16,2]",
        "optimizer.lr=1e-3",
    ]
    words = ["--config-dir", "my_conf", PLUGINS, "curves=false", "algorithm.steps=600", *choice]
    run, result = trained(*words, cwd=example)
    assert evaluated(run, "--plugins=my_parts,quantum", cwd=example)["errors"] == result["test_errors"]
    frozen = trained(*words, "optimizer.lr=0", "overwrite=true", cwd=example)[1]
    assert result["theta_change"] > 0 == frozen["theta_change"]
    assert result["test_errors"] < frozen["test_errors"]


@pytest.mark.parametrize(
    ("returned", "how", "said"),
    [
        ("torch.from_numpy(values).to(a)", "null", NO_GRADIENT),
        (
            "torch.from_numpy(values)",
            "spsa",
            "kernel own returned (3, 5) of torch.float64 on cpu, expected (3, 5) of torch.float32 on cpu",
        ),
        ("values", "spsa", "kernel own returned ndarray, expected (3, 5)"),
    ],
)
def test_a_kernel_without_a_usable_value_is_one_line(
    returned: str, how: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN.format(returned=returned))
    (tmp_path / "conf" / "kernel").mkdir(parents=True)
    (tmp_path / "conf" / "kernel" / "own.yaml").write_text(f"name: own\ngradient: {how}\n")
    words = ["--config-dir", "conf", "plugins=[own]", "kernel=own", "algorithm=alg1", *SHORT]
    assert said in refusal("train", *words, cwd=tmp_path)


def test_a_resumed_run_draws_the_same_directions(tmp_path: Path) -> None:
    kernel: dict[str, Any] = {"name": "rbf", "gradient": {"name": "spsa", "samples": 2}}
    settings = settings_with(kernel=kernel, engine="torch", algorithm={"name": "alg2", "steps": 120})
    with pytest.raises(Interrupted):
        go(tmp_path / "half", settings, stopped_at(70))
    assert go(tmp_path / "half", settings)["resumed"] == 1
    go(tmp_path / "whole", settings)
    assert bits(tmp_path / "half") == bits(tmp_path / "whole")
