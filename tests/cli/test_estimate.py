"""``nsvm train --estimate``: what a run will take, and nothing on the disk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.process import nsvm

pytestmark = pytest.mark.usefixtures("unchecked")

WORDS = ["algorithm=alg4", "dataset.samples=300", "algorithm.split=[20,100]", "engine=torch"]


def test_an_estimate_leaves_no_file(tmp_path: Path) -> None:
    done = nsvm("train", *WORDS, "--estimate", "hydra.run.dir=runs/one", cwd=tmp_path, code=0)
    shown = {
        name: cells
        for name, *cells in (re.split(r" {2,}", line.strip()) for line in done.stdout.splitlines())
    }
    assert shown["samples"] == ["300", "270 train, 30 test"]
    assert shown["time of Part 1"][1] == "from 20 of 20 steps"
    assert shown.keys() >= {"epochs", "engine", "time of Part 2", "training time", "support vectors"}
    assert list(tmp_path.iterdir()) == []
