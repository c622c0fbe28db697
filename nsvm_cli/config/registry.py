"""Build objects from a registered name and its settings, or explain in one line why that is impossible.

A registry is a plain dict, name -> class. The settings are those of a YAML file in ``conf/``: ``name``, and
one key for each parameter of the class.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError

from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.plugins import location

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


def literal_values(hint: Any) -> list[str]:
    """Return what a setting with this annotation may be, as it is written; none where that is no choice."""
    if hint is NoneType:
        return ["null"]
    if hint is bool:
        return ["true", "false"]
    if get_origin(hint) is Literal:
        return [str(value) for value in get_args(hint)]
    if get_origin(hint) in (Union, UnionType):
        kinds = [literal_values(kind) for kind in get_args(hint)]
        return [value for kind in kinds for value in kind] if all(kinds) else []
    checks = [note.func for note in getattr(hint, "__metadata__", ()) if isinstance(note, AfterValidator)]
    return [name for check in checks if isinstance(check, EntryCheck) for name in check.registry]


def build(registry: Mapping[str, Callable[..., T]], kind: str, settings: Mapping[str, Any], *args: Any) -> T:
    """Return ``registry[settings["name"]](*args, **other_settings)``.

    A pydantic class checks its settings itself. Those of any other, as a user's own may be, are converted to
    the types that its constructor is annotated with, and what the constructor refuses is an InputError too.

    Raises:
        InputError: the name is unknown, a setting is unknown, missing or has a value that the class rejects.
    """
    values = dict(settings)
    name = values.pop("name", None)
    factory = lookup(registry, kind, name)
    parameters, types, by_pydantic = _constructor(factory)
    parameters = parameters[len(args) :]
    known = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    for key in values:
        if key not in known and all(p.kind is not p.VAR_KEYWORD for p in parameters):
            raise InputError(f"{kind}.{key}: {name} has no such setting; {did_you_mean(key, known)}")
    for p in known.values():
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
        InputError: a value is rejected, or is true or false where a number belongs: pydantic makes
            1 or 0 of it. The message begins with ``kind``.
    """
    _expect_no_booleans(_constructor(section)[1], f"{kind}." if kind else "", values)
    try:
        return section(**values)
    except ValidationError as error:
        raise InputError(one_line(error, kind)) from None


def _constructor(factory: Any) -> tuple[list[inspect.Parameter], dict[str, Any], bool]:
    """Return the parameters of a function or of the constructor of a class, the types that they have, where
    these can be looked up, and whether pydantic checks the values.
    """
    function = annotated = factory
    if isinstance(factory, type):
        owner = next(base for base in factory.__mro__ if "__init__" in vars(base))
        if owner is object:
            return [], {}, False
        function = vars(owner)["__init__"]  # a base may have left its own signature on the class
        annotated = owner if "__dataclass_fields__" in vars(owner) else function
    of_pydantic = "__pydantic_validator__" in getattr(annotated, "__dict__", ())
    bound = of_pydantic or not isinstance(factory, type)
    parameters = [*inspect.signature(annotated if of_pydantic else function).parameters.values()][not bound :]
    try:
        types = get_type_hints(annotated, include_extras=True)
    except (NameError, TypeError):  # a type that is imported for type checkers only, or no function at all
        types = {}
    return parameters, types, of_pydantic or hasattr(function, "raw_function")


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
                _expect_no_booleans(_constructor(section)[1], f"{within}{key}.", value)
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


SENTENCES = {
    "missing": "needs a value",
    "missing_argument": "needs a value",
    "missing_keyword_only_argument": "needs a value",
    "unexpected_keyword_argument": "is not a setting",
    "int_type": "should be a valid integer, got {input}",
    "int_parsing": "should be a valid integer, got {input}",
    "int_parsing_size": "should be a valid integer, got {input}",
    "int_from_float": "should be a valid integer, got {input}",
    "float_type": "should be a valid number, got {input}",
    "float_parsing": "should be a valid number, got {input}",
    "finite_number": "should be a finite number, got {input}",
    "greater_than": "should be greater than {gt}, got {input}",
    "greater_than_equal": "should be greater than or equal to {ge}, got {input}",
    "less_than": "should be less than {lt}, got {input}",
    "less_than_equal": "should be less than or equal to {le}, got {input}",
    "bool_type": "should be true or false, got {input}",
    "bool_parsing": "should be true or false, got {input}",
    "literal_error": "should be {expected}, got {input}",
    "string_type": "should be a valid string, got {input}",
    "string_unicode": "should be a valid string, got {input}",
    "string_too_short": "should have {min_length} or more characters, got {input}",
    "string_too_long": "should have at most {max_length} characters, got {input}",
    "string_pattern_mismatch": "should match {pattern}, got {input}",
    "list_type": "should be a list, got {input}",
    "tuple_type": "should be a list, got {input}",
    "too_short": "should be a list of {min_length} or more values, got {input}",
    "too_long": "should be a list of {max_length} or fewer values, got {input}",
    "dict_type": "should be a section of settings, got {input}",
    "dataclass_type": "should be a section of settings, got {input}",
}
"""What is said about a value, by pydantic's type of the error; its own sentences are for programmers."""


KINDS = ("int", "float", "str", "bool")
"""Where a setting takes values of several kinds, pydantic has a finding for each; the last one is told."""


def one_line(error: ValidationError, prefix: str = "") -> str:
    """Return pydantic's findings as one line, such as ``algorithm.lam should be greater than 0, got 0``."""
    findings, errors = {}, error.errors()
    places = {finding["loc"][:-1] for finding in errors if finding["loc"]}
    for finding in errors:
        if finding["type"] in ("too_short", "too_long") and finding["loc"] in places:
            continue  # a list is counted without its wrong values
        where = ".".join([prefix, *(str(part) for part in finding["loc"] if part not in KINDS)]).strip(".")
        if finding["type"] == "value_error":
            findings[where] = f": {finding['ctx']['error']}"
        else:
            sentence = SENTENCES.get(finding["type"], "cannot be {input}")
            limits = {name: _whole(limit) for name, limit in finding.get("ctx", {}).items()}
            findings[where] = f" {sentence.format(**limits, input=shown(finding['input']))}"
    return "; ".join((where + said).removeprefix(": ") for where, said in findings.items())


def _whole(limit: object) -> object:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


class _Shown(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:  # Python refuses to print thousands of digits
        return super().repr_int(x, level) if x.bit_length() < 1000 else f"an integer of {x.bit_length()} bits"


shown = _Shown().repr
"""Return a value as it is shown in a message: on one line, and shortened."""
