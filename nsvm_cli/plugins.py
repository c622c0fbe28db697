"""Plugins: a user's own modules, which register kernels, networks, data sets or algorithms when imported."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec, resolve_name
from pathlib import Path

from nsvm_cli.errors import InputError, RunError, message_of, out_of_memory

_roots: set[str] = set()
"""Folders from which plugins were loaded, and the paths of these plugins without their suffixes."""

_sources: dict[str, bytes] = {}
"""Maps the names of plugins, and of the user's modules that plugins import, to their sources."""


def load_plugins(modules: Iterable[str]) -> None:
    """Import modules, also from the current folder, which is appended to ``sys.path``.

    Importing runs code. Names must therefore never come from a model file or a run directory. An InputError
    is raised if a module does not exist or cannot be imported.
    """
    for name in modules:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise InputError(f"plugins: expected names of modules such as my_parts, got {name!r}")
        if (folder := os.getcwd()) not in sys.path:
            sys.path.append(folder)  # it is not removed, since a plugin may import modules later
        if (spec := find_spec(name.partition(".")[0])) is None:
            raise InputError(f"plugins: there is no module {name!r} in the current folder or on PYTHONPATH")
        paths = spec.submodule_search_locations or [str(spec.origin).removesuffix(".py")]
        _roots.update([folder, *paths])
        try:
            import_module(name)
        except Exception as error:
            raise InputError(f"plugin {name} failed: {message_of(error)}{location(error)}") from error
        if name not in _sources:
            for key in sys.modules.keys() - _sources:
                if (file := getattr(sys.modules[key], "__file__", None)) and _is_own(file):
                    _sources[key] = Path(file).read_bytes()


def code_sha256(modules: Iterable[str] | None = None) -> str | None:
    """Return the SHA-256 of the user's modules in ``modules`` and of the user's modules that they import.

    All of the user's modules are included if ``modules`` is None or contains a module of another library, for
    example because of a ``functools.partial``. The result is None if there are no such modules.
    """
    pending = [""] if modules is None else [name for name in modules if name.partition(".")[0] != "nsvm_cli"]
    if not _sources.keys() >= {*pending}:
        pending = [*_sources]
    sources: dict[str, bytes] = {}
    while pending:
        name = pending.pop()
        if name and name not in sources:
            pending.append(name.rpartition(".")[0])  # the module of a name, or the package of a module
        if name in _sources and name not in sources:
            sources[name] = _sources[name]
            pending += _imports(_sources[name], sys.modules[name].__package__)
    return hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest() if sources else None


@functools.cache
def _imports(source: bytes, package: str | None) -> list[str]:
    """Return the absolute names that a module imports. The list is empty for a compiled module."""
    names = []
    with contextlib.suppress(SyntaxError, ValueError, ImportError):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                module = resolve_name("." * node.level + (node.module or ""), package)
                names += [f"{module}.{alias.name}" for alias in node.names]
    return names


@contextlib.contextmanager
def plugin_errors() -> Iterator[None]:
    """Context manager: convert errors of plugins to errors with a message of one line.

    Raises:
        InputError: a plugin raised a ``ValueError`` or ``OSError``, because its input is invalid.
        RunError: memory ran out, or a plugin raised another error.
    """
    try:
        yield
    except (InputError, RunError):
        raise
    except Exception as error:
        if shortage := out_of_memory(error):
            raise shortage from error
        if (entry := _entry(error)) is None:
            raise
        line = f"plugin {Path(entry.filename).stem} failed: {message_of(error)}{location(error)}"
        if isinstance(error, (ValueError, OSError)):
            raise InputError(line) from error
        raise RunError(f"{line}; set HYDRA_FULL_ERROR=1 to show the traceback") from error


def location(error: BaseException) -> str:
    """Return `` (FILE, line N)`` for an error raised in a plugin, otherwise an empty string."""
    entry = _entry(error)
    if entry is None or isinstance(error, SyntaxError):  # the message of a SyntaxError includes the location
        return ""
    return f" ({os.path.relpath(entry.filename)}, line {entry.lineno})"


def _entry(error: BaseException) -> traceback.FrameSummary | None:
    """Return the last entry of the traceback that is in one of the user's modules, or None."""
    entries = traceback.extract_tb(error.__traceback__)
    return next((entry for entry in reversed(entries) if _is_own(entry.filename)), None)


def _is_own(file: str) -> bool:
    """Return whether a file is a plugin, or a module in a folder from which plugins were loaded."""
    path = os.path.splitext(file)[0] + os.sep  # faster than Path, since all of sys.modules are checked
    below = [path.removeprefix(root).split(os.sep)[1:-1] for root in _roots if path.startswith(root + os.sep)]
    return any(all(map(str.isidentifier, parts)) and parts[:1] != ["nsvm_cli"] for parts in below)
