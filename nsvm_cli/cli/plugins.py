"""A user's own modules, which register kernels, networks, data sets or algorithms when imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable

from nsvm_cli.errors import InputError


def load_plugins(modules: Iterable[str]) -> None:
    """Import modules that the user has named; the current folder counts as the last one on the path.

    Their names come from the command line or the user's own configuration folder, never from a model file or
    a run directory: importing a module runs its code.

    Raises:
        InputError: there is no such module.
    """
    for module in modules:
        if not isinstance(module, str) or not all(part.isidentifier() for part in module.split(".")):
            raise InputError(
                f"plugins: expected the names of modules, such as plugins=[my_parts], got {module!r}"
            )
        if "" not in sys.path:
            sys.path.append("")
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module.split(".")[0] and error.name != module:
                raise  # something that their module imports
            raise InputError(
                f"plugins: there is no module {module!r} in the current folder or on PYTHONPATH"
            ) from None
