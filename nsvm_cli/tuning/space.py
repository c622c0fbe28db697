"""The search space of ``nsvm tune``: Optuna's distributions, nested like the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import pydantic
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from pydantic import Field, NonNegativeInt, PositiveInt

from nsvm_cli.config.registry import STRICT, Positive
from nsvm_cli.errors import InputError

Value = float | int | str | bool | None
Point = dict[str, Value]
"""A value for each dotted key, such as ``optimizer.lr``."""

Distribution = CategoricalDistribution | FloatDistribution | IntDistribution
Space = dict[str, Distribution]
"""The values to search for each dotted key."""


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STRICT)
class Search:
    """The search space and budget of a search.

    ``space`` is nested like the settings; its leaves are lists of values or ranges ``{low, high, log}``, of
    integers if both ends are. Each of ``trials`` candidates is trained with ``seeds`` seeds from
    ``first_seed`` on; hopeless ones are pruned, and a run that takes longer than ``seconds`` counts as
    accuracy 0. The best ``finalists`` are then trained with ``final_seeds`` further seeds. Each seed has its
    own split.
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

    def suited(self, suggested: Mapping[str, Any], settings: Mapping[str, Any]) -> Space:
        """Return the space without the keys that are suggested for other settings than those that have an
        effect; added ones stay.

        Raises:
            InputError: nothing is left to search.
        """
        others = ranges(suggested).keys() - settings.keys()
        space = {key: values for key, values in ranges(self.space).items() if key not in others}
        if not space:
            raise InputError("tune.space has nothing that these settings use: expected +tune.space.KEY=[A,B]")
        return space


def holds(distribution: Distribution, value: object) -> bool:
    """Return whether a distribution has a value."""
    if isinstance(distribution, CategoricalDistribution):
        return value in distribution.choices
    return isinstance(value, (int, float)) and distribution.low <= value <= distribution.high


def ends(distribution: Distribution) -> tuple[Value, Value]:
    """Return the first and the last value of a distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[0], distribution.choices[-1]
    return distribution.low, distribution.high


def ranges(space: Mapping[str, Any], above: str = "") -> Space:
    """Return a nested space by dotted keys; InputError where it holds neither lists nor ranges."""
    found: Space = {}
    for key, value in space.items():
        where = f"{above}{key}"
        if isinstance(value, Mapping) and not {"low", "high"} & value.keys():
            found |= ranges(value, f"{where}.")
            continue
        try:
            found[where] = _distribution(value)
        except (TypeError, ValueError) as error:
            raise InputError(f"tune.space.{where}: {error}") from None
    return found


def _distribution(value: Any) -> Distribution:
    if isinstance(value, list):
        return CategoricalDistribution(value)
    if not isinstance(value, Mapping) or not {"low", "high"} <= value.keys() <= {"low", "high", "log"}:
        raise ValueError(f"expected a list or {{low, high, log}}, got {value!r}")
    integers = all(type(value[end]) is int for end in ("low", "high"))
    return (IntDistribution if integers else FloatDistribution)(**value)
