"""The settings of a run, which run directories, checkpoints and model files store."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, fields
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import (
    NAMED,
    STRICT,
    Count,
    Instance,
    Positive,
    Registry,
    Text,
    construct,
    expecting,
)
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.memory import MEMORY_BUDGET
from nsvm_cli.metrics import own_metrics
from nsvm_cli.plugins import code_sha256

Section = dict[str, Any]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Validation:
    """The section ``validation``: evaluate on the validation set every ``every`` steps, or never if None."""

    every: Count | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Init:
    """The section ``init``: ``run`` is a run directory, model file or state dict with the initial theta.

    ``only`` lists prefixes of the names of the tensors to load; without any, all tensors are loaded.
    """

    run: str | None = None
    only: list[Text] = Field(default_factory=list)


UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


Interval = Annotated[
    Count | Annotated[str, Field(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?(s|min|h)$")] | None,
    expecting("a number of steps, a duration such as 30s, 5min or 1h, or null"),
]
Keep = Annotated[
    Literal["last", "none", "all"] | Count, expecting("last, none, all, or a number of checkpoints")
]

ClassWeight = Annotated[
    Literal["balanced"] | dict[Text, Positive] | None,
    expecting("balanced, null, or positive weights of classes, such as {no: 1, yes: 5}"),
]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Checkpoints:
    """The section ``checkpoint``: when to write checkpoints, and which to keep after the run."""

    every: Interval = "60s"
    keep: Keep = "last"

    @property
    def n_kept(self) -> int:
        """The number of checkpoints that a finished run keeps."""
        return self.keep if isinstance(self.keep, int) else {"none": 0, "last": 1}.get(self.keep, sys.maxsize)

    @property
    def steps(self) -> int | None:
        """The number of steps between two checkpoints, or None if ``every`` is not a number of steps."""
        return self.every if isinstance(self.every, int) else None

    @property
    def seconds(self) -> float | None:
        """The number of seconds between two checkpoints, or None if ``every`` is not a duration."""
        if not isinstance(self.every, str):
            return None
        number = self.every.rstrip("".join(UNITS))
        return float(number) * UNITS[self.every.removeprefix(number)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """The settings of a run, which ``conf/train.yaml`` explains.

    A section such as ``kernel`` contains the name of a registered class and the settings of the class.
    """

    dataset: Section
    network: Section
    kernel: Section
    optimizer: Section
    algorithm: Section
    loss: Section | None = None
    sampler: Section = Field(default_factory=lambda: {"name": "uniform"})
    init: Init = Field(default_factory=Init)
    freeze: list[Text] = Field(default_factory=list)
    penalties: Section = Field(default_factory=dict)
    task: Literal["classification", "regression"] = "classification"
    multiclass: Literal["crammer_singer", "one_vs_rest"] = "crammer_singer"
    class_weight: ClassWeight = None
    metric: str | None = None
    keep: Literal["last", "best"] = "last"
    calibration: Literal["auto", "sigmoid"] | None = "auto"
    threshold: Annotated[
        Literal["best"] | Annotated[float, Field(gt=0, lt=1)] | None,
        expecting("best, null, or a probability between 0 and 1"),
    ] = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["float32", "float64"] = "float32"
    threads: Annotated[int, Field(gt=0, le=1024)] | None = 1
    engine: Literal["auto", "literal", "torch", "numba"] = "auto"
    memory_budget: Annotated[int, Field(ge=1, le=2**24)] = MEMORY_BUDGET
    log_every: Count | None = None
    full_objective: bool = False
    validation: Validation = Field(default_factory=Validation)
    checkpoint: Checkpoints = Field(default_factory=Checkpoints)
    callbacks: list[Section | str] = Field(default_factory=list)
    logger: Section = Field(default_factory=lambda: {"name": "none"})
    curves: bool = True
    plugins: list[str] = Field(default_factory=list)


def parse_settings(values: Mapping[str, Any]) -> Settings:
    """Return the settings for plain values. Raise an InputError if a setting is unknown or invalid."""
    names = [f.name for f in fields(Settings)]
    sections = {key: value for key, value in values.items() if isinstance(value, dict)}
    within = [f"{key}.{name}" for key, section in sections.items() for name in section]
    for key in values:
        if key not in names:
            raise InputError(f"{key}: there is no such setting; {did_you_mean(key, names, within)}")
    settings = construct(Settings, "", values)
    for key, value in flat({"dataset": settings.dataset}).items():
        try:
            json.dumps(value, allow_nan=False, default=str)
        except ValueError:
            raise InputError(f"{key}: expected finite numbers; quote text such as 'inf' and 'nan'") from None
    return settings


def plain(settings: Settings) -> dict[str, Any]:
    """Return the settings as plain values, for YAML and JSON."""
    return asdict(settings)


def with_effect(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in ``values`` that affect the result or the metrics of a run."""
    without = ("checkpoint", "curves", "logger", "plugins")
    return {key: value for key, value in values.items() if key not in without}


def code_of(settings: Settings) -> str | None:
    """Return the SHA-256 of the plugins' code that affects the result of a run, or None if there is none."""
    metrics = {name: entry.function for name, entry in own_metrics().items()}
    names = _leaves(with_effect(plain(settings)))
    names += [name for name, weight in settings.penalties.items() if weight]
    parts = [named.get(name) for name in names for named in (metrics, *NAMED)]
    for kind, registry in with_effect(Registry.kinds).items():
        for name in _leaves(getattr(settings, kind, settings.callbacks)):
            parts += [type(name.part) if isinstance(name, Instance) else registry.get(name)]
    modules = [getattr(part, "__module__", "") for part in parts if part is not None]
    return code_sha256(modules)


def _leaves(value: Any) -> list[Any]:
    """Return all plain values in a setting, including values in nested sections and lists."""
    if isinstance(value, dict):
        value = [*value.values()]
    return [leaf for inner in value for leaf in _leaves(inner)] if isinstance(value, list) else [value]


def is_record_of(recorded: Mapping[str, Any], settings: Settings) -> bool:
    """Return whether recorded plain values equal the settings, apart from settings without effect."""
    try:
        return with_effect(plain(parse_settings(recorded))) == with_effect(plain(settings))
    except InputError:  # a different version of nsvm may have recorded them
        return False


def with_values(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of values with changes by dotted key. Raise an InputError if a section does not exist."""
    changed = deepcopy(dict(values))
    for key, value in changes.items():
        *sections, name = key.split(".")
        at = changed
        for section in sections:
            if not isinstance(at.get(section), dict):
                raise InputError(
                    f"{key}: there is no section {section!r}; list the settings with nsvm train --cfg job"
                )
            at = at[section]
        at[name] = value
    return changed


def is_within(name: str, prefixes: Sequence[str]) -> bool:
    """Return whether a dotted name equals one of the ``prefixes``, or begins with a prefix and a dot."""
    return any(f"{name}.".startswith(f"{prefix}.") for prefix in prefixes)


def flat(values: Mapping[str, Any], separator: str = ".", above: str = "") -> dict[str, Any]:
    """Return nested values as a flat dict with keys such as ``optimizer.lr``. Empty dicts are dropped."""
    flattened: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{above}{name}"
        inner = isinstance(value, dict)
        flattened |= flat(value, separator, f"{path}{separator}") if inner else {path: value}
    return flattened
