"""Rules for the code: imports point to lower floors, and each registered part has one YAML file."""

from __future__ import annotations

import ast
import graphlib
import re
from functools import cache
from itertools import zip_longest
from pathlib import Path

import pytest
import yaml

from nsvm_cli.cli.tune import USUAL
from nsvm_cli.compose.composition import TUNED_BY, compose_settings
from nsvm_cli.config.registry import build
from nsvm_cli.config.settings import Settings, flat, parse_settings
from nsvm_cli.datasets import DATASETS
from nsvm_cli.models.composed_kernels import build_kernel
from nsvm_cli.models.kernels import KERNELS
from nsvm_cli.models.losses import LOSSES
from nsvm_cli.models.networks import NETWORKS, build_network
from nsvm_cli.models.optimizers import OPTIMIZERS
from nsvm_cli.runs.loggers import LOGGERS
from nsvm_cli.trainers import TRAINERS, build_trainer
from nsvm_cli.trainers.samplers import SAMPLERS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nsvm_cli"
REGISTRIES = {
    "algorithm": TRAINERS,
    "dataset": DATASETS,
    "kernel": KERNELS,
    "logger": LOGGERS,
    "loss": LOSSES,
    "network": NETWORKS,
    "optimizer": OPTIMIZERS,
    "sampler": SAMPLERS,
}

# From the lowest floor to the highest. A module imports only from its own package and from lower floors.
FLOORS = [
    ["errors", "metrics", "output", "randomness"],
    ["memory", "plugins", "tasks", "words"],
    ["config"],
    ["storage"],
    ["datasets", "parallel"],
    ["models"],
    ["trainers"],
    ["engines"],
    ["artifacts"],
    ["runs"],
    ["page", "terminal"],
    ["comparison"],
    ["compose", "tuning"],
    ["cli", "estimators"],
]


MODULES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for file in PACKAGE.rglob("*.py")
}


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@cache
def nodes(file: Path) -> list[ast.AST]:
    return [*ast.walk(ast.parse(file.read_text()))]


@cache
def imports(file: Path) -> set[str]:
    """Return the modules that a file imports, including modules that it imports by name from a package."""
    found = set[str]()
    for node in nodes(file):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {module if module in MODULES else node.module for module in modules}
    return found


def test_imports_point_downwards() -> None:
    floor = {name: i for i, names in enumerate(FLOORS) for name in names}
    for file in PACKAGE.rglob("*.py"):
        here = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if here in ("__init__", "__main__"):
            continue
        for module in imports(file):
            if module.startswith("nsvm_cli.") and room(module) != here:
                assert floor[room(module)] < floor[here], f"{file.name} imports {module}"


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {module: imports(file) & MODULES.keys() - {module} for module, file in MODULES.items()}
    del graph["nsvm_cli"]  # it imports its public names on first use, or for type checkers
    graphlib.TopologicalSorter(graph).prepare()  # raises an error if there is a cycle


def test_only_the_command_line_knows_hydra() -> None:
    for file in PACKAGE.rglob("*.py"):
        if file.relative_to(PACKAGE).parts[0] not in ("cli", "compose"):
            used = {module.split(".")[0] for module in imports(file)}
            assert not used & {"hydra", "omegaconf"}, file
        assert not [module for module in imports(file) if re.match(r"(hydra|omegaconf)\b.*\._", module)], file


def test_text_leaves_through_one_module_and_one_console() -> None:
    """``output.py`` and ``terminal/`` escape control characters, so no other module may print."""
    for file in PACKAGE.rglob("*.py"):
        calls = (node.func for node in nodes(file) if isinstance(node, ast.Call))
        if file.name != "output.py":
            assert not [call for call in calls if isinstance(call, ast.Name) and call.id == "print"], file
        if file.parent.name != "terminal":
            assert not {"rich.console", "rich.progress"} & imports(file), file


@pytest.mark.parametrize("group", sorted(REGISTRIES))
def test_one_file_for_each_registered_part(group: str) -> None:
    files = [yaml.safe_load(file.read_text()) for file in (ROOT / "conf" / group).glob("*.yaml")]
    named = {values.get(group, values)["name"] for values in files}
    assert named == set(REGISTRIES[group])


PLACEHOLDERS = {
    "csv": ["dataset.path=table.csv"],
    "npy": ["dataset.path=x.npy", "dataset.labels=y.npy"],
    "image_folder": ["dataset.path=images"],
    "openml": ["dataset.id=61"],
    "pmlb": ["dataset.table=letter"],
    "precomputed": ["kernel.path=K.npy"],
}
TABLES = ("csv", "openml", "pmlb", "ringnorm")
OPTIONS = {
    group: [f"{group}={file.stem}" for file in sorted((ROOT / "conf" / group).glob("*.yaml"))]
    for group in sorted(REGISTRIES)
}
METHODS = [OPTIONS.pop(group) for group in ("algorithm", "dataset")]


@pytest.mark.parametrize(
    "words",
    [[*filter(None, row)] for part in (METHODS, OPTIONS.values()) for row in zip_longest(*part)],
    ids=" ".join,
)
def test_every_file_composes_and_builds(words: list[str]) -> None:
    """Each case combines files of several groups, because each composition is slow."""
    named = [word.partition("=")[2] for word in words]
    build_all([*words, *(word for name in named for word in PLACEHOLDERS.get(name, []))], shape=(1, 28, 28))


@pytest.mark.thorough
@pytest.mark.parametrize("dataset", sorted(DATASETS))
@pytest.mark.parametrize("algorithm", sorted(TRAINERS))
def test_every_pair_composes_and_builds(algorithm: str, dataset: str) -> None:
    words = [f"algorithm={algorithm}", f"dataset={dataset}", *PLACEHOLDERS.get(dataset, [])]
    build_all(words, shape_of(dataset))


def shape_of(dataset: str) -> tuple[int, ...]:
    return (20,) if dataset in TABLES else (3, 32, 32) if dataset == "cifar10" else (1, 28, 28)


EXPERIMENTS = sorted((ROOT / "conf" / "experiment").glob("*.yaml"))


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_an_experiment_chooses_the_parts_that_its_name_says(file: Path) -> None:
    dataset, algorithm = file.stem.split("_")[:2]
    settings = build_all([f"experiment={file.stem}", *PLACEHOLDERS.get(dataset, [])], shape_of(dataset))
    assert settings.algorithm["name"] == algorithm
    assert settings.dataset["name"] == dataset
    classes = [0, 1] if shape_of(dataset) == (1, 28, 28) else ()
    assert settings.dataset.get("classes", ()) == classes


def test_an_entry_of_tuned_values_lists_parts_and_has_values_that_something_refers_to() -> None:
    texts = [USUAL, *(file.read_text() for file in (ROOT / "conf").rglob("*.yaml"))]
    keys = {key for text in texts for key in re.findall(r"\$\{tuned:([\w.]+),", text)}
    parts = {name for group in TUNED_BY for name in REGISTRIES[group]}
    for file in (ROOT / "conf" / "tuned").glob("*.yaml"):
        for entry, values in yaml.safe_load(file.read_text()).items():
            assert {*entry.split("+")} <= {"all", *parts}, f"{file.name}: {entry} contains an unknown part"
            assert flat(values).keys() <= keys, f"{file.name}: nothing refers to a value of {entry}"


def build_all(overrides: list[str], shape: tuple[int, ...]) -> Settings:
    values = compose_settings(overrides)
    settings = parse_settings(values)
    build_trainer(settings.algorithm)
    if settings.kernel["name"] != "precomputed":  # this kernel would read a file, which does not exist
        build_kernel(settings.kernel)
    build_network(settings.network, shape, settings.seed)
    build(OPTIMIZERS, "optimizer", settings.optimizer)
    build(LOGGERS, "logger", settings.logger)
    return settings
