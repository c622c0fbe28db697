"""Frozen parts of theta, groups with separate optimizer settings, and the initial theta."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from nsvm_cli.artifacts.model_file import load_model
from nsvm_cli.errors import InputError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import KERNELS, Gram, Kernel, Linear, Others, Points, squared_distances
from nsvm_cli.models.networks import NETWORKS
from nsvm_cli.models.optimizers import SGD, Adam
from nsvm_cli.runs.experiment import Experiment, prepare
from tests.conftest import batch
from tests.small_runs import small_run, small_settings


def network() -> nn.Sequential:
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    return nn.Sequential(first, nn.Linear(4, 2)).double().eval()


def moved(F: FeatureMap, steps: int = 3) -> dict[str, Tensor]:
    """Return the change of each parameter and buffer of the network after a few steps."""
    before, x = deepcopy(F.network.state_dict()), batch(torch.randn(8, 3, dtype=torch.float64))
    for t in range(1, steps + 1):
        F.descend(lambda F, K: K(F(x), F(x)).sum(), Linear(), t, steps)
    return {name: after - before[name] for name, after in F.network.state_dict().items()}


def test_what_is_frozen_stays_with_its_statistics() -> None:
    assert all(change.any() for change in moved(FeatureMap(network(), SGD(0.1), 0)).values())
    changes = moved(FeatureMap(network(), SGD(0.1), 0, freeze=["0"]))
    assert {name for name, change in changes.items() if change.any()} == {"1.weight", "1.bias"}
    assert FeatureMap(network(), SGD(0.1), 0, freeze=["0", "1"]).fixed
    with pytest.raises(InputError, match=r"freeze: no parameter or module has the name '2'; expected one of"):
        FeatureMap(network(), SGD(0.1), 0, freeze=["2"])


@pytest.mark.parametrize("rule", [SGD, Adam])
def test_groups_move_by_their_own_rules(rule: type[SGD]) -> None:
    groups: dict[str, dict[str, Any]] = {"0": {"lr": 0.0}, "0.1": {"lr": 0.01, "weight_decay": 0.5}}
    changes = moved(FeatureMap(network(), rule(lr=0.1, groups=groups), 0), steps=1)
    whole = moved(FeatureMap(network(), rule(lr=0.1), 0), steps=1)
    decayed = moved(FeatureMap(network(), rule(lr=0.01, weight_decay=0.5), 0), steps=1)
    for name, change in changes.items():
        if name.endswith(("weight", "bias")):
            expected = decayed if name.startswith("0.1") else whole
            torch.testing.assert_close(change, 0 * change if name.startswith("0.0") else expected[name])
    with pytest.raises(InputError, match=r"optimizer\.groups\.0\.lr should be greater than or equal to 0"):
        FeatureMap(network(), rule(lr=0.1, groups={"0": {"lr": -1.0}}), 0)
    with pytest.raises(
        InputError, match=r"optimizer\.groups\.kernel: no parameter or module has the name 'kernel'"
    ):
        FeatureMap(network(), rule(lr=0.1, groups={"kernel": {"lr": 1.0}}), 0)


def test_groups_keep_their_state() -> None:
    """A restored feature map has the momenta of all groups."""

    def start() -> FeatureMap:
        return FeatureMap(network(), SGD(0.1, momentum=0.9, groups={"0": {"lr": 0.01}}), 0)

    F, again = start(), start()
    moved(F)
    again.load_state_dict(F.state_dict())
    torch.manual_seed(1)
    ours = moved(F)
    torch.manual_seed(1)
    assert all(change.equal(ours[name]) for name, change in moved(again).items())


def at_start(run: Path | str, only: list[str] | None = None, **changes: Any) -> Experiment:
    return prepare(small_settings(init={"run": str(run), "only": only or []}, **changes))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("init") / "run"
    small_run(folder, kernel={"name": "rbf", "learn": ["gamma"]})
    return folder


def test_theta_starts_at_that_of_a_run_with_any_algorithm(run: Path, tmp_path: Path) -> None:
    kernel = {"name": "rbf", "learn": ["gamma"]}
    experiment = at_start(run, algorithm={"name": "alg1", "steps": 20}, kernel=kernel)
    F, at_random = experiment.F, prepare(small_settings()).F
    assert F.kernel_parameters["gamma"] != 0
    theirs, names = at_random.network.state_dict(), [*F.network.state_dict()]
    assert not any(F.network.state_dict()[n].equal(theirs[n]) for n in names)
    before, again = experiment.train().before_training().network, at_start(run, kernel=kernel).F.network
    assert before.state_dict()[names[0]].equal(again.state_dict()[names[0]])
    part = at_start(run / "final.safetensors", [names[0]], kernel=kernel).F.network.state_dict()
    assert [name for name in names if part[name].equal(theirs[name])] == names[1:]
    torch.save({"epoch": 1, "state_dict": {f"model.{n}": part[n] for n in names}}, tmp_path / "wrapped.pth")
    for name, write in (("plain.safetensors", save_file), ("plain.pth", torch.save), ("wrapped.pth", None)):
        if write is not None:
            write(dict(part), str(tmp_path / name))  # type: ignore[operator]
        loaded = at_start(tmp_path / name).F.network.state_dict()
        assert all(loaded[n].equal(part[n]) for n in names)


NORMALIZED = {"network": {"name": "mlp", "widths": [10, 6], "normalize": True}}
WITH_HEAD = {
    "network": {"name": "mlp", "widths": [10, 6], "normalize": True, "head": True},
    "algorithm": {"name": "cross_entropy", "steps": 20},
    "kernel": {"name": "linear"},
}


@pytest.mark.parametrize("there", [{}, NORMALIZED, WITH_HEAD])
def test_names_do_not_depend_on_what_is_added_to_a_network(there: Any, tmp_path: Path) -> None:
    assert small_run(tmp_path / "run", **there)["theta_steps"] == 20
    network = load_model(tmp_path / "run" / "final.safetensors").network
    trained = [p for name, p in network.named_parameters() if "layers." in name]
    for here in ({}, NORMALIZED, WITH_HEAD):
        only = ["layers"] if here is WITH_HEAD else []
        e = at_start(tmp_path / "run", only, **here, freeze=["layers.0"])
        started = [p for name, p in e.F.network.named_parameters() if "layers." in name]
        assert all(map(torch.equal, started, trained))
        assert [p.requires_grad for p in started] == [False, False, True, True]


def test_how_far_a_kernel_alone_has_moved(tmp_path: Path) -> None:
    kernel = {"name": "rbf", "gamma": 0.1, "learn": ["gamma"]}
    result = small_run(tmp_path / "run", network={"name": "identity"}, kernel=kernel)
    gamma = result["kernel_parameters"]["gamma"]
    assert result["theta_change"] == pytest.approx(abs(gamma / 0.1 - 1), rel=1e-3)
    assert gamma != 0.1


def test_a_theta_that_does_not_fit_is_refused(run: Path, tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pth")  # a pickled module, which must be refused
    torch.save(object, tmp_path / "evil.pth")
    wide, learning = {"name": "mlp", "widths": [10, 7]}, {"name": "rbf", "learn": ["gamma"]}
    cases: list[tuple[Path | str, list[str], dict[str, Any], str]] = [
        ("nowhere", [], {}, r"init\.run=nowhere: theta cannot be read from nowhere"),
        (
            tmp_path / "module.pth",
            [],
            {},
            r"module.pth: expected a state dict, as torch.save\(network.state_dict",
        ),
        (tmp_path / "evil.pth", [], {}, r"theta cannot be read from .*evil\.pth"),
        (run, [], {"network": wide}, r"1\.weight of shape \[7, 10\], found shape \[6, 10\]"),
        (
            *(run, ["kernle"], {"kernel": learning}),
            r"init\.only: no parameter or module has the name 'kernle'; expected one of: kernel.gamma",
        ),
        (
            *(run, [], {"kernel": {"name": "rbf", "ard": True}}),
            r"expected a parameter kernel\.ard of shape \[6\], found none \(but ",
        ),
    ]
    for path, only, changes, said in cases:
        with pytest.raises(InputError, match=said):
            at_start(path, only, **changes)


class Rooted(Kernel):
    """A kernel of distances, whose gradient is not finite at a = b."""

    def __call__(self, a: Points, b: Others) -> Gram:
        return (-squared_distances(a, b).sqrt()).exp()


@pytest.mark.parametrize(
    ("registry", "part", "said"),
    [
        (NETWORKS, lambda shape: nn.Flatten(0), r"network mine: expected features .* got shape \(20,\)"),
        (KERNELS, Rooted, "kernel mine: the gradient is not finite where a = b; apply .clamp_min"),
    ],
)
def test_a_part_that_could_not_be_trained_is_refused(
    registry: Any, part: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry, "mine", part)
    with pytest.raises(InputError, match=said):
        prepare(small_settings(**{"network" if registry is NETWORKS else "kernel": {"name": "mine"}}))


class Named(nn.Module):
    """A network with a parameter that has the name of the coefficients in a model file."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(*shape))

    def forward(self, x: Tensor) -> Tensor:
        return self.alpha * x


def test_theta_is_told_from_other_tensors_of_a_model_file(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKS, "named", Named)
    with pytest.raises(InputError, match=r"expected a parameter alpha of shape \[20\], found none"):
        at_start(run, network={"name": "named"})
