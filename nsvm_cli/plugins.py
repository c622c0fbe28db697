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
"""Folders in which the user has named plugins, and the paths of these without their suffixes."""

_sources: dict[str, bytes] = {}
"""Sources of the plugins and of the user's modules that they imported, by name."""


def load_plugins(modules: Iterable[str]) -> None:
    """Import modules, also from the current folder, which is appended to the path.

    The names come from the command line or the user's own configuration folder, never from a model file or a
    run directory: importing a module runs its code.

    Raises:
        InputError: a module does not exist, or cannot be imported.
    """
    for name in modules:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise InputError(f"plugins: expected the names of modules, such as my_parts, got {name!r}")
        if (folder := os.getcwd()) not in sys.path:
            sys.path.append(folder)  # and stays: a plugin may import another module later
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
    """Return the SHA-256 of the user's modules among these and of those that they import; None without any.

    It is the hash of their sources when they were loaded. By default, and if a module belongs to another
    library, as for a ``functools.partial``, all of the user's modules count.
    """
    left = [""] if modules is None else [name for name in modules if name.partition(".")[0] != "nsvm_cli"]
    if not _sources.keys() >= {*left}:
        left = [*_sources]
    sources: dict[str, bytes] = {}
    while left:
        name = left.pop()
        if name and name not in sources:
            left.append(name.rpartition(".")[0])  # the module of a name, or the package of a module
        if name in _sources and name not in sources:
            sources[name] = _sources[name]
            left += _imports(_sources[name], sys.modules[name].__package__)
    return hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest() if sources else None


@functools.cache
def _imports(source: bytes, package: str | None) -> list[str]:
    """Return the absolute names that a module imports; a compiled module has none."""
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
    """Explain in one line that memory ran out, or that a plugin failed within the context.

    Raises:
        InputError: a plugin raised a ``ValueError`` or ``OSError``, which concern its input.
        RunError: memory ran out, or a plugin has a bug.
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
        raise RunError(f"{line}; HYDRA_FULL_ERROR=1 shows the traceback") from error


def location(error: BaseException) -> str:
    """Return the file and line of a plugin where an error arose, as the end of a sentence, else ``""``."""
    entry = _entry(error)
    if entry is None or isinstance(error, SyntaxError):  # its message has the location
        return ""
    return f" ({os.path.relpath(entry.filename)}, line {entry.lineno})"


def _entry(error: BaseException) -> traceback.FrameSummary | None:
    """Return the last entry of a traceback in one of the user's modules."""
    entries = traceback.extract_tb(error.__traceback__)
    return next((entry for entry in reversed(entries) if _is_own(entry.filename)), None)


def _is_own(file: str) -> bool:
    """Return whether a file is a plugin's, or a module in a folder in which plugins were named."""
    path = os.path.splitext(file)[0] + os.sep  # no Path, for speed: each of sys.modules is checked
    below = [path.removeprefix(root).split(os.sep)[1:-1] for root in _roots if path.startswith(root + os.sep)]
    return any(all(map(str.isidentifier, parts)) and parts[:1] != ["nsvm_cli"] for parts in below)
