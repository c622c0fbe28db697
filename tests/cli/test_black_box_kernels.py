"""Kernels without gradients: the example of the how-to page."""

from __future__ import annotations

from pathlib import Path

from tests.cli.process import evaluated, trained
from tests.cli.test_plugins import PAGE, write_files_of


def test_the_quantum_kernel_of_the_page_is_trained_from_its_values(tmp_path: Path) -> None:
    write_files_of(PAGE.read_text(), tmp_path)  # my_parts.py, which defines the data set moons
    files = write_files_of(PAGE.with_name("black-box-kernels.md").read_text(), tmp_path)
    assert files == {"quantum.py"}
    words = ["plugins=[my_parts,quantum]", "dataset=moons", "kernel=quantum", "kernel.gradient=spsa"]
    words += ["algorithm=alg4", "algorithm.steps=300", "network.widths=[16,2]", "optimizer.lr=1e-3"]
    run, result = trained(*words, "curves=false", cwd=tmp_path)
    assert evaluated(run, "--plugins=my_parts,quantum", cwd=tmp_path)["errors"] == result["test_errors"]
    frozen = trained(*words, "curves=false", "optimizer.lr=0", "overwrite=true", cwd=tmp_path)[1]
    assert result["theta_change"] > 0 == frozen["theta_change"]
    assert result["test_errors"] < frozen["test_errors"]
