"""A trained model as one safetensors file: tensors, and JSON in the metadata. No pickle."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from pydantic.dataclasses import dataclass
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.device import select_device
from nsvm_cli.errors import InputError
from nsvm_cli.kernels import build_kernel
from nsvm_cli.model import NSVM, Expansion
from nsvm_cli.networks import build_network
from nsvm_cli.registry import STRICT, one_line
from nsvm_cli.run_directory import write_atomically
from nsvm_cli.settings import Settings, parse_settings, plain

FORMAT = "nsvm-1"
THETA = "theta."


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Facts:
    """What prediction and its report need beside tensors and settings.

    ``scale`` and ``bias`` belong to g (see ``Expansion``); ``shape`` is that of one sample; ``sha256``
    is the checksum of the data that the model was trained on.
    """

    scale: float
    bias: float
    shape: tuple[int, ...]
    classes: tuple[str, str]
    steps: int
    source: str
    sha256: str


@dataclass(frozen=True, config={**STRICT, "arbitrary_types_allowed": True})
class Checkpoint:
    """What a checkpoint file holds."""

    model: NSVM
    settings: Settings
    facts: Facts


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Writes the file under a temporary name, then renames it."""
    model, e = checkpoint.model, checkpoint.model.expansion
    tensors = {THETA + name: tensor for name, tensor in model.network.state_dict().items()}
    tensors |= {"z": e.z, "alpha": e.alpha, "y": e.y, "mean": model.scaling.mean, "std": model.scaling.std}
    # one entry, because safetensors writes several in an order of its own, and the same run is the same file
    metadata = {
        FORMAT: json.dumps({"settings": plain(checkpoint.settings), "facts": asdict(checkpoint.facts)})
    }
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save(contiguous, metadata))


def load_checkpoint(path: Path, runtime: Mapping[str, Any] | None = None) -> Checkpoint:
    """Reads and checks a checkpoint; ``runtime`` replaces its ``device`` and ``threads``.

    Raises:
        InputError: the file is missing, damaged, of another kind, or contradicts itself.
    """
    tensors, metadata = _read(path)
    if FORMAT not in metadata:
        raise InputError(f"{path} is not an nsvm checkpoint: its metadata have no entry {FORMAT}")
    try:
        content = json.loads(metadata[FORMAT])
        settings, facts = parse_settings(content["settings"]), Facts(**content["facts"])
    except ValidationError as error:
        raise _unusable(path, one_line(error)) from None
    except (InputError, KeyError, TypeError, AttributeError, RecursionError, json.JSONDecodeError) as error:
        raise _unusable(path, error) from None
    settings = parse_settings({**plain(settings), **(runtime or {})})
    device = select_device(settings.device, settings.threads)
    try:
        model = _model(tensors, settings, facts, device)
    except (InputError, KeyError, RuntimeError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise _unusable(path, error) from None
    return Checkpoint(model, settings, facts)


def _unusable(path: Path, reason: object) -> InputError:
    reason = textwrap.shorten(str(reason), 300, placeholder=" ...")
    return InputError(f"{path} is a checkpoint that cannot be used: {reason}")


def _read(path: Path) -> tuple[dict[str, Tensor], Mapping[str, str]]:
    if not path.is_file():
        raise InputError(
            f"{path} {'is not a file' if path.exists() else 'does not exist'}: expected a checkpoint"
        )
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read as a checkpoint (a safetensors file): {error}") from None


def _model(tensors: dict[str, Tensor], settings: Settings, facts: Facts, device: torch.device) -> NSVM:
    dtype: torch.dtype = getattr(torch, settings.dtype)
    network = build_network(settings.network, facts.shape, seed=0).to(device, dtype)
    network.load_state_dict({k.removeprefix(THETA): v for k, v in tensors.items() if k.startswith(THETA)})
    z, alpha, y, mean, std = (tensors[name] for name in ("z", "alpha", "y", "mean", "std"))
    _expect(z.ndim == 2 and alpha.shape == y.shape == z.shape[:1], "z, alpha and y do not belong together")
    _expect({t.dtype for t in (z, alpha, y)} == {dtype}, f"z, alpha and y are not {settings.dtype}")
    _expect(
        mean.shape == std.shape and mean.shape in ((), facts.shape), "mean and std do not fit the samples"
    )
    _expect(mean.dtype == std.dtype == torch.float64, "mean and std are not float64")
    _expect(all(bool(t.isfinite().all()) for t in tensors.values()), "a tensor holds NaN or infinity")
    _expect(bool((y.abs() == 1).all() and (alpha > 0).all()), "y is not -1 or +1, or alpha is not positive")
    _expect(facts.scale > 0 and bool((std > 0).all()), "scale or std is not positive")
    _expect(isinstance(settings.algorithm.get("name"), str), "the algorithm has no name")
    with torch.no_grad():
        n = network(torch.zeros(1, *facts.shape, dtype=dtype, device=device)).shape[1]
    _expect(z.shape[1] == n, f"z has {z.shape[1]} columns where the network gives {n} features")
    expansion = Expansion(z.to(device), alpha.to(device), y.to(device), facts.scale, facts.bias)
    return NSVM(Scaling(mean, std), network, build_kernel(settings.kernel), expansion)


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise RuntimeError(otherwise)


def locate(path: str | Path) -> Path:
    """The checkpoint that a user names: a file, or the last one of a run directory."""
    path = Path(path)
    if not path.is_dir():
        return path
    if not (path / "final.safetensors").is_file():
        raise InputError(f"{path} has no final.safetensors: expected the directory of a finished run")
    return path / "final.safetensors"
