"""A whole run as settings: what conf/ composes, a run directory records and a checkpoint carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationError
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT, one_line
from nsvm_cli.errors import InputError, did_you_mean

Section = dict[str, Any]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Validation:
    """What a run is watched by: its accuracy on the validation set after every ``every``-th step."""

    every: PositiveInt | None = None


UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Checkpoints:
    """How often a run writes what it needs to go on: after so many steps (an integer), after so much time
    (text, such as 30s, 5min or 1h), or never (None).
    """

    every: PositiveInt | Annotated[str, Field(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?(s|min|h)$")] | None = "60s"

    @property
    def steps(self) -> int | None:
        """The number of steps between two, where it was given so."""
        return self.every if isinstance(self.every, int) else None

    @property
    def seconds(self) -> float | None:
        """The number of seconds between two, where it was given so."""
        if not isinstance(self.every, str):
            return None
        number = self.every.rstrip("".join(UNITS))
        return float(number) * UNITS[self.every.removeprefix(number)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """The sections each name a registered part, and hold its settings; see ``registry.build``.

    ``log_every`` None means a hundred records a run; ``threads`` None means all cores;
    ``memory_budget`` is in MiB, for kernel values.
    ``curves`` says whether ``nsvm train`` draws them at its end.
    ``plugins`` records which modules of the user's own were loaded; it never loads any.
    """

    dataset: Section
    network: Section
    kernel: Section
    optimizer: Section
    algorithm: Section
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["float32", "float64"] = "float32"
    threads: Annotated[int, Field(gt=0, le=1024)] | None = 1
    memory_budget: PositiveInt = 1024
    log_every: PositiveInt | None = None
    validation: Validation = Field(default_factory=Validation)
    checkpoint: Checkpoints = Field(default_factory=Checkpoints)
    curves: bool = True
    plugins: list[str] = Field(default_factory=list)


def parse_settings(values: Mapping[str, Any]) -> Settings:
    """Settings from plain values, each checked; an InputError names what is wrong."""
    known = [f.name for f in fields(Settings)]
    for key in values:
        if key not in known:
            raise InputError(f"{key}: there is no such setting; {did_you_mean(key, known)}")
    try:
        return Settings(**values)
    except ValidationError as error:
        raise InputError(one_line(error)) from None


def plain(settings: Settings) -> dict[str, Any]:
    """Settings as plain values, for YAML and JSON."""
    return asdict(settings)
