"""Build objects from a registered name and its settings, or explain in one line why that is impossible.

A registry is a plain dict, name -> class. The settings are those of a YAML file in ``conf/``: ``name``, and
one key for each parameter of the class.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from nsvm_cli.errors import InputError, did_you_mean

T = TypeVar("T")

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
"""Configuration of the pydantic dataclasses that hold settings: no unknown fields, no NaN, no infinity."""

Count = Annotated[int, Field(ge=1, le=10**15)]
"""A number of steps. Every integer in a file fits into 64 bits, and a step into a float without rounding."""

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


def lookup(registry: Mapping[str, T], kind: str, name: object) -> T:
    """Return the entry with this name.

    Raises:
        InputError: the name is unknown; the message suggests the nearest known one.
    """
    if not isinstance(name, str) or name not in registry:
        raise InputError(
            f"{kind}: there is no {kind} {name!r}; {did_you_mean(name, registry)}; "
            "to use your own, name its module: plugins=[MODULE]"
        )
    return registry[name]


def entry_of(registry: Mapping[str, Any]) -> AfterValidator:
    """Return a pydantic validator for a setting that names an entry of the registry."""

    def check(name: str) -> str:
        if name not in registry:
            raise ValueError(f"there is no {name!r}; {did_you_mean(name, registry)}")
        return name

    return AfterValidator(check)


def build(registry: Mapping[str, Callable[..., T]], kind: str, settings: Mapping[str, Any], *args: Any) -> T:
    """Return ``registry[settings["name"]](*args, **other_settings)``.

    Raises:
        InputError: the name is unknown, a setting is unknown, missing or has a value that the class rejects.
    """
    values = dict(settings)
    name = values.pop("name", None)
    factory = lookup(registry, kind, name)
    parameters = list(inspect.signature(factory).parameters.values())[len(args) :]
    known = [p.name for p in parameters]
    for key in values:
        if key not in known:
            raise InputError(f"{kind}.{key}: {name} has no such setting; {did_you_mean(key, known)}")
    for p in parameters:
        if p.default is p.empty and p.name not in values:
            raise InputError(f"{kind}.{p.name}: {name} needs a value")
    try:
        return factory(*args, **values)
    except ValidationError as error:
        raise InputError(one_line(error, kind)) from None


def one_line(error: ValidationError, prefix: str = "") -> str:
    """Return pydantic's findings as one line, such as ``algorithm.lam should be greater than 0, got 0``."""
    findings = []
    for finding in error.errors():
        where = ".".join([prefix, *map(str, finding["loc"])]).strip(".")
        if finding["type"] == "missing":
            findings.append(f"{where} needs a value")
        elif finding["type"] == "value_error":
            findings.append(f"{where}: {finding['ctx']['error']}")
        else:
            message = finding["msg"].replace("Input should be", "should be")
            findings.append(f"{where} {message}, got {reprlib.repr(finding['input'])}")
    return "; ".join(dict.fromkeys(findings))
