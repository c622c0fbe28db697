"""The GPU of each job of a sweep. The test requires no GPU."""

from __future__ import annotations

import pytest
import torch

from nsvm_cli.parallel.device import take_turns


@pytest.mark.parametrize(("gpus", "used"), [(0, []), (1, []), (2, [0, 1, 0, 1]), (3, [0, 1, 2, 0])])
def test_jobs_of_a_sweep_take_turns(gpus: int, used: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    for job in range(4):
        take_turns(job)
    assert chosen == used
