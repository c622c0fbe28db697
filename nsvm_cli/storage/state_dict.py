"""State dicts as in PyTorch: nested dicts of tensors and numbers, from which a run can resume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nsvm_cli.errors import InputError

StateDict = dict[str, Any]
"""Maps names to tensors, numbers, None or nested state dicts."""

NOT_SAVED = {"saved": "no: saved apart, or recomputed when needed, with the same bits"}
RESTORED = {"saved": "by state_dict, and restored by the trainer"}
"""Metadata of dataclass fields. ``Saved`` does not save NOT_SAVED fields. It saves RESTORED fields, but does
not set them."""


class Saved:
    """Base class of objects whose state dict holds the attributes that ``saved`` lists."""

    @property
    def saved(self) -> Sequence[str]:
        """Names of the attributes: by default, the fields of the dataclass that are not NOT_SAVED."""
        return [f.name for f in fields(self) if f.metadata != NOT_SAVED]  # type: ignore[arg-type]

    def state_dict(self) -> StateDict:
        """Return the attributes as a state dict, or raise an InputError if an attribute cannot be saved."""
        return {name: saved_value(name, getattr(self, name)) for name in self.saved}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Set all attributes but RESTORED fields; raise a ValueError for a value of another type or shape."""
        expect_keys(saved, self.saved)
        own_fields = getattr(self, "__dataclass_fields__", {})
        for name in self.saved:
            if name not in own_fields or own_fields[name].metadata != RESTORED:
                setattr(self, name, loaded_value(name, getattr(self, name), saved[name]))


def saved_value(name: str, value: Any) -> Any:
    if hasattr(value, "state_dict"):
        return value.state_dict()
    if isinstance(value, list):
        return {str(n): saved_value(name, item) for n, item in enumerate(value)}
    if isinstance(value, dict):
        return {key: saved_value(key, item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, bool) or not isinstance(value, Tensor | int | float | None):
        raise InputError(
            f"the state's field {name} cannot be saved: expected a number, a tensor, or an object with "
            f"state_dict and load_state_dict, got {type(value).__name__}; to train without checkpoints, set "
            "checkpoint.every=null"
        )
    return value


def loaded_value(name: str, now: Any, saved: Any) -> Any:
    """Return a saved value after checking it against the current value ``now``."""
    if hasattr(now, "load_state_dict"):
        now.load_state_dict(saved)
        return now
    if isinstance(now, list):
        expect_keys(saved, [*map(str, range(len(now)))])
        return [loaded_value(name, item, saved[str(n)]) for n, item in enumerate(now)]
    if isinstance(now, dict):
        expect_keys(saved, now)
        return {key: loaded_value(key, item, saved[key]) for key, item in now.items()}
    if isinstance(now, np.ndarray):
        return loaded_like(torch.from_numpy(now), saved, name).numpy()
    if isinstance(now, Tensor):
        return loaded_like(now, saved, name)
    # a field that is None now may have been saved with any value
    kinds = (int, float, Tensor, type(None)) if now is None else (int,) if type(now) is int else (int, float)
    if not isinstance(saved, kinds) or isinstance(saved, bool):
        raise ValueError(f"{name}: expected {type(now).__name__}, got {type(saved).__name__}")
    return saved


def expect_keys(saved: object, keys: Iterable[str]) -> None:
    """Raise a ValueError unless ``saved`` is a mapping with exactly these keys."""
    if not isinstance(saved, Mapping) or saved.keys() != set(keys):
        got = ", ".join(map(str, saved)) if isinstance(saved, Mapping) else type(saved).__name__
        raise ValueError(f"expected the keys {', '.join(keys)}, got {got}")


def loaded_like(now: Tensor, saved: object, name: str) -> Tensor:
    """Return a saved tensor with the strides of ``now``; raise a ValueError if shapes or dtypes differ."""
    if not isinstance(saved, Tensor) or saved.shape != now.shape or saved.dtype != now.dtype:
        got = f"{saved.dtype} {list(saved.shape)}" if isinstance(saved, Tensor) else type(saved).__name__
        raise ValueError(f"{name}: expected {now.dtype} {list(now.shape)}, got {got}")
    return torch.empty_like(now).copy_(saved)


def nested(values: Mapping[str, Any]) -> StateDict:
    """Return nested dicts for values by path (``state/window/s``), or raise a ValueError for a bad path."""
    tree: StateDict = {}
    for path, value in values.items():
        *names, last = path.split("/")
        at = tree
        for name in names:
            at = at.setdefault(name, {})
            if not isinstance(at, dict):
                raise ValueError(f"{path}: expected a dict at {name}, got a value")
        if last in at:
            raise ValueError(f"{path} occurs twice")
        at[last] = value
    return tree
