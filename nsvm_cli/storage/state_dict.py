"""State dicts, as in PyTorch: nested dicts of tensors and numbers, from which a run can resume.

They are loaded into a newly constructed object, so that each value can be checked against its counterpart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nsvm_cli.errors import InputError

StateDict = dict[str, Any]
"""Maps names to tensors, numbers, None and nested state dicts."""

NOT_SAVED = {"saved": "no: saved apart, or recomputed when needed, with the same bits"}
RESTORED = {"saved": "by state_dict, and restored by the trainer"}
"""For ``dataclasses.field(metadata=...)``."""


class Saved:
    """An object whose state dict holds the attributes that ``saved`` names: numbers, tensors, objects with
    ``state_dict`` and ``load_state_dict``, or lists and dicts of these.
    """

    @property
    def saved(self) -> Sequence[str]:
        """The fields of a dataclass, except those that are NOT_SAVED."""
        return [f.name for f in fields(self) if f.metadata != NOT_SAVED]  # type: ignore[arg-type]

    def state_dict(self) -> StateDict:
        """Return the attributes as a state dict.

        Raises:
            InputError: one is neither a number nor a tensor, and has no ``state_dict``.
        """
        return {name: saved_value(name, getattr(self, name)) for name in self.saved}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Set the attributes of this new object to saved values, except fields that are RESTORED.

        Raises:
            ValueError: a saved value does not match the type or shape of the current one.
        """
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
            f"state_dict and load_state_dict, got {type(value).__name__}; checkpoint.every=null avoids that"
        )
    return value


def loaded_value(name: str, now: Any, saved: Any) -> Any:
    """Return the saved value, checked against the current one."""
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
    # a field that is None at first may hold any value later
    kinds = (int, float, Tensor, type(None)) if now is None else (int,) if type(now) is int else (int, float)
    if not isinstance(saved, kinds) or isinstance(saved, bool):
        raise ValueError(f"{name}: expected {type(now).__name__}, got {type(saved).__name__}")
    return saved


def expect_keys(saved: object, keys: Iterable[str]) -> None:
    """Raise a ValueError unless ``saved`` has exactly these keys."""
    if not isinstance(saved, Mapping) or saved.keys() != set(keys):
        got = ", ".join(map(str, saved)) if isinstance(saved, Mapping) else type(saved).__name__
        raise ValueError(f"expected {', '.join(keys)}, got {got}")


def loaded_like(now: Tensor, saved: object, name: str) -> Tensor:
    """Return the saved tensor with the strides of the current one.

    Raises:
        ValueError: it is not a tensor of the same shape and dtype.
    """
    if not isinstance(saved, Tensor) or saved.shape != now.shape or saved.dtype != now.dtype:
        got = f"{saved.dtype} {list(saved.shape)}" if isinstance(saved, Tensor) else type(saved).__name__
        raise ValueError(f"{name}: expected {now.dtype} {list(now.shape)}, got {got}")
    return torch.empty_like(now).copy_(saved)


def nested(values: Mapping[str, Any]) -> StateDict:
    """Return the nested dicts for values by path, such as ``state/window/s``: the inverse of ``flat``.

    Raises:
        ValueError: a path occurs twice, or leads through a value.
    """
    tree: StateDict = {}
    for path, value in values.items():
        *names, last = path.split("/")
        at = tree
        for name in names:
            at = at.setdefault(name, {})
            if not isinstance(at, dict):
                raise ValueError(f"{path} leads through a value")
        if last in at:
            raise ValueError(f"{path} occurs twice")
        at[last] = value
    return tree
