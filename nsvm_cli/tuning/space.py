"""The search space of ``nsvm tune``: ranges and lists of values, nested like the settings."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import pydantic
from pydantic import Field, NonNegativeInt, PositiveInt

from nsvm_cli.config.registry import STRICT, Positive, construct
from nsvm_cli.config.settings import with_values
from nsvm_cli.errors import InputError

if TYPE_CHECKING:
    import optuna

Value = float | int | str | bool | None
Point = dict[str, Value]
"""A value for each dotted key, such as ``optimizer.lr``."""


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Range:
    """Numbers from ``low`` to ``high``; integers if both are integers."""

    low: int | float
    high: int | float
    log: bool = False

    def __post_init__(self) -> None:
        if self.low >= self.high or (self.log and self.low <= 0):
            raise ValueError(f"expected low < high, and 0 < low with log, got {self.low} and {self.high}")

    @property
    def ends(self) -> tuple[Value, Value]:
        return self.low, self.high

    def __contains__(self, value: object) -> bool:
        return isinstance(value, (int, float)) and self.low <= value <= self.high

    def holding(self, value: Value) -> Range:
        """Return the range that holds a value too: on a logarithmic scale, with a decade on either side."""
        if not isinstance(value, (int, float)) or (self.log and value <= 0):
            return self
        low, high = (value / 10, value * 10) if self.log else (value, value)
        return replace(self, low=min(self.low, low), high=max(self.high, high))

    def suggest(self, trial: optuna.Trial, key: str) -> Value:
        """Suggest an integer, or a float rounded to two digits, so that it can be reported exactly."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(key, self.low, self.high, log=self.log)
        return float(f"{trial.suggest_float(key, self.low, self.high, log=self.log):.2g}")


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Choice:
    """Any of these values."""

    values: Annotated[list[Value], Field(min_length=1)]

    @property
    def ends(self) -> tuple[Value, Value]:
        return self.values[0], self.values[-1]

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def holding(self, value: Value) -> Choice:
        """Return the choice that has a value too."""
        return self if value in self else Choice([*self.values, value])

    def suggest(self, trial: optuna.Trial, key: str) -> Value:
        value: Value = trial.suggest_categorical(key, self.values)
        return value


Space = dict[str, Range | Choice]
"""The values to search for each dotted key."""


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STRICT)
class Search:
    """The search space and budget of a search.

    ``space`` is nested like the settings; its leaves are lists of values or ranges ``{low, high, log}``.
    Each of ``trials`` candidates is trained with ``seeds`` seeds from ``first_seed`` on; hopeless ones are
    pruned, and a run that takes longer than ``seconds`` counts as accuracy 0. The best ``finalists`` are then
    trained with ``final_seeds`` further seeds. Each seed has its own split.
    """

    directory: str
    space: dict[str, Any]
    trials: PositiveInt = 100
    seeds: PositiveInt = 8
    first_seed: NonNegativeInt = 1000
    finalists: PositiveInt = 5
    final_seeds: Annotated[int, Field(ge=2)] = 20
    seconds: Positive | None = None
    jobs: PositiveInt | None = None

    def ranges(self) -> Space:
        """Return the space by dotted keys."""
        return dict(_leaves(self.space, ""))

    def suited(
        self, suggested: Mapping[str, Any], settings: Mapping[str, Any], unused: Container[str]
    ) -> Space:
        """Return the space with what is suggested suited to the settings; what differs from it stays.

        Args:
            suggested: the space that is searched unless the user asks for another one.
            settings: the values of the settings by dotted keys. A suggested range is widened to hold its
                setting, and left out if there is none.
            unused: the settings that have no effect, whose suggested ranges are left out too.

        Raises:
            InputError: nothing is left to search.
        """
        offered, space = dict(_leaves(suggested, "")), {}
        for key, found in self.ranges().items():
            if found != offered.get(key):
                space[key] = found
            elif key in settings and key not in unused:
                space[key] = found.holding(settings[key])
        if not space:
            raise InputError("tune.space has nothing that these settings use: expected +tune.space.KEY=[A,B]")
        return space


def parse_search(values: Mapping[str, Any]) -> Search:
    """Return the search that a ``tune:`` section describes.

    Raises:
        InputError: a setting is unknown or out of range; the message names it.
    """
    search = construct(Search, "tune", values)
    if not search.ranges():
        raise InputError("tune.space is empty: expected at least one key with a list or {low, high}")
    return search


def _leaves(space: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Range | Choice]]:
    for key, value in space.items():
        where = f"{prefix}{key}"
        if isinstance(value, list):
            yield where, construct(Choice, f"tune.space.{where}", {"values": value})
        elif isinstance(value, Mapping) and {"low", "high"} & value.keys():
            yield where, construct(Range, f"tune.space.{where}", value)
        elif isinstance(value, Mapping):
            yield from _leaves(value, f"{where}.")
        else:
            raise InputError(f"tune.space.{where}: expected a list or {{low, high, log}}, got {value!r}")


def placed(values: Mapping[str, Any], point: Point) -> dict[str, Any]:
    """Return a copy of the settings with the values of a point.

    Raises:
        InputError: the settings have no section of this name.
    """
    return with_values(values, point, "tune.space.")
