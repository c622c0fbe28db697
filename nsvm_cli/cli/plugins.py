"""A user's own modules, which register kernels, networks, data sets or algorithms when imported."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from itertools import dropwhile
from types import ModuleType

from nsvm_cli.errors import InputError


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
            raise InputError(
                f"plugin {module} failed: {_what_and_where(error)}; HYDRA_FULL_ERROR=1 shows the traceback"
            ) from error


@dataclass
class CurrentFolder(MetaPathFinder):
    """Finds modules in the current folder: those that were named, and those that these import themselves.

    If the folder were on ``sys.path``, a file there would be imported whenever a library looks for a module
    of that name, and not every library that looks for one needs it or has it.
    """

    folder: str
    named: frozenset[str]
    found: set[str] = field(default_factory=set, compare=False)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is; those within a package have a ``path`` and are found without this."""
        if path is not None or (name not in self.named and _importing_module() not in self.found):
            return None
        spec = PathFinder.find_spec(name, [self.folder])
        if spec is not None:
            self.found.add(name)
        return spec


def _importing_module() -> str:
    """Return the top-level module whose import statement is being carried out."""
    stack = traceback.walk_stack(sys._getframe())
    modules = (str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in stack)
    since = dropwhile(lambda module: module != "importlib", modules)
    return next(dropwhile(lambda module: module == "importlib", since), "")


def _what_and_where(error: Exception) -> str:
    """Return an error of the user's code, and the line in the module, or in one beside it, that led to it."""
    what = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, SyntaxError):
        return f"{what} ({os.path.relpath(error.filename or '')}, line {error.lineno})"
    _, *frames = (f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename)
    beside = [f for f in frames if os.path.dirname(f.filename) == os.path.dirname(frames[0].filename)]
    return f"{what} ({os.path.relpath(beside[-1].filename)}, line {beside[-1].lineno})" if beside else what
