"""The means in the records of a run, and the sums from which they are computed."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean
from typing import Any

import pytest
import torch

from nsvm_cli.runs.loop import OnLog, run
from nsvm_cli.trainers.means import Tally
from tests.conftest import LOSSES, STEPPING, MakeSmall, short


@pytest.mark.parametrize(
    ("name", "kind", "k"),
    [
        *((name, "two classes", None) for name in sorted({*STEPPING} - {"cross_entropy"})),
        *(("pegasos", "real targets", None), ("alg1", "three classes", 3), ("alg4", "three classes", 3)),
    ],
)
def test_a_record_holds_means_since_the_record_before(
    name: str, kind: str, k: int | None, small: MakeSmall
) -> None:
    """A record of 7 steps has the means of the records of single steps. Real targets have no accuracy."""
    fine: list[dict[str, Any]] = []
    coarse: list[dict[str, Any]] = []
    s, trainer = small(1, loss=LOSSES[kind]), short(name, 23, k, lam=1e-2)
    for every, records in ((1, fine), (7, coarse)):
        run(trainer, s.problem, s.theta(), every, [OnLog(records.append)])
    for before, record in pairwise([{"step": 0}, *coarse]):
        each = [r for r in fine if before["step"] < r["step"] <= record["step"]]
        for key in ("objective", "violation_rate", "running_accuracy"):
            values = [r[key] for r in each if r[key] is not None]
            assert record[key] == (pytest.approx(mean(values)) if values else None), key
        if kind == "real targets":
            assert record["running_accuracy"] is None
        elif record["violation_rate"] is not None:
            assert 0 <= 1 - record["running_accuracy"] <= record["violation_rate"] + 1e-12


def test_means_of_a_tally() -> None:
    tally = Tally()
    assert set(tally.means().values()) == {None}
    tally.add_objective(torch.tensor(2.0))
    tally.add_decisions(4, correct=3, violations=2)
    assert tally.means() == {"objective": 2.0, "violation_rate": 0.5, "running_accuracy": 0.75}
    tally.clear()
    for _ in range(2):
        tally.add_objective(torch.tensor(1.7e308, dtype=torch.float64))
    assert tally.means()["objective"] is None, "expected None for an infinite sum, since JSON has no infinity"
