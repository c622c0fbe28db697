"""A user's own modules, which register kernels, networks, data sets or algorithms when imported, and what
their code raises.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType, ModuleType

from nsvm_cli.errors import InputError, RunError, message_of, out_of_memory

_named: set[str] = set()
_folders: set[str] = set()
"""The top-level modules that the user has named, and the folders in which this was done."""

_sources: dict[ModuleType, dict[str, bytes]] = {}
"""For each plugin, the sources of it and of the user's modules that it had imported, by name."""


def load_plugins(modules: Iterable[str]) -> None:
    """Import modules that the user has named; if there are any, the current folder is the last on the path.

    Their names come from the command line or the user's own configuration folder, never from a model file or
    a run directory: importing a module runs its code.

    Raises:
        InputError: there is no such module, or it cannot be imported.
    """
    for name in modules:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise InputError(f"plugins: expected the names of modules, such as my_parts, got {name!r}")
        if (folder := os.getcwd()) not in sys.path:
            sys.path.append(folder)  # for good: a plugin may import another module later
        _folders.add(folder)
        _named.add(name.partition(".")[0])
        try:
            module = importlib.import_module(name)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name in (name, name.split(".")[0]):
                raise InputError(
                    f"plugins: there is no module {name!r} in the current folder or on PYTHONPATH"
                ) from None
            raise InputError(f"plugin {name} failed: {message_of(error)}{location(error)}") from error
        if module not in _sources:
            files = {key: getattr(loaded, "__file__", None) for key, loaded in [*sys.modules.items()]}
            own = {key: file for key, file in files.items() if file and _is_own(key, file)}
            _sources[module] = {key: Path(file).read_bytes() for key, file in own.items()}


def code_sha256() -> str | None:
    """Return the SHA-256 of the source that the plugins had when they were loaded, with that of the modules
    of the current folder that they had imported; None without plugins.
    """
    loaded = [sources for module, sources in _sources.items() if sys.modules.get(module.__name__) is module]
    pairs = {pair for sources in loaded for pair in sources.items()}
    return hashlib.sha256(repr(sorted(pairs)).encode()).hexdigest() if pairs else None


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

    A ``ValueError`` or ``OSError`` is about what the plugin was given. Any other is a bug in the plugin.
    """
    frames = _own_frames(error)
    if not frames or isinstance(error, (InputError, RunError)) or out_of_memory(error):
        return None
    line = f"plugin {frames[-1][0].f_globals['__name__']} failed: {message_of(error)}{location(error)}"
    explained: InputError | RunError
    if isinstance(error, (ValueError, OSError)):
        explained = InputError(line)
    else:
        explained = RunError(f"{line}; HYDRA_FULL_ERROR=1 shows the traceback")
    explained.__cause__ = error
    return explained


def location(error: BaseException) -> str:
    """Return the line of a plugin that led to an error, as the end of a sentence; empty if none did."""
    frames = _own_frames(error)
    if not frames or isinstance(error, SyntaxError):  # which says itself where it is
        return ""
    frame, line = frames[-1]
    return f" ({os.path.relpath(frame.f_code.co_filename)}, line {line})"


def _own_frames(error: BaseException) -> list[tuple[FrameType, int]]:
    """Return the frames in a traceback, with their lines, that are of the user's modules."""
    walk = traceback.walk_tb(error.__traceback__)
    return [
        (frame, line)
        for frame, line in walk
        if _is_own(frame.f_globals.get("__name__", ""), frame.f_code.co_filename)
    ]


def _is_own(module: str, file: str) -> bool:
    """Return whether a module was named by the user, or found in a folder where this was done."""
    top = module.partition(".")[0]
    places = tuple(f"{folder}/{top}{end}" for folder in _folders for end in (".py", "/"))
    return top in _named or (top != "nsvm_cli" and file.startswith(places))
