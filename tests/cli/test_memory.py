"""Tables above the memory budget are refused, and failed allocations are reported in one line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.cli.process import evaluated, nsvm, refusal, trained

PLUGIN = """
import torch
from pydantic.dataclasses import dataclass
from nsvm_cli.datasets import DATASETS
from nsvm_cli.datasets.base import Source

@dataclass(frozen=True, kw_only=True)
class Greedy(Source):
    def load(self, rng):
        {allocation}

DATASETS["ringnorm"] = Greedy
"""
SHORT = ("algorithm=alg1", "algorithm.steps=5", "curves=false", "engine=literal")


@pytest.mark.parametrize("allocation", ["torch.empty(2**50)", "bytearray(2**60)"])
def test_an_allocation_that_fails_is_one_line(allocation: str, tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(PLUGIN.format(allocation=allocation))
    done = nsvm("train", "plugins=[greedy]", "~dataset.samples", cwd=tmp_path, code=1)
    assert done.stderr.startswith("nsvm: out of memory: ")
    assert done.stderr.count("\n") == 1


def test_memory_budget_decides_how_large_a_table_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsvm_cli.memory.MEMORY_BUDGET", 1)
    rows = "".join(f"{i % 7}.5\t{i % 5}.25\t{400 * 'yn'[i % 2]}\n" for i in range(3_000))
    file = tmp_path / "table" / "table.tsv.gz"
    file.parent.mkdir()
    file.write_bytes(gzip.compress(f"a\tb\ttarget\n{rows}".encode(), 0))
    csv = [f"dataset.path={file}", r"dataset.separator=\t", "dataset.label=target"]
    for words in (["dataset=csv", *csv], ["dataset=pmlb", "dataset.table=table", "dataset.root=."]):
        said = refusal("train", *words, "memory_budget=1", cwd=tmp_path)
        assert said.endswith("more than memory_budget=1; set memory_budget=2 or use fewer samples")
    run, _ = trained(*words, *SHORT, "memory_budget=4", cwd=tmp_path)
    monkeypatch.setattr("nsvm_cli.artifacts.model_file.MEMORY_BUDGET", 1)
    assert "more than memory_budget=1" in nsvm("evaluate", run, cwd=tmp_path, code=2).stderr
    assert evaluated(run, "--memory-budget", "4", cwd=tmp_path)["samples"] == 300
