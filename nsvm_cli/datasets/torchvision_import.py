"""The only import of torchvision, which is postponed until a run needs it."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import Any

import torch

from nsvm_cli.errors import RunError, first_line

_IMPORTING = threading.RLock()


def import_torchvision(module: str) -> Any:
    """Return the module ``torchvision.<module>``, or raise a RunError if it cannot be imported."""
    name = f"torchvision.{module}"
    try:
        with _IMPORTING, torch.device("cpu"):  # the caller may have set another device
            try:
                return importlib.import_module(name)
            except RuntimeError as error:
                if "operator torchvision::nms does not exist" not in str(error):
                    raise
            for half_imported in [key for key in sys.modules if key.split(".")[0] == "torchvision"]:
                del sys.modules[half_imported]
            # with a CPU build of torch, the default wheel of torchvision cannot load its operators, and its
            # import fails unless these two operators of detection models are declared
            for operator in ("nms", "qnms"):
                schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                torch.library.define(f"torchvision::{operator}", schema)
            return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:
        raise RunError(
            f"torchvision cannot be imported ({first_line(error)}); install the version of torchvision that "
            f"requires torch {torch.__version__}"
        ) from None
