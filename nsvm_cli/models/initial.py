"""theta before the first step: at random, as the seed says, or that of another model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError

import torch
from jaxtyping import Shaped
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from nsvm_cli.config.settings import Init, Settings
from nsvm_cli.errors import InputError
from nsvm_cli.models.composed_kernels import begin, kernel_of, learnt
from nsvm_cli.models.feature_map import features
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.models.networks import build_network, own_name
from nsvm_cli.models.optimizers import expect_names, is_within
from nsvm_cli.randomness import Stream, derived_seed
from nsvm_cli.storage import tensor_file
from nsvm_cli.storage.files import open_regular

MODEL = "nsvm-model-3"
"""The kind of a model file; see ``nsvm_cli.artifacts.model_file``."""

THETA, OF_KERNEL = "theta.", "kernel."
"""What the names of theta's tensors begin with in a model file."""


def at_start(
    settings: Settings, shape: tuple[int, ...], outputs: tuple[int, ...], like: Shaped[Tensor, "..."]
) -> tuple[nn.Module, Kernel]:
    """Return the network and the kernel before the first step, of the type and on the device of a tensor, for
    samples and decision values of these shapes.

    Raises:
        InputError: a setting of theirs is wrong, or there is no such theta to start from.
    """
    network = build_network(settings.network, shape, derived_seed(settings.seed, Stream.THETA), outputs)
    network = network.to(like)
    z = features(network, like.new_zeros(1, *shape))
    if z.ndim != 2:
        got = f"shape {tuple(z.shape)} for 1 sample"
        raise InputError(f"network {settings.network['name']} returned {got}, expected (1, n)")
    K = begin(kernel_of(settings), z)
    if settings.init.run is not None:
        own = network.state_dict() | {OF_KERNEL + name: p.data for name, p in learnt(K).items()}
        names = {name: name if name.startswith(OF_KERNEL) else own_name(network, name) for name in own}
        _copy(_theta_in(Path(settings.init.run)), own, names, settings.init)
    return network, K


def _theta_in(path: Path) -> Mapping[str, Tensor]:
    """Return theta by the names of its tensors: of a run, a model file, or a state dict of torch's."""
    file = path / "final.safetensors" if path.is_dir() else path
    try:
        open_regular(file).close()  # a stranger's settings may name any file
        if file.suffix != ".safetensors":
            loaded = torch.load(file, map_location="cpu", weights_only=True)  # No pickle: it runs no code
            return {name: tensor for name, tensor in loaded.items() if isinstance(tensor, Tensor)}
        with safe_open(file, framework="pt") as opened:
            is_model = MODEL in (opened.metadata() or {})
        if not is_model:
            return load_file(file)
    except (OSError, ValueError, RuntimeError, AttributeError, SafetensorError, UnpicklingError) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise InputError(f"init.run={path}: no theta could be read from {file}: {reason}") from None
    tensors = tensor_file.read(file, MODEL).tensors()  # alpha, z and others are no part of theta
    return {n.removeprefix(THETA): t for n, t in tensors.items() if n.startswith((THETA, OF_KERNEL))}


def _copy(
    theta: Mapping[str, Tensor], own: Mapping[str, Tensor], names: Mapping[str, str], init: Init
) -> None:
    """Copy theta, or what of it begins with ``only``, into tensors of the same names: a user's, or those that
    a network has here, or there, where its features are normalised or it has a head.
    """
    expect_names("init.only", init.only, [*names.values()])
    for full, name in names.items():
        if init.only and not is_within(name, init.only):
            continue
        known = (name, full, f"0.{name}", f"0.0.{name}")
        found = next((theta[key] for key in known if key in theta), None)
        if found is None or found.shape != own[full].shape:
            had = "none" if found is None else f"one of shape {list(found.shape)}"
            raise InputError(
                f"init.run={init.run}: expected {name} of shape {list(own[full].shape)}, found {had}; "
                "init.only=[BEGINNING] takes a part"
            )
        own[full].copy_(found)
