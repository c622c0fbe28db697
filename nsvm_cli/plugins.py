"""A user's own modules, which register kernels, networks, data sets or algorithms when imported, and what
their code raises.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from itertools import dropwhile
from types import FrameType, ModuleType

from nsvm_cli.errors import InputError, RunError, message_of, out_of_memory

MOST_FRAMES = 10
"""Frames of a plugin's code that a traceback of a bug in it shows."""


def load_plugins(modules: Iterable[str]) -> None:
    """Import modules that the user has named; the current folder counts as the last one on the path.

    Their names come from the command line or the user's own configuration folder, never from a model file or
    a run directory: importing a module runs its code.

    Raises:
        InputError: there is no such module, or it cannot be imported.
    """
    modules = list(modules)
    for module in modules:
        if not isinstance(module, str) or not all(part.isidentifier() for part in module.split(".")):
            raise InputError(
                f"plugins: expected the names of modules, such as plugins=[my_parts], got {module!r}"
            )
    finder = CurrentFolder(os.getcwd(), frozenset(module.split(".")[0] for module in modules))
    if finder not in sys.meta_path:
        sys.meta_path.append(finder)
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name in (module, module.split(".")[0]):
                raise InputError(
                    f"plugins: there is no module {module!r} in the current folder or on PYTHONPATH"
                ) from None
            raise InputError(f"plugin {module} failed: {_what(error)}{location(error)}") from error


@dataclass
class CurrentFolder(MetaPathFinder):
    """Finds modules in the current folder: those that were named, and those that these import themselves.

    If the folder were on ``sys.path``, a file there would be imported whenever a library tries to import a
    module of that name, even an optional one.
    """

    folder: str
    named: frozenset[str]
    imported: set[str] = field(default_factory=set, compare=False)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is; those within a package have a ``path`` and are found without this."""
        if path is not None or (name not in self.named and _importing_module() not in self.imported):
            return None
        spec = PathFinder.find_spec(name, [self.folder])
        if spec is not None:
            self.imported.add(name)
        return spec


def _importing_module() -> str:
    """Return the top-level module whose import statement is running."""
    stack = traceback.walk_stack(sys._getframe())
    modules = (str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in stack)
    since = dropwhile(lambda module: module != "importlib", modules)
    return next(dropwhile(lambda module: module == "importlib", since), "")


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
    finders = [finder for finder in sys.meta_path if isinstance(finder, CurrentFolder)]
    modules = {module for finder in finders for module in finder.named | finder.imported}
    stack = traceback.walk_tb(error.__traceback__)
    return [(f, line) for f, line in stack if f.f_globals.get("__name__", "").partition(".")[0] in modules]


def _what(error: Exception) -> str:
    return message_of(error).removesuffix(": ")
