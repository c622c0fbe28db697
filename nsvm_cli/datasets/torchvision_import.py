"""The only place that imports torchvision, and only when a network or an augmentation of a run needs it."""

from __future__ import annotations

import importlib
import sys
import threading
from functools import cache
from typing import Any

import torch

from nsvm_cli.errors import RunError

_IMPORTING = threading.RLock()

NO_OPERATORS = "operator torchvision::nms does not exist"


def import_torchvision(module: str) -> Any:
    """Import ``torchvision.<module>`` and return it.

    With a CPU build of torch, torchvision's default wheel cannot load its compiled operators, which only its
    detection models use, and then fails because their declarations are missing. So they are declared here.

    Raises:
        RunError: torchvision is missing, or does not match this torch.
    """
    try:
        with _IMPORTING, torch.device("cpu"):  # whatever device a caller is building its own tensors on
            return _import(f"torchvision.{module}")
    except (ImportError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise RunError(
            f"torchvision cannot be imported ({reason}): install the version that goes with torch "
            f"{torch.__version__}"
        ) from None


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except RuntimeError as error:
        if NO_OPERATORS not in str(error):
            raise
    for half_imported in [key for key in sys.modules if key.split(".")[0] == "torchvision"]:
        del sys.modules[half_imported]
    _declare_operators()
    return importlib.import_module(name)


@cache  # which also keeps the library: its declarations live as long as it does
def _declare_operators() -> torch.library.Library:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
