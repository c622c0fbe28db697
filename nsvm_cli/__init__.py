"""Neural support vector machines, trained from the command line (Simon & Radons 2023)."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # importing typing takes so long that Ctrl-C may interrupt the import
if TYPE_CHECKING:
    from typing import Any

    from nsvm_cli.comparison.records import load_runs
    from nsvm_cli.estimators import NSVMClassifier, NSVMRegressor, load_model

__version__ = "1.0.0"

__all__ = ["NSVMClassifier", "NSVMRegressor", "load_model", "load_runs"]
"""The public names, whose modules are imported on first use, since torch takes seconds."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "comparison.records" if name == "load_runs" else "estimators"
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
