"""Registries of classes, and functions that build objects from a registered name and settings."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import json
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    WrapValidator,
)

from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.output import shortened
from nsvm_cli.plugins import location

T = TypeVar("T")
Part = TypeVar("Part", bound=Callable[..., Any])

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
"""Configuration of pydantic dataclasses in which unknown fields, NaN and infinity are errors."""

Count = Annotated[int, Field(ge=1, le=10**15)]
"""A number of steps, limited so that a float represents it exactly."""

Text = Annotated[str, Field(coerce_numbers_to_str=True)]
"""Text that YAML may read as a number, such as the name of a class or of a layer of an ``nn.Sequential``."""

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


REQUIRED = "???"  # in a YAML file: a value that the user must give
OWN_PART = "to use your own, load its module with plugins=[MODULE] or --plugins MODULE"


class Registry(dict[str, Part]):
    """A dict from names to the classes of one kind.

    Args:
        kind: the name of the group in ``conf/``.
        base: the base class of the classes.
        given: the number of leading parameters of the constructors that are not settings.
        common: settings that all classes have, with their defaults.
    """

    kinds: ClassVar[dict[str, Registry[Any]]] = {}

    def __init__(self, kind: str, base: type, given: int = 0, **common: Any) -> None:
        self.base, self.common, self.given = base, common, given
        self.kinds[kind] = self

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds a class under this name, replacing any previous class."""

        def add(part: T) -> T:
            self[name] = part  # type: ignore[assignment]
            return part

        return add

    def section(self, name: str) -> dict[str, Any]:
        """Return the settings of a class, with the defaults of its constructor that YAML can represent."""
        section: dict[str, Any] = {"name": name}
        for p in _constructor(self[name])[0][self.given :]:
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                with contextlib.suppress(TypeError, ValueError):
                    section[p.name] = json.loads(json.dumps(REQUIRED if p.default is p.empty else p.default))
        return section | {**self.common, **section}

    def names_of(self, part: object) -> list[str]:
        """Return the names of a class and of its registered base classes, in the order of the MRO."""
        bases = getattr(part, "__mro__", (part,))
        return [name for base in bases for name, registered in self.items() if registered is base]

    def derived(self, name: str, base: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a class derived from ``base``, given the ``settings`` of ``base``.

        Defaults that the derived class declares are added. Settings that it does not accept are removed.
        """
        section, (parameters, _) = self.section(name), _constructor(self[name])
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        inherited = {key: settings[key] for key in settings if takes_all or key in {*section, "defaults"}}
        classes: Any = self[name].__mro__  # type: ignore[attr-defined]
        names: set[str] = set()
        for kind in classes[: classes.index(self[base])]:
            if "__dataclass_fields__" in vars(kind):
                names |= inspect.get_annotations(kind).keys()
            elif "__init__" in vars(kind):
                names |= inspect.signature(kind).parameters.keys()
        declared = {key: section[key] for key in section if key in names}
        return {**declared, **inherited, **{k: v for k, v in declared.items() if v != REQUIRED}, "name": name}


def keeps(kind: type, base: type, *names: str) -> bool:
    """Return whether ``kind`` is ``base``, or a subclass that overrides none of the attributes ``names``."""
    same = (getattr(kind, name, None) is getattr(base, name, None) for name in names)
    return issubclass(kind, base) and all(same)


class Instance:
    """A wrapper of an object that is used in place of the name of a class. Files cannot store it."""

    def __init__(self, part: object) -> None:
        self.part = part

    def __deepcopy__(self, _: object) -> Instance:
        return self

    def __repr__(self) -> str:
        return type(self.part).__name__


def fields_of(part: object) -> dict[str, Any] | None:
    """Return the constructor arguments of a dataclass instance, or None for any other object."""
    owner = next(base for base in type(part).__mro__ if "__init__" in vars(base))
    if "__dataclass_fields__" not in vars(owner):
        return None
    return {field.name: getattr(part, field.name) for field in fields(part) if field.init}  # type: ignore[arg-type]


def expecting(values: str) -> WrapValidator:
    """Return a pydantic validator for a setting of several types, with the error ``expected {values}``."""

    def checked(value: object, check: Callable[[object], object]) -> object:
        try:
            return check(value)
        except ValidationError:
            raise ValueError(f"expected {values}, got {shown(value)}") from None

    return WrapValidator(checked)


NAMED: list[Mapping[str, Any]] = []
"""The dicts of functions and classes whose names settings may contain, besides the registries."""


def entry_of(registry: Mapping[str, Any]) -> AfterValidator:
    """Return a pydantic validator for a name in a dict, to which plugins may still add names."""
    NAMED.append(registry)

    def checked(name: str) -> str:
        if name not in registry:
            raise ValueError(f"there is no {name!r}; {did_you_mean(name, registry)}")
        return name

    return AfterValidator(checked)


def build(registry: Mapping[str, Callable[..., T]], kind: str, settings: Mapping[str, Any], *args: Any) -> T:
    """Return ``registry[settings["name"]](*args, **remaining_settings)``, with values of the annotated types.

    Raises:
        InputError: the name or a setting is unknown, a setting is missing, or a value is invalid.
    """
    values = {key: value for key, value in settings.items() if str(value) != REQUIRED}
    name = values.pop("name", None)
    if isinstance(name, Instance):
        if values:
            key = next(iter(values))
            reason = f"{kind} was passed as an object; set {key} in the constructor of {name}"
            raise InputError(f"{kind}.{key} cannot be set, because {reason}")
        return copy.deepcopy(name.part)  # type: ignore[return-value]
    if not isinstance(name, str) or name not in registry:
        hint = f"{did_you_mean(name, registry)}; {OWN_PART}"
        raise InputError(f"{kind}: there is no {kind} {shown(name)}; {hint}")
    parameters, _ = _constructor(registry[name])
    parameters = parameters[len(args) :]
    accepted = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    for key in values:
        if key not in accepted and all(p.kind is not p.VAR_KEYWORD for p in parameters):
            raise InputError(f"{kind}.{key}: {name} has no such setting; {did_you_mean(key, accepted)}")
    for p in accepted.values():
        if p.default is p.empty and p.name not in values:
            raise InputError(f"{kind}.{p.name} requires a value for {kind}={name}")
    try:
        return construct(registry[name], kind, values, *args)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{kind}={name}: {error}{location(error)}") from error


def construct(section: Callable[..., T], kind: str, values: Mapping[str, Any], *args: Any) -> T:
    """Return ``section(*args, **values)``, with values converted to the annotated types.

    An invalid value, such as a bool for a number, raises an InputError, whose message begins with ``kind``.
    """
    _, converters = _constructor(section)
    where, converted = kind, dict(values)
    try:
        for key, value in values.items():
            where, strict = f"{kind}.{key}".strip("."), isinstance(value, bool) or None
            if key in converters:
                converted[key] = converters[key](value, strict=strict)
        where = kind
        return section(*args, **converted)
    except ValidationError as error:
        raise InputError(one_line(error, where)) from None


@functools.cache
def _constructor(factory: Any) -> tuple[list[inspect.Parameter], dict[str, Callable[..., Any]]]:
    """Return the parameters of a function or constructor, and converters to the types that pydantic knows."""
    function = annotated = factory
    if isinstance(factory, type):
        owner = next(base for base in factory.__mro__ if "__init__" in vars(base))
        if owner is object:
            return [], {}
        function = vars(owner)["__init__"]  # a base class may have set __signature__
        annotated = owner if "__dataclass_fields__" in vars(owner) else function
    is_pydantic = "__pydantic_validator__" in getattr(annotated, "__dict__", ())
    bound = is_pydantic or not isinstance(factory, type)
    parameters = [*inspect.signature(annotated if is_pydantic else function).parameters.values()][not bound :]
    types, converters = {}, {}
    with contextlib.suppress(NameError, TypeError):  # a type may be imported only for type checkers
        types = get_type_hints(annotated, include_extras=True)
    for name, annotation in types.items():
        with contextlib.suppress(PydanticUserError):
            converters[name] = TypeAdapter(annotation).validate_python
    return parameters, converters


def one_line(error: ValidationError, prefix: str = "") -> str:
    """Return pydantic's errors as one line, such as ``algorithm.lam should be greater than 0, got 0``."""
    types = ("int", "float", "str", "bool")  # pydantic reports an error for each type of a setting
    messages = {}
    for finding in error.errors():
        places = [str(place).removeprefix("constrained-") for place in finding["loc"]]
        places = [place for place in places if place not in types and "[" not in place]
        where = ".".join([prefix, *places]).strip(".")
        if finding["type"] == "value_error":
            message = f": {finding['ctx']['error']}"
        elif finding["type"].startswith("missing"):
            message = " requires a value"
        elif finding["type"] == "unexpected_keyword_argument":
            message = ": there is no such setting"
        else:
            text = re.sub(r"(, unable|, got| after validation).*", "", finding["msg"])
            message = text.removeprefix("Input") if text.startswith("Input ") else f": {text}"
            message += f", got {shown(finding['input'])}"
        messages[where] = (where + message).removeprefix(": ")
    return "; ".join(messages.values())


def shown(value: object) -> str:
    """Return a shortened ``repr`` of a value, for a message of one line."""
    try:
        return reprlib.repr(value)
    except ValueError:
        return "an integer of thousands of digits"  # Python 3.11 refuses to print it


class OneLine:
    """Base class of objects that are shown in one line, with the shapes of arrays and no long values."""

    def __init_subclass__(cls) -> None:
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]  # @dataclass keeps only a class's own __repr__

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={_brief(value)}" for name, value in vars(self).items())
        return shortened(f"{type(self).__name__}({values})", 399)


def _brief(value: Any) -> str:
    shape = ", ".join(map(str, value.shape)) if hasattr(value, "ndim") else "..."
    return text if len(text := repr(value)) < 40 and "\n" not in text else f"{type(value).__name__}({shape})"
