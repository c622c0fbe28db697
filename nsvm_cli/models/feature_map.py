"""The feature map F_theta, its initial theta, and gradient descent steps in theta."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zlib import crc32

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from nsvm_cli.config.registry import OneLine
from nsvm_cli.config.settings import Init, Settings, is_within
from nsvm_cli.datasets.scaling import ScaledSamples
from nsvm_cli.errors import InputError, NotFiniteError, first_line
from nsvm_cli.models.composed_kernels import kernel_of, learnt, with_initial_parameters
from nsvm_cli.models.dropout import Masks, dropout_masks
from nsvm_cli.models.kernel_gradients import Differences, WithGradient, directions
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.models.networks import build_network, has_modes, own_name, trains_otherwise
from nsvm_cli.models.optimizers import Optimizer, Rule, expect_names
from nsvm_cli.randomness import Stream, derived_seed, draws, key_of_step, seeded
from nsvm_cli.storage import tensor_file
from nsvm_cli.storage.files import open_regular
from nsvm_cli.storage.state_dict import StateDict, loaded_value, saved_value

CHUNK = 2**17
"""Maximum number of values of x in a forward pass of ``features``. The last bits of features may depend on
the number of samples in a pass, so this number is the same for all callers."""

SMALL_BATCH, WIDE_LAYER = 64, 1024
"""More than ``SMALL_BATCH`` samples are split into smaller chunks if a layer is wider than ``WIDE_LAYER``."""

Augment = Callable[[Float[Tensor, "p ..."], Int64[np.ndarray, " p"], int], Float[Tensor, "p ..."]]
"""A function of samples, their indices and a step's random key that returns randomly changed samples."""


@dataclass(frozen=True)
class Batch(OneLine):
    """Samples x and their indices i in the training set, which determine dropout and augmentation."""

    x: Float[Tensor, "p ..."]
    i: Int64[np.ndarray, " p"]

    def __len__(self) -> int:
        return len(self.i)

    def __getitem__(self, rows: Int64[np.ndarray, " v"]) -> Batch:
        return Batch(self.x[torch.from_numpy(rows).to(self.x.device)], self.i[rows])


def distinct(parts: Sequence[Batch]) -> tuple[Batch, list[Int64[np.ndarray, " p"]]]:
    """Return one batch of the distinct samples of several batches, and the rows of each batch in it."""
    _, first, same = np.unique(np.concatenate([p.i for p in parts]), return_index=True, return_inverse=True)
    order = np.argsort(first)
    rows = np.argsort(order)[same]
    whole = Batch(torch.cat([p.x for p in parts]), np.concatenate([p.i for p in parts]))[first[order]]
    return whole, np.split(rows, np.cumsum([len(p) for p in parts])[:-1])


class Training:
    """F_theta in the training passes of step t, with dropout, augmentation and gradients.

    ``F(x)`` returns the features of a batch, and caches them. ``F(x, y, ...)`` returns the features of
    several batches, from one pass over their distinct samples.
    """

    def __init__(self, F: FeatureMap, t: int) -> None:
        self.F, self.t = F, t
        self._features: dict[bytes, Tensor] = {}

    def __call__(self, *x: Batch) -> Any:
        if len(x) == 1:
            if (i := x[0].i.tobytes()) not in self._features:
                self._features[i] = self.F.training_pass(x[0], self.t)
            return self._features[i]
        whole, rows = distinct(x)
        z = self.F.training_pass(whole, self.t)
        return tuple(z[torch.from_numpy(part).to(z.device)] for part in rows)


MODEL = "nsvm-model-3"
"""The kind and version of a model file; see ``nsvm_cli.artifacts.model_file``."""

NETWORK, KERNEL = "theta.", "kernel."
"""Prefixes of the names of the network's and the kernel's parameters in a model file."""


def theta_of(network: nn.Module, K: Kernel | None) -> dict[str, nn.Parameter]:
    """Return theta: a network's parameters by ``own_name``, and a kernel's parameters by ``kernel.NAME``."""
    of_network = {own_name(network, name): p for name, p in network.named_parameters()}
    return of_network | {KERNEL + name: p for name, p in learnt(K).items()}


def theta_tensors(network: nn.Module, K: Kernel | None) -> dict[str, Tensor]:
    """Return theta and a network's buffers, without copying them, by their names in a model file."""
    tensors = {NETWORK + name: tensor for name, tensor in network.state_dict().items()}
    return tensors | {KERNEL + name: p.data for name, p in learnt(K).items()}


Objective = Callable[[Training, Kernel], Float[Tensor, ""]]
"""A function of F_theta and K that is differentiated with respect to theta."""


def features(network: nn.Module, x: ScaledSamples) -> Float[Tensor, "m n"]:
    """Return F_theta(x_j) for all j, in chunks and without gradients. The network must be in eval mode."""
    rows = max(1, CHUNK // math.prod(x.shape[1:])) if len(x) else 1
    if len(x) > SMALL_BATCH:
        widest = max((len(p) for p in network.parameters() if p.ndim), default=1)
        rows = max(1, rows // math.ceil(widest / WIDE_LAYER))
    with torch.no_grad():
        first: Tensor = network(x[:rows])
        if len(x) <= rows:
            return first
        z = first.new_empty(len(x), *first.shape[1:])  # joining chunks would fragment memory
        z[:rows] = first
        for at in range(rows, len(x), rows):
            z[at : at + rows] = network(x[at : at + rows])
    return z


class FeatureMap(OneLine):
    """The network F_theta, with everything that its training needs: optimizer, dropout and augmentation.

    ``F(x)`` returns F_theta(x), of shape (m, n), in evaluation mode and without recording gradients.
    ``F.descend`` takes a step in theta, and ``theta_steps`` counts these steps.

    Args:
        network: maps samples of shape (batch, ...) to features of shape (batch, n).
        optimizer: a rule such as ``SGD(lr=0.01)``, from ``nsvm_cli.models.optimizers``.
        seed: the seed of dropout and augmentation.
        augment: changes samples at random in training passes.
        kernel_gradient: estimates the gradient of a kernel for which autograd cannot be used.
        K: a kernel with parameters to learn.
        freeze: prefixes of the names of parameters that stay fixed.
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: Rule,
        seed: int,
        augment: Augment | None = None,
        kernel_gradient: Differences | None = None,
        K: Kernel | None = None,
        freeze: Sequence[str] = (),
    ) -> None:
        self.network, self.augment, self.kernel_gradient = network, augment, kernel_gradient
        self.kernel_parameters = learnt(K)
        streams = Stream.DROPOUT, Stream.AUGMENT, Stream.KERNEL
        self.dropout_seed, self.augment_seed, self.direction_seed = (derived_seed(seed, s) for s in streams)
        self.theta_steps = 0
        self.has_modes = has_modes(network)  # for small networks, changing modes takes as long as a pass
        theta = theta_of(network, K)
        expect_names("freeze", freeze, [*theta])
        for p in self.kernel_parameters.values():
            p.requires_grad_()
        for name in theta:
            if is_within(name, freeze):
                theta[name].requires_grad_(False)
        moving = {name: p for name, p in theta.items() if p.requires_grad}
        modules = network.named_modules()
        self.frozen_modules = [m for name, m in modules if is_within(own_name(network, name), freeze)]
        self.learnt = nn.ParameterList(p for p in self.kernel_parameters.values() if p.requires_grad)
        self.learnt.requires_grad_(False)
        if kernel_gradient is not None and self.learnt:
            reason = "the estimate covers gradients with respect to features only"
            raise InputError(
                f"kernel.gradient cannot be combined with learnt kernel parameters, because {reason}"
            )
        self.parameters = [*moving.values()]
        self.optimizer = Optimizer(optimizer, moving)
        changes = augment is not None or trains_otherwise(network)
        self.trains_otherwise = changes and not self.fixed  # whether features differ in training passes
        self.draws = False  # whether training passes use global generators; see ``try_out``

    @property
    def fixed(self) -> bool:
        """Whether no parameter is trainable."""
        return not self.parameters

    def try_out(self, x: Batch) -> None:
        """Set ``draws`` by trial passes. Raise an InputError if the network is random in evaluation mode."""
        if self.has_modes:
            trial, device = deepcopy(self), x.x.device.type
            self.draws = draws(lambda: [trial.training_pass(x[np.arange(n)], 1) for n in (2, 3)], device)
            if draws(lambda: trial(x), device):
                raise InputError(
                    "the network draws random numbers in evaluation mode, but a sample must always have "
                    "the same features; draw random numbers only in training mode, with 'if self.training:'"
                )

    def __call__(self, x: ScaledSamples | Batch) -> Float[Tensor, "m n"]:
        return features(self.network, x.x if isinstance(x, Batch) else x)

    def state_dict(self) -> StateDict:
        """Return theta, the optimizer's state, and the number of steps in theta."""
        network, optimizer = self.network.state_dict(), self.optimizer.state
        parts = {"network": network, "kernel": self.kernel_parameters, "optimizer": optimizer}
        state = {name: part for name, part in parts.items() if part}  # a file holds no empty states
        return {**saved_value("F", state), "theta_steps": self.theta_steps}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore a saved theta. Raise a ValueError if the state belongs to another network or optimizer."""
        loaded = loaded_value("F", self.state_dict(), saved)
        self.network.load_state_dict(loaded.get("network", {}))
        for name, value in loaded.get("kernel", {}).items():
            self.kernel_parameters[name].data = value
        state = loaded.get("optimizer", {})
        self.optimizer.state = {name: [*tensors.values()] for name, tensors in state.items()}
        self.theta_steps = loaded["theta_steps"]

    @contextlib.contextmanager
    def differentiable(self, K: Kernel, t: int) -> Iterator[Kernel]:
        """Yield the kernel for the objective of step t; its parameters are trainable within the context."""
        estimate = self.kernel_gradient
        self.learnt.requires_grad_(True)
        try:
            yield K if estimate is None else WithGradient(K, estimate, directions(self.direction_seed, t))
        finally:
            self.learnt.requires_grad_(False)

    def descend(self, objective: Objective, K: Kernel, t: int, T: int) -> Float[Tensor, ""]:
        """Take one gradient descent step in theta, and return the value of the objective before the step.

        T is the last step in which theta may change; the learning rate may depend on (t - 1) / T. A
        NotFiniteError is raised if the objective is not finite.
        """
        with self.differentiable(K, t) as K:
            value = objective(Training(self, t), K)
            return self.move(value, value, t, T)

    def move(self, value: Tensor, term: Tensor, t: int, T: int) -> Float[Tensor, ""]:
        """Move theta in step t of T against the gradient of ``term``, and return ``value`` detached."""
        if not isinstance(value, Tensor) or value.ndim:
            found = f"shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"the loss and each penalty must return a single number, a tensor, got {found}")
        if not math.isfinite(value.detach()):
            raise NotFiniteError("the objective", t)
        if not self.fixed:
            theta = self.parameters
            grad_theta = torch.autograd.grad(term, theta, allow_unused=True, materialize_grads=True)
            self.theta_steps += 1
            self.optimizer.step(grad_theta, (t - 1) / T)
        return value.detach()

    def training_pass(self, x: Batch, t: int) -> Float[Tensor, "p n"]:
        """Return F_theta(x) in step t, in training mode with dropout, augmentation and gradients."""
        if self.fixed:
            return self(x)
        network, values = self.network, x.x
        if self.augment is not None:
            values = self.augment(values, x.i, key_of_step(self.augment_seed, t))
        if self.has_modes:
            network.train()
            for module in self.frozen_modules:
                module.eval()
        drawing = (
            seeded(derived_seed(self.dropout_seed, Stream.DROPOUT, t, crc32(x.i.tobytes())), x.x.device.type)
            if self.draws
            else contextlib.nullcontext()
        )
        with dropout_masks(Masks(self.dropout_seed, t, x.i)), drawing:
            z: Tensor = network(values)
        if self.has_modes:
            network.eval()
        return z


def at_start(
    settings: Settings, shape: tuple[int, ...], outputs: tuple[int, ...], like: Shaped[Tensor, "..."]
) -> tuple[nn.Module, Kernel]:
    """Return the network and the kernel before the first step, with the dtype and device of ``like``.

    ``shape`` is the shape of one sample, and ``outputs`` the shape of one decision value. An InputError is
    raised if a setting is invalid, or ``init.run`` lacks a tensor of theta.
    """
    network = build_network(settings.network, shape, derived_seed(settings.seed, Stream.THETA), outputs)
    network = network.to(like)
    z = features(network, like.new_ones(1, *shape))  # a mask of zeros would hide all elements of a set
    if z.ndim != 2:
        expected = f"expected features of shape (1, n) for 1 sample, got shape {tuple(z.shape)}"
        raise InputError(f"network {settings.network['name']}: {expected}")
    K = with_initial_parameters(kernel_of(settings), z)
    if settings.init.run is not None:
        _copy(_theta_in(Path(settings.init.run)), network, K, settings.init)
    return network, K


def _theta_in(path: Path) -> Mapping[str, Tensor]:
    """Return the tensors of theta by name, from a run, a model file, or a state dict saved by torch."""
    file = path / "final.safetensors" if path.is_dir() else path
    try:
        open_regular(file).close()  # settings from an untrusted source may contain any path
        if file.suffix != ".safetensors":
            loaded = torch.load(file, map_location="cpu", weights_only=True)  # No pickle: it runs no code
            names = ("state_dict", "model_state_dict")  # checkpoints contain more than a state dict
            named = next((loaded[name] for name in names if name in loaded), loaded)
            return {name: tensor for name, tensor in named.items() if isinstance(tensor, Tensor)}
        with safe_open(file, framework="pt") as opened:
            is_model = MODEL in (opened.metadata() or {})
        if not is_model:
            return load_file(file)
    except (OSError, ValueError, RuntimeError, AttributeError, SafetensorError, UnpicklingError) as error:
        is_other = isinstance(error, AttributeError | UnpicklingError)
        advice = "expected a state dict, as torch.save(network.state_dict(), FILE) writes it"
        reason = advice if is_other else first_line(error)
        raise InputError(f"init.run={path}: theta cannot be read from {file}: {reason}") from None
    tensors = tensor_file.read(file, MODEL).tensors()  # alpha, z and other tensors do not belong to theta
    return {n.removeprefix(NETWORK): t for n, t in tensors.items() if n.startswith((NETWORK, KERNEL))}


def _copy(theta: Mapping[str, Tensor], network: nn.Module, K: Kernel, init: Init) -> None:
    """Copy theta, or only the tensors selected in ``init.only``, into a network and a kernel."""
    tensors = {name.removeprefix(NETWORK): tensor for name, tensor in theta_tensors(network, K).items()}
    names = {name: name if name.startswith(KERNEL) else own_name(network, name) for name in tensors}
    expect_names("init.only", init.only, [*names.values()])
    prefixes = {name.partition(".")[0] for name in theta}
    wrapper = prefixes.pop() if len(prefixes) == 1 else ""  # "module" after DataParallel
    for full, name in names.items():
        if init.only and not is_within(name, init.only):
            continue
        # theta may come from a network with or without normalised features and a head
        aliases = (name, full, f"0.{name}", f"0.0.{name}", f"{wrapper}.{name}", f"{wrapper}.{full}")
        saved, tensor = next((theta[key] for key in aliases if key in theta), None), tensors[full]
        if saved is None or saved.shape != tensor.shape:
            first = ", ".join([*theta][:3])
            found = f"none (but {first}, ...)" if saved is None else f"shape {list(saved.shape)}"
            raise InputError(
                f"init.run={init.run}: expected a parameter {name} of shape {list(tensor.shape)}, found "
                f"{found}; set init.only=[PREFIX] to load only the parameters whose names start with PREFIX"
            )
        tensor.copy_(saved)
