"""Checkpoints of a stranger: refused by their sizes, before what is wrong in them is listed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nsvm_cli.errors import InputError
from nsvm_cli.runs.checkpoint import KIND, load_checkpoint
from nsvm_cli.storage import tensor_file


def test_circumstances_as_long_as_a_header_can_be(tmp_path: Path) -> None:
    content = {"numbers": {}, "environment": {f"{i:x}": 1 for i in range(100_000)}}
    tensor_file.write(tmp_path / "last.safetensors", KIND, content, {"F/x": torch.ones(1)})
    with pytest.raises(
        InputError, match=r"its settings and circumstances have [0-9]+ bytes, expected at most"
    ):
        load_checkpoint(tmp_path / "last.safetensors")
