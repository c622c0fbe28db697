"""Model files: the tensors of a trained model, with its settings and metadata as JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from nsvm_cli.config.registry import Instance, Registry
from nsvm_cli.config.settings import Init, Settings, flat, parse_settings, plain, with_values
from nsvm_cli.datasets import build_source
from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.memory import MEMORY_BUDGET
from nsvm_cli.models.composed_kernels import kernel_of, with_initial_parameters
from nsvm_cli.models.feature_map import MODEL, at_start, features, theta_tensors
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.nsvm import NSVM, Expansion, ModelMetadata
from nsvm_cli.plugins import plugin_errors
from nsvm_cli.storage import tensor_file
from nsvm_cli.storage.state_dict import expect_keys
from nsvm_cli.storage.tensor_file import DTYPES, Spec, TensorFile, expect, unusable
from nsvm_cli.trainers import TRAINERS, Trainer, build_parts


def save_model(path: str | Path, model: NSVM, named: bool = False, only_check: bool = False) -> None:
    """Write a model file, or only check it if ``only_check``. Raise an InputError if it cannot be written."""
    expect_tensors(plain(model.settings))
    e = model.expansion
    tensors = theta_tensors(model.network, model.kernel)
    tensors |= {"z": e.z, "alpha": e.alpha, "mean": model.scaling.mean, "std": model.scaling.std}
    optional = {"i": e.i, "sigmoids": model.sigmoids}
    tensors |= {name: tensor for name, tensor in optional.items() if tensor is not None}
    if e.alpha.ndim > 1:
        tensors["bias"] = torch.zeros_like(e.alpha[:1].sum(0)) + e.bias
    content = {"settings": plain(model.settings), "facts": asdict(model.metadata)}
    tensor_file.write(Path(path), MODEL, content, tensors, named, only_check)


def expect_tensors(settings: Mapping[str, Any]) -> None:
    """Raise an InputError if models with these settings cannot be saved in a file."""
    if objects := [(key, value.part) for key, value in flat(settings).items() if isinstance(value, Instance)]:
        kind, part = objects[0][0].removesuffix(".name"), objects[0][1]
        names = [name for name, registered in Registry.kinds[kind].items() if registered is type(part)]
        advice = f"pass {kind}={names[0]!r}" if names else "make its class a dataclass, or register it"
        raise InputError(f"{kind} was passed as an object, so the model cannot be saved: {advice}")
    name = flat(settings).get("algorithm.name", "")
    if not TRAINERS.get(name, Trainer).saves_model:
        why = "its scores are in the result.json of the run"
        raise InputError(f"a model of algorithm={name} cannot be saved; {why}")


def load_model(path: Path, runtime: Mapping[str, Any] | None = None) -> NSVM:
    """Read and check a model file, which may come from an untrusted source.

    All metadata are checked before any tensor is read, and classes are looked up by registered name.

    Args:
        runtime: settings that override the settings in the file, such as ``device`` or ``dataset.root``.

    Raises:
        InputError: the file is missing, damaged or inconsistent, or is not a model file.
    """
    file = tensor_file.read(path, MODEL, noun="model file")
    try:
        expect_keys(file.content, ["settings", "facts"])
        objects = all(isinstance(value, dict) for value in file.content.values())
        expect(objects, "expected JSON objects as the values of settings and facts")
        settings, metadata = parse_settings(file.content["settings"]), ModelMetadata(**file.content["facts"])
        settings = within_means(settings, runtime or {})
        *_, device = build_parts(settings)
        build_source(settings.dataset)
        _check_specs(file.specs, settings, metadata)
    except (ValueError, TypeError, RuntimeError, OverflowError, RecursionError) as error:
        raise unusable(path, error) from error.__cause__  # the cause is set if a plugin rejects its settings
    try:
        with plugin_errors():
            return _model(file, settings, metadata, device)
    except (InputError, RunError):
        raise
    except (ValueError, RuntimeError) as error:
        raise unusable(path, error) from None


def within_means(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Apply ``changes`` to a file's settings. Limit its threads and memory to the values of this machine."""
    threads = min(settings.threads, os.cpu_count() or 1) if settings.threads else None
    # the file may come from a larger machine, or from an untrusted source
    limits = {"threads": threads, "memory_budget": min(settings.memory_budget, MEMORY_BUDGET)}
    return parse_settings(with_values({**plain(settings), **limits}, changes))


def _check_specs(got: Mapping[str, Spec], settings: Settings, metadata: ModelMetadata) -> None:
    """Check the tensors of a model file against its settings and metadata, without allocating memory."""
    dtype: torch.dtype = getattr(torch, settings.dtype)
    with torch.device("meta"):  # tensors on this device take no memory
        network = build_network(settings.network, metadata.shape, 0, metadata.trained.outputs)
    z = got.get("z", ("", (0, 0)))[1]
    expect(len(z) == 2, f"tensor 'z': expected a matrix, got shape {list(z)}")
    K = with_initial_parameters(kernel_of(settings), torch.empty(0, z[1], dtype=dtype, device="meta"))
    theta = theta_tensors(network.to(dtype), K)
    types = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in theta.items()}
    types |= {"z": (dtype, z), "alpha": (dtype, (*z[:1], *metadata.outputs))}
    if metadata.outputs:
        types["bias"] = (dtype, metadata.outputs)
    if "i" in got:
        types["i"] = (torch.int64, z[:1])
    if settings.calibration == "sigmoid" or (settings.calibration and metadata.classes and "sigmoids" in got):
        types["sigmoids"] = (torch.float64, (2, *metadata.task.outputs))
    scaling = metadata.shape if got.get("mean", ("", ()))[1] else ()
    types |= dict.fromkeys(("mean", "std"), (torch.float64, scaling))
    specs = {name: (DTYPES[kind], shape) for name, (kind, shape) in types.items()}
    for name in sorted(specs.keys() | got.keys()):
        pair = specs.get(name), got.get(name)
        expected, found = (f"{spec[0]} of shape {list(spec[1])}" if spec else "none" for spec in pair)
        expect(expected == found, f"tensor {name!r}: expected {expected}, got {found}")


def _model(file: TensorFile, settings: Settings, metadata: ModelMetadata, device: torch.device) -> NSVM:
    tensors = file.tensors()
    z, alpha = tensors["z"].to(device), tensors["alpha"].to(device)
    bias = tensors["bias"].to(device) if metadata.outputs else metadata.bias
    if (i := tensors.get("i")) is not None:
        expect(bool((i >= 0).all()), "tensor 'i' contains negative values, expected indices of samples")
        i = i.to(device)
    scaling = Scaling(tensors["mean"], tensors["std"])
    positive = bool((scaling.std > 0).all())
    expect(positive, "tensor 'std' contains zero or negative values, expected positive values")
    without_init = replace(settings, init=Init())  # theta comes from this file, not from an initial model
    network, kernel = at_start(without_init, metadata.shape, metadata.trained.outputs, z)
    n = features(network, z.new_ones(1, *metadata.shape)).shape[1]
    expect(z.shape[1] == n, f"tensor 'z' has {z.shape[1]} columns, but the network returns {n} features")
    for name, tensor in theta_tensors(network, kernel).items():
        tensor.copy_(tensors[name])
    expansion = Expansion(z, alpha, metadata.scale, bias, metadata.one_vs_one, i)
    return NSVM(settings, metadata, scaling, network, kernel, expansion, tensors.get("sigmoids"))
