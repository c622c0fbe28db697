"""A user's own modules, which register kernels, networks, data sets or algorithms when imported, and what
their code raises.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType, ModuleType

from nsvm_cli.errors import InputError, RunError, message_of, out_of_memory

MOST_FRAMES = 10
"""Frames of a plugin's code that a traceback of a bug in it shows."""


_named: set[str] = set()
_folders: set[str] = set()
"""The top-level modules that the user has named, and the folders in which this was done."""

_sources: dict[str, tuple[ModuleType, dict[str, bytes]]] = {}
"""For each plugin, the module itself, and the sources of it and of what it imports, by name."""


def load_plugins(modules: Iterable[str]) -> None:
    """Import modules that the user has named; if there are any, the current folder is the last on the path.

    Their names come from the command line or the user's own configuration folder, never from a model file or
    a run directory: importing a module runs its code.

    Raises:
        InputError: there is no such module, or it cannot be imported.
    """
    for module in modules:
        if not isinstance(module, str) or not all(part.isidentifier() for part in module.split(".")):
            raise InputError(
                f"plugins: expected the names of modules, such as plugins=[my_parts], got {module!r}"
            )
        if (folder := os.getcwd()) not in sys.path:
            sys.path.append(folder)  # for good: a plugin may import another module later
        _folders.add(folder)
        _named.add(module.partition(".")[0])
        try:
            if not _is_loaded(module):
                _sources[module] = importlib.import_module(module), _read_sources(module)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name in (module, module.split(".")[0]):
                raise InputError(
                    f"plugins: there is no module {module!r} in the current folder or on PYTHONPATH"
                ) from None
            raise InputError(f"plugin {module} failed: {_what(error)}{location(error)}") from error


def code_sha256() -> str | None:
    """Return the SHA-256 of the source that the plugins had when they were loaded; None without plugins.

    It covers what they import from their own folder, also later, within functions.
    """
    loaded = {pair for name in filter(_is_loaded, _sources) for pair in _sources[name][1].items()}
    return hashlib.sha256(repr(sorted(loaded)).encode()).hexdigest() if loaded else None


def _is_loaded(plugin: str) -> bool:
    """Return whether the module of this name is the one whose source was read, not a namesake."""
    return plugin in _sources and sys.modules.get(plugin) is _sources[plugin][0]


def _read_sources(plugin: str) -> dict[str, bytes]:
    """Return the source of a plugin and of the modules beside it that it imports, by their names."""
    top = sys.modules[plugin.partition(".")[0]]
    folder = Path([*getattr(top, "__path__", ()), getattr(top, "__file__", None) or ""][0]).parent
    installed = folder.name in ("site-packages", "dist-packages")  # beside modules that are not the user's
    sources: dict[str, bytes] = {}
    names = [plugin]
    while names:
        name = names.pop()
        first, *_ = parts = name.split(".")
        if name in sources or first == "nsvm_cli" or (installed and first != top.__name__):
            continue
        if len(parts) > 1:  # a package, whose __init__ comes first
            names.append(".".join(parts[:-1]))
        path = folder.joinpath(*parts)
        if (package := path / "__init__.py").is_file():
            sources[name] = package.read_bytes()
            names += _imports(sources[name], parts)
        elif (module := path.with_name(f"{path.name}.py")).is_file():
            sources[name] = module.read_bytes()
            names += _imports(sources[name], parts[:-1])
    return sources


def _imports(source: bytes, package: Sequence[str]) -> Iterator[str]:
    """Yield the names that a module of a package imports, be they of modules or of what is in them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            origin = [*above, *filter(None, [node.module])]
            yield from (".".join([*origin, alias.name]) for alias in node.names)


def explain(error: Exception) -> Exception:
    """Return what to tell the user: that memory ran out or a plugin failed, in one line; else the error."""
    return out_of_memory(error) or plugin_error(error) or error


@contextlib.contextmanager
def plugin_errors() -> Iterator[None]:
    """Raise an error of a plugin within the context as one that the user can act on; see ``plugin_error``."""
    try:
        yield
    except Exception as error:
        if (explained := plugin_error(error)) is None:
            raise
        raise explained from error


def plugin_error(error: Exception) -> InputError | RunError | None:
    """Return one line about an error that a plugin raised, or a library that it called; None for any other.

    A ``ValueError`` or ``OSError`` is about what the plugin was given. Any other is a bug in the plugin: a
    note has the plugin's own lines of the traceback, for its author.
    """
    frames = _own_frames(error)
    if not frames or isinstance(error, (InputError, RunError)) or out_of_memory(error):
        return None
    named = [(frame, frame.f_code.co_qualname.partition(".<locals>")[0]) for frame, _ in frames]
    frame, name = next((one for one in reversed(named) if "." in one[1]), named[-1])
    line = f"plugin {frame.f_globals['__name__']} failed in {name}: {_what(error)}{location(error)}"
    explained: InputError | RunError
    if isinstance(error, (ValueError, OSError)):
        explained = InputError(line)
    else:
        explained = RunError(line)
        own_lines = traceback.StackSummary.extract(iter(frames), limit=-MOST_FRAMES).format()
        explained.add_note("".join(["Traceback (most recent call last), of the plugin alone:\n", *own_lines]))
    explained.__cause__ = error
    return explained


def location(error: BaseException) -> str:
    """Return the line of a plugin that led to an error, as the end of a sentence; empty if none did."""
    if isinstance(error, SyntaxError) or not is_of_plugin(error):  # the former says itself where it is
        return ""
    frame, line = _own_frames(error)[-1]
    return f" ({os.path.relpath(frame.f_code.co_filename)}, line {line})"


def is_of_plugin(error: BaseException | None) -> bool:
    """Return whether the code of a plugin raised an error, led to it or could not be read."""
    return isinstance(error, SyntaxError) or (error is not None and bool(_own_frames(error)))


def _own_frames(error: BaseException) -> list[tuple[FrameType, int]]:
    """Return the frames in a traceback, with their lines, that are of plugins or of what these imported."""
    return [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_own(frame)]


def _is_own(frame: FrameType) -> bool:
    """Return whether a frame is of a module that was named, or found in the folder of one."""
    module = frame.f_globals.get("__name__", "").partition(".")[0]
    places = tuple(f"{folder}/{module}{end}" for folder in _folders for end in (".py", "/"))
    return module in _named or (module != "nsvm_cli" and frame.f_code.co_filename.startswith(places))


def _what(error: Exception) -> str:
    return message_of(error).removesuffix(": ")
