"""Neural support vector machines, trained from the command line (Simon & Radons 2023)."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # importing typing takes so long that Ctrl-C may interrupt the import
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

FACE = {
    "NSVMClassifier": "nsvm_cli.estimators",
    "NSVMRegressor": "nsvm_cli.estimators",
    "load_model": "nsvm_cli.estimators",
    "load_runs": "nsvm_cli.comparison.records",
}
"""The public names and their modules, which are imported on first use, since torch takes seconds."""


def __getattr__(name: str) -> Any:
    if name not in FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(FACE[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *FACE]
