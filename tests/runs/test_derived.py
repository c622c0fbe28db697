"""Derived classes of parts have the default values and steps of their parents, and messages name them."""

from __future__ import annotations

import math
import re
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pydantic
import pytest
import torch

from nsvm_cli.compose.composition import compose_settings
from nsvm_cli.config.registry import STRICT, Registry
from nsvm_cli.config.settings import Settings, parse_settings, with_values
from nsvm_cli.datasets.image_files import CIFAR10
from nsvm_cli.engines.numba.code import is_usable
from nsvm_cli.errors import InputError
from nsvm_cli.estimators import NSVMClassifier
from nsvm_cli.models.networks import MLP, NETWORKS
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.loop import OnLog
from nsvm_cli.storage.state_dict import StateDict
from nsvm_cli.trainers import TRAINERS
from nsvm_cli.trainers.alg4 import Alg4
from nsvm_cli.trainers.svc import SVC
from tests.conftest import compile_units, few_steps

SHORT = {"steps": 20, "solver_steps": 20, "batch_size": 8, "lam": 0.1, "max_iter": 5, "landmarks": 9}
HOW = {"dtype": "float64", "device": "cpu", "validation.every": 10}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a table of real targets."""
    rows = [f"{math.sin(n)},{math.cos(3 * n)},{math.sin(n) ** 2 + n % 2}" for n in range(120)]
    (file := tmp_path_factory.mktemp("table") / "table.csv").write_text("\n".join(["a,b,label", *rows]))
    return file


@cache
def usual(*words: str) -> dict[str, Any]:
    return compose_settings([*words])


def words_of(kind: str, table: Path) -> list[str]:
    return {
        "two classes": ["dataset=ringnorm", "dataset.samples=120"],
        "several classes of images": ["dataset=digits", "dataset.classes=[0,1,2]", "dataset.fold=0/2"],
        "real targets": ["dataset=csv", f"dataset.path={table}", "task=regression"],
    }[kind] + ["dataset.validation=" + ("200" if "images" in kind else "20")]


def outcome(settings: Settings) -> tuple[list[dict[str, Any]], StateDict] | str:
    """Train, and return the records and tensors, or the error message if the settings are refused."""
    records: list[dict[str, Any]] = []
    try:
        experiment = prepare(settings)
    except InputError as error:
        return str(error)
    g = experiment.train([OnLog(lambda record: records.append({**record}))]).expansion
    theta = dict(experiment.F.network.state_dict())
    trees = torch.zeros(0) if g.alpha.numel() else g(experiment.problem.K, experiment.F(experiment.problem.x))
    return records, {**theta, "z": g.z, "alpha": g.alpha, "bias": torch.as_tensor(g.bias), "trees": trees}


def assert_equal(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, str):
        assert ours == theirs
        return
    timeless = [[{k: v for k, v in r.items() if k != "seconds"} for r in one[0]] for one in (ours, theirs)]
    assert repr(timeless[0]) == repr(timeless[1])
    torch.testing.assert_close(ours[1], theirs[1], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *product(sorted(TRAINERS), ["two classes"]),
        *product(["alg4", "svc", "trees"], ["several classes of images", "real targets"]),
    ],
)
def test_an_algorithm_without_a_body_is_the_one_that_it_derives_from(
    name: str, kind: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = TRAINERS[name]
    monkeypatch.setitem(TRAINERS, "mine", type("Mine", (parent,), {}))
    theirs = usual(f"algorithm={name}", *words_of("two classes", table))
    ours = with_values(theirs, {"algorithm.name": "mine"})
    if kind == "two classes":  # tuned values for other data are looked up in the same way
        composed = compose_settings(["algorithm=mine", *words_of(kind, table)])
        assert composed == ours
        assert [*composed["algorithm"]] == [*theirs["algorithm"]]
    else:
        data = {key: usual(*words_of(kind, table))[key] for key in ("dataset", "task")}
        ours, theirs = ({**settings, **data} for settings in (ours, theirs))
    values = SHORT | few_steps(name, 20)
    short = {f"algorithm.{key}": value for key, value in values.items() if key in theirs["algorithm"]}
    if theirs["network"]["name"] != "identity":
        short |= {"network": {"name": "mlp", "widths": [8, 6], "head": theirs["network"]["head"]}}
    if name in ("pegasos", "alg1", "alg2", "alg3", "alg4"):
        compile_units()
    engines = ["torch", *(["literal", *(["numba"] if is_usable() else [])] if kind == "two classes" else [])]
    for engine in engines:
        changes = {**HOW, **short, "engine": engine}
        one, other = (parse_settings(with_values(s, changes)) for s in (ours, theirs))
        expected = outcome(other)
        assert isinstance(expected, str) <= (engine == "numba"), "only engine=numba may be refused"
        if isinstance(expected, str):
            expected = re.sub(rf"(?<!engine=)\b{name}\b", "mine", expected.replace(parent.__name__, "Mine"))
        assert_equal(outcome(one), expected)


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Own(Alg4):
    """Overrides the default of one setting, and adds another setting."""

    batch_size: int = 16
    more: float = 2.0


class Narrow(MLP):
    def __init__(self, shape: tuple[int, ...], widths: list[int] = [7]) -> None:  # noqa: B006
        super().__init__(shape, widths)


def test_what_a_class_declares_itself_wins_over_the_values_that_it_inherits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TRAINERS, "own", Own)
    monkeypatch.setitem(NETWORKS, "narrow", Narrow)
    words = ["dataset=csv", "dataset.path=x.csv"]
    theirs = compose_settings(["algorithm=alg4", *words])
    ours = compose_settings(["algorithm=own", "network=narrow", *words])
    assert theirs["algorithm"]["batch_size"] == 128
    assert ours["algorithm"] == {**theirs["algorithm"], "name": "own", "batch_size": 16, "more": 2.0}
    usual = {key: theirs["network"][key] for key in ("normalize", "scale", "eps", "head")}
    assert ours["network"] == {"name": "narrow", "widths": [7], **usual}


@pytest.mark.parametrize("group", ["dataset", "network", "kernel", "loss", "optimizer", "logger"])
def test_a_part_without_a_body_has_the_values_of_its_parent(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = {"dataset": "digits", "network": "mlp", "kernel": "laplacian", "loss": "epsilon_insensitive"}
    parent = name.get(group, {"optimizer": "sgd", "logger": "wandb"}.get(group))
    registry = Registry.kinds[group]
    monkeypatch.setitem(registry, "mine", type("Mine", (registry[parent],), {}))
    words = [] if group == "dataset" else ["dataset=csv", "dataset.path=x.csv"]
    theirs, ours = (compose_settings([f"{group}={part}", *words]) for part in (parent, "mine"))
    assert ours == with_values(theirs, {f"{group}.name": "mine"})


def test_an_object_of_a_derived_class_has_the_other_parts_of_its_parent() -> None:
    mine = type("Mine", (SVC,), {})(lam=0.1)
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0)).numpy()
    theirs, ours = (
        NSVMClassifier(algorithm=algorithm, lam=lam) for algorithm, lam in (("svc", 0.1), (mine, None))
    )
    y = x[:, 0] > 0
    assert (ours.fit(x, y).decision_function(x) == theirs.fit(x, y).decision_function(x)).all()
    assert ours.settings_.network == theirs.settings_.network


def test_a_derived_data_set_has_the_cached_files_of_its_parent() -> None:
    assert type("Mine", (CIFAR10,), {})().folder == CIFAR10().folder
