"""A user's own modules, which register kernels, networks, data sets or algorithms when imported, and what
their code raises.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType

from nsvm_cli.errors import InputError, RunError, message_of, out_of_memory

MOST_FRAMES = 10
"""Frames of a plugin's code that a traceback of a bug in it shows."""


_named: set[str] = set()
_folders: set[str] = set()
"""The top-level modules that the user has named, and the folders in which this was done."""


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
            importlib.import_module(module)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name in (module, module.split(".")[0]):
                raise InputError(
                    f"plugins: there is no module {module!r} in the current folder or on PYTHONPATH"
                ) from None
            raise InputError(f"plugin {module} failed: {_what(error)}{location(error)}") from error


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
