"""Build objects from a registered name and its settings, or explain in one line why that is impossible.

A registry is a plain dict, name -> class. The settings are those of a YAML file in ``conf/``: ``name``, and
one key for each parameter of the class.
"""

from __future__ import annotations

import inspect
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError

from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.plugins import location

T = TypeVar("T")

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
"""Configuration of the pydantic dataclasses that hold settings: no unknown fields, no NaN, no infinity."""

Count = Annotated[int, Field(ge=1, le=10**15)]
"""A number of steps, small enough for a float to represent it exactly."""

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


def lookup(registry: Mapping[str, T], kind: str, name: object) -> T:
    """Return the entry with this name.

    Raises:
        InputError: the name is unknown; the message suggests the nearest one that exists.
    """
    if isinstance(name, str) and name in registry:
        return registry[name]
    raise InputError(
        f"{kind}: there is no {kind} {shown(name)}; "
        f"{did_you_mean(name if isinstance(name, str) else '', registry)}; "
        "to use your own, name its module: plugins=[MODULE]"
    )


@dataclass(frozen=True, eq=False)
class EntryCheck:
    """Checks that a name is in a registry, to which a plugin may have added."""

    registry: Mapping[str, Any]

    def __call__(self, name: str) -> str:
        if name not in self.registry:
            raise ValueError(f"there is no {name!r}; {did_you_mean(name, self.registry)}")
        return name


def entry_of(registry: Mapping[str, Any]) -> AfterValidator:
    """Return a pydantic validator for a setting that names an entry of the registry."""
    return AfterValidator(EntryCheck(registry))


def build(registry: Mapping[str, Callable[..., T]], kind: str, settings: Mapping[str, Any], *args: Any) -> T:
    """Return ``registry[settings["name"]](*args, **other_settings)``.

    A pydantic class checks its settings itself. Those of any other class, such as a user's own, are converted
    to the types that its constructor is annotated with; what the constructor refuses is an InputError too.

    Raises:
        InputError: the name is unknown, a setting is unknown, missing or has a value that the class rejects.
    """
    values = dict(settings)
    name = values.pop("name", None)
    factory = lookup(registry, kind, name)
    parameters, types, by_pydantic = _constructor(factory)
    parameters = parameters[len(args) :]
    accepted = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    for key in values:
        if key not in accepted and all(p.kind is not p.VAR_KEYWORD for p in parameters):
            raise InputError(f"{kind}.{key}: {name} has no such setting; {did_you_mean(key, accepted)}")
    for p in accepted.values():
        if p.default is p.empty and p.name not in values:
            raise InputError(f"{kind}.{p.name}: {name} needs a value")
    _expect_no_booleans(types, f"{kind}.", values)
    if not by_pydantic:
        own = [key for key in values if key in types]
        values |= {key: _converted(values[key], types[key], f"{kind}.{key}") for key in own}
    try:
        return factory(*args, **values)
    except ValidationError as error:
        raise InputError(one_line(error, kind)) from None
    except (TypeError, ValueError) as error:
        if by_pydantic or isinstance(error, InputError):
            raise
        raise InputError(f"{kind}={name}: {error}{location(error)}") from error


def construct(section: Callable[..., T], kind: str, values: Mapping[str, Any]) -> T:
    """Return ``section(**values)``, a pydantic dataclass.

    Raises:
        InputError: a value is rejected, or is true or false where a number belongs, which pydantic would
            take for 1 or 0. The message begins with ``kind``.
    """
    _expect_no_booleans(setting_types(section), f"{kind}." if kind else "", values)
    try:
        return section(**values)
    except ValidationError as error:
        raise InputError(one_line(error, kind)) from None


def setting_types(factory: Any) -> dict[str, Any]:
    """Return the annotations of the settings of a part, as far as they can be looked up."""
    return _constructor(factory)[1]


def _constructor(factory: Any) -> tuple[list[inspect.Parameter], dict[str, Any], bool]:
    """Return the parameters of a function or of a class's constructor, their types where these can be looked
    up, and whether pydantic checks the values.
    """
    function = annotated = factory
    if isinstance(factory, type):
        owner = next(base for base in factory.__mro__ if "__init__" in vars(base))
        if owner is object:
            return [], {}, False
        function = vars(owner)["__init__"]  # a base may have left its own signature on the class
        annotated = owner if "__dataclass_fields__" in vars(owner) else function
    is_pydantic = "__pydantic_validator__" in getattr(annotated, "__dict__", ())
    bound = is_pydantic or not isinstance(factory, type)
    parameters = [*inspect.signature(annotated if is_pydantic else function).parameters.values()][not bound :]
    try:
        types = get_type_hints(annotated, include_extras=True)
    except (NameError, TypeError):  # a type that is imported for type checkers only, or no function at all
        types = {}
    return parameters, types, is_pydantic or hasattr(function, "raw_function")


def _converted(value: object, annotation: Any, where: str) -> Any:
    """Return the value of a setting in the type that it is annotated with."""
    try:
        adapter = TypeAdapter(
            annotation, config=ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)
        )
    except PydanticUserError:  # a class with a configuration of its own
        adapter = TypeAdapter(annotation)
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise InputError(one_line(error, where)) from None


def _expect_no_booleans(types: Mapping[str, Any], within: str, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        kinds = _kinds(types.get(key))
        if isinstance(value, dict):
            for section in filter(is_dataclass, kinds):
                _expect_no_booleans(setting_types(section), f"{within}{key}.", value)
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, bool) and kinds & {int, float} and bool not in kinds:
                raise InputError(f"{within}{key} should be a number, got {one}")


def _kinds(hint: Any) -> set[Any]:
    """Return the types that one such as ``list[int] | None`` is made of, without their annotations."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _kinds(parts[0])
    if origin in (None, Literal, Callable):
        return {hint}
    return set().union(*map(_kinds, parts))


FOR_PROGRAMMERS = re.compile(r"(, (unable|got) | after validation| or an instance of ).*")
"""What is left out of pydantic's sentences about a value."""

OF_YAML = {
    "valid tuple": "list",
    "valid list": "list",
    "dictionary": "section of settings",
    "a valid boolean": "true or false",
}
"""What pydantic calls otherwise."""


KINDS = ("int", "float", "str", "bool")
"""Where a setting takes several kinds of values, pydantic reports an error for each; the last is shown."""


def one_line(error: ValidationError, prefix: str = "") -> str:
    """Return pydantic's findings as one line, such as ``algorithm.lam should be greater than 0, got 0``."""
    findings, errors = {}, error.errors()
    places = {finding["loc"][:-1] for finding in errors if finding["loc"]}
    for finding in errors:
        if finding["type"] in ("too_short", "too_long") and finding["loc"] in places:
            continue  # a list is counted without its wrong values
        places_in = [str(part) for part in finding["loc"] if part not in KINDS and "[" not in str(part)]
        where = ".".join([prefix, *places_in]).strip(".")
        if finding["type"] == "value_error":
            findings[where] = f": {finding['ctx']['error']}"
        elif finding["type"].startswith("missing"):
            findings[where] = " needs a value"
        elif finding["type"] == "unexpected_keyword_argument":
            findings[where] = " is not a setting"
        else:
            _, should, what = FOR_PROGRAMMERS.sub("", finding["msg"]).partition(" should")
            for name, ours in OF_YAML.items():
                what = what.replace(name, ours)
            said = should + what or " should be of another kind"
            findings[where] = f"{said}, got {shown(finding['input'])}"
    return "; ".join((where + said).removeprefix(": ") for where, said in findings.items())


class _Shown(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:  # Python refuses to print thousands of digits
        return super().repr_int(x, level) if x.bit_length() < 1000 else f"an integer of {x.bit_length()} bits"


shown = _Shown().repr
"""Return a value as it is shown in a message: on one line, and shortened."""
