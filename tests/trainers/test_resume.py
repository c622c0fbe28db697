"""Resumed runs equal uninterrupted runs bit for bit, in theta, g and records."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nsvm_cli.config.settings import flat
from nsvm_cli.engines import Engine, for_engine
from nsvm_cli.errors import InputError, NotFiniteError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF, Linear
from nsvm_cli.models.optimizers import SGD, Adam, Rule
from nsvm_cli.runs.loop import OnLog, record, run
from nsvm_cli.storage import tensor_file
from nsvm_cli.storage.state_dict import nested
from nsvm_cli.trainers import TRAINERS, build_trainer
from nsvm_cli.trainers.alg1 import MAINTENANCE
from nsvm_cli.trainers.pegasos import Pegasos
from tests.conftest import LOSSES, STEPPING, MakeSmall, parameters, short

STEPS, EVERY = 24, 6


def through_a_file(values: dict[str, Any], path: Path) -> dict[str, Any]:
    parts = flat(values, "/")
    tensors = {key: value for key, value in parts.items() if isinstance(value, torch.Tensor)}
    numbers = {key: value for key, value in parts.items() if key not in tensors}
    tensor_file.write(path, "test", {"numbers": numbers}, tensors)
    file = tensor_file.read(path, "test")
    return nested({**file.tensors(), **file.content["numbers"]})


MLP = {"name": "mlp", "widths": [8, 6], "normalize": True}
SCHEDULED = SGD(0.01, momentum=0.9, weight_decay=0.01, schedule="cosine", warmup=0.3)
CASES: list[tuple[dict[str, Any], Rule, str, int | None]] = [
    (MLP, SCHEDULED, "two classes", None),
    ({"name": "mlp", "widths": [8, 6], "dropout": 0.3}, SCHEDULED, "three classes", 4),
    ({"name": "identity"}, SGD(0.01), "three classes", 3),
    (MLP, Adam(0.01), "real targets", None),
]
"""Networks, optimizers, kinds of task, and batch sizes (None: the algorithm's default)."""


LITERAL: dict[str, dict[str, Any]] = {
    "alg1": {},
    **{f"alg1 {how}": {"budget": 7, "maintenance": how, "refresh_every": 2} for how in sorted(MAINTENANCE)},
    "alg2 exact": {"projection": "exact", "objective": "alg1"},
    "alg3 derived": {"objective": "derived"},
    "alg4 averaged": {"average": 0.9},
}
"""Options of the algorithms that run with ``engine=literal``."""


@pytest.mark.parametrize(
    ("name", "engine", "case"),
    [
        *product(sorted({*STEPPING, "svc"}), ["torch"], CASES[:1]),
        *((f"{name} weighted", "torch", CASES[1]) for name in ("cross_entropy", "alg1", "alg2", "svc")),
        ("alg4 weighted penalised", "torch", CASES[1]),
        *product(["alg1", "alg2"], ["torch"], CASES[2:3]),
        *product(["alg1", "cross_entropy", "svc"], ["torch"], CASES[3:]),
        *product(["alg1", "alg1 removal", "alg3 derived", "alg4 averaged"], ["literal"], CASES[:1]),
        *product(["alg1 projection", "alg1 merging", "alg2 exact penalised"], ["literal"], CASES[1:2]),
    ],
)
def test_a_resumed_run_has_the_same_bits(
    name: str, engine: Engine, case: Any, small: MakeSmall, tmp_path: Path
) -> None:
    network, rule, kind, k = case
    svm = TRAINERS[name.split()[0]].trains_svm
    network, K = (network, RBF(1.0)) if svm else ({**network, "head": True}, Linear())
    s = small(1, network=network, K=K, m=60, loss=LOSSES[kind])
    if "penalised" in name:
        s.problem = replace(s.problem, penalties={"entropy": 1, "identity": 1, "ones": 1, "l1": 1e-3})
    if "weighted" in name:
        s.problem = replace(s.problem, weights=np.linspace(0.5, 1.5, 60))
    options = LITERAL.get(name.removesuffix(" penalised"), {}) | ({"lam": 1e-2} if svm else {})
    trainer = short(name.split()[0], STEPS, k, engine, **options)

    def theta() -> FeatureMap:
        return FeatureMap(deepcopy(s.network), rule, seed=5)

    whole: list[Any] = []
    twin = run(trainer, s.problem, theta(), EVERY, [OnLog(whole.append)])
    rng = random.Random(f"{name} {kind}")
    stops = [int(rng.choice(third)) for third in np.array_split(range(2, trainer.total), 3)]
    pieces: list[Any] = []
    F, state = theta(), None
    for stop in stops:
        state = state or trainer.start(s.problem, F)
        while state.t < stop:
            trainer.advance(s.problem, state, min(stop, state.t + EVERY - state.t % EVERY))
            if state.t % EVERY == 0:
                pieces.append(record(state))
                state.tally.clear()
        values = {"F": F.state_dict(), "state": state.state_dict()}
        values = through_a_file(values, tmp_path / "state")
        F = theta()
        F.load_state_dict(values["F"])
        state = trainer.restore(s.problem, F, values["state"])
        assert state.t == stop
    state = run(trainer, s.problem, F, EVERY, [OnLog(pieces.append)], state)
    assert state.violations > 2 or not svm or trainer.chooses_steps
    assert pieces == whole
    if not F.fixed:
        assert torch.equal(parameters(F.network), parameters(twin.F.network))
    ours, theirs = trainer.finish(s.problem, state), trainer.finish(s.problem, twin)
    biases = map(torch.as_tensor, (ours.bias, theirs.bias))
    for a, b in [(ours.z, theirs.z), (ours.alpha, theirs.alpha), tuple(biases)]:
        assert torch.equal(a, b)
    assert (ours.scale, F.theta_steps) == (theirs.scale, twin.F.theta_steps)


def test_a_field_that_cannot_be_saved_is_refused(small: MakeSmall) -> None:
    s, trainer = small(1), Pegasos(50)
    state = trainer.start(s.problem, s.theta())
    state.violations = {1}  # type: ignore[assignment]
    with pytest.raises(
        InputError,
        match=r"field violations cannot be saved.*set; .* without checkpoints, set checkpoint\.every=null",
    ):
        state.state_dict()


def test_the_state_of_another_run_is_refused(small: MakeSmall) -> None:
    s, other = small(1), small(1, m=20)
    trainer = for_engine("torch", build_trainer({"name": "alg2", "steps": 50}))
    state = trainer.start(s.problem, F := s.theta())
    trainer.advance(s.problem, state, 40)
    saved, theta = state.state_dict(), F.state_dict()
    with pytest.raises(ValueError, match="support: expected different indices from 0 to 19"):
        trainer.restore(other.problem, other.theta(), saved)
    with pytest.raises(ValueError, match=r"expected the keys t, .*, got t, "):
        build_trainer({"name": "alg1", "steps": 50}).restore(s.problem, s.theta(), saved)
    for changed in [
        {**saved, "t": True},
        {**saved, "coefficients": 3},
        {**saved, "extra": 1},
        {**saved, "engine": {**saved["engine"], "mean_gap": -1.0}},
    ]:
        with pytest.raises((ValueError, TypeError)):
            trainer.restore(s.problem, s.theta(), changed)
    alg1 = build_trainer({"name": "alg1", "steps": 50})
    saved = alg1.start(s.problem, s.theta()).state_dict()
    for rows, said in [
        (torch.tensor([40]), "i: expected indices below 40"),
        (torch.tensor([1, 2]), "expected i, z and alpha of the same length"),
    ]:
        with pytest.raises(ValueError, match=said):
            alg1.restore(s.problem, s.theta(), {**saved, "i": rows})
    narrow = small(1, network={"name": "mlp", "widths": [8, 5], "normalize": True})
    with pytest.raises(ValueError, match=r"expected torch\.float64 \[5, 8\]"):
        narrow.theta().load_state_dict(theta)
    with pytest.raises(ValueError, match="means"):
        FeatureMap(deepcopy(s.network), Adam(), 0).load_state_dict(theta)


def test_an_error_of_part_2_counts_the_steps_of_part_1(small: MakeSmall) -> None:
    s = small(1)
    trainer = build_trainer({"name": "alg4", "steps": 3, "solver_steps": 10, "lam": 1e-310, "batch_size": 4})
    with pytest.raises(NotFiniteError, match="the decision value g is not finite at step 5") as caught:
        trainer.advance(s.problem, trainer.start(s.problem, s.theta()), 13)
    assert caught.value.step == 3 + 2  # the first step of Part 2 only initialises
