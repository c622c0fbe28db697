"""The search space of ``nsvm tune``: ranges and lists of values, nested like the settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import pydantic
from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError

from nsvm_cli.config.registry import STRICT, Positive, one_line
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

    def suggest(self, trial: optuna.Trial, key: str) -> Value:
        value: Value = trial.suggest_categorical(key, self.values)
        return value


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

    def ranges(self) -> dict[str, Range | Choice]:
        """Return the space by dotted keys."""
        return dict(_leaves(self.space, ""))


def parse_search(values: Mapping[str, Any]) -> Search:
    """Return the search that a ``tune:`` section describes.

    Raises:
        InputError: a setting is unknown or out of range; the message names it.
    """
    try:
        search = Search(**values)
        if not search.ranges():
            raise InputError("tune.space is empty: expected at least one key with a list or {low, high}")
    except ValidationError as error:
        raise InputError(one_line(error, "tune")) from None
    except TypeError as error:
        raise InputError(f"tune: {str(error).removeprefix('Search.__init__() ')}") from None
    return search


def _leaves(space: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Range | Choice]]:
    for key, value in space.items():
        where = f"{prefix}{key}"
        try:
            if isinstance(value, list):
                yield where, Choice(value)
            elif isinstance(value, Mapping) and {"low", "high"} & value.keys():
                yield where, Range(**value)
            elif isinstance(value, Mapping):
                yield from _leaves(value, f"{where}.")
            else:
                raise InputError(f"tune.space.{where}: expected a list or {{low, high, log}}, got {value!r}")
        except ValidationError as error:
            raise InputError(one_line(error, f"tune.space.{where}")) from None


def placed(values: Mapping[str, Any], point: Point) -> dict[str, Any]:
    """Return a copy of the settings with the values of a point.

    Raises:
        InputError: the settings have no section of this name.
    """
    return with_values(values, point, "tune.space.")


def value_at(values: Mapping[str, Any], key: str) -> Any:
    """Return what the settings have at a dotted key."""
    for section in key.split("."):
        values = values.get(section, {})
    return values
