"""Model files: the tensors of a trained model, and the settings and facts that prediction needs, as JSON."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT, NonNegative, Positive
from nsvm_cli.config.settings import Settings, parse_settings, plain
from nsvm_cli.datasets import Known, build_source
from nsvm_cli.datasets.encoding import MOST_CLASSES, Columns, Name, TableEncoder
from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.errors import InputError, RunError, out_of_memory
from nsvm_cli.memory import MEMORY_BUDGET
from nsvm_cli.models.feature_map import features
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.models.networks import build_network, empty_network
from nsvm_cli.models.nsvm import NSVM, Expansion
from nsvm_cli.parallel.device import select_device
from nsvm_cli.parts import build_parts
from nsvm_cli.plugins import plugin_errors
from nsvm_cli.storage import tensor_file
from nsvm_cli.storage.tensor_file import DTYPES, Spec, TensorFile, spec, unusable
from nsvm_cli.tasks import Regression, Task, task_for

MODEL = "nsvm-model-3"
THETA = "theta."


SAMPLE_VALUES = 2**22
"""The most values of a sample."""


def _of_a_sample(shape: tuple[int, ...]) -> tuple[int, ...]:
    if (values := math.prod(shape)) > SAMPLE_VALUES:
        raise ValueError(f"a sample has {values} values, expected at most {SAMPLE_VALUES}")
    return shape


SHA256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Shape = Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=8), AfterValidator(_of_a_sample)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Facts:
    """What prediction and evaluation need beside tensors and settings.

    ``scale``, ``bias`` and ``one_vs_one`` are those of g (see ``Expansion``); for more than two classes, the
    bias is a tensor. ``shape`` is that of one sample, and ``sha256`` is the checksum of the data that the
    model was trained on. ``columns`` is None if these were no table. ``target`` holds mean and standard
    deviation of real targets, which have no classes. ``labels`` is NumPy's name of the type of the labels
    that an estimator was given, such as bool; None for other models. ``theta_change`` and
    ``feature_change`` say how far training has moved the network (see ``nsvm_cli.models.change``), if that is
    known. ``plugins_sha256`` is the checksum of the code of the user's modules, if there were any.
    """

    scale: Positive
    bias: float
    shape: Shape
    classes: Annotated[tuple[Name, ...], Field(max_length=MOST_CLASSES)]
    steps: NonNegativeInt
    source: Name
    sha256: SHA256
    columns: Columns | None = None
    one_vs_one: bool = False
    target: tuple[float, Positive] | None = None
    labels: Name | None = None
    theta_change: NonNegative | None = None
    feature_change: Annotated[float, Field(ge=0, le=2)] | None = None
    plugins_sha256: SHA256 | None = None

    def __post_init__(self) -> None:
        if (len(self.classes) < 2) == (self.target is None):
            raise ValueError(f"expected two or more classes, or a target, got {len(self.classes)} classes")
        if (encoder := self.known.encoder) and self.shape != (encoder.width,):
            raise ValueError(f"its columns give {encoder.width} features, expected shape {list(self.shape)}")

    @property
    def known(self) -> Known:
        """What the model knows of its data, to be given others in the same form."""
        return Known(self.task, None if self.columns is None else TableEncoder(self.columns))

    @property
    def task(self) -> Task:
        """The task that the model was trained for."""
        return Regression(*self.target) if self.target else task_for(self.classes)

    @property
    def outputs(self) -> tuple[int, ...]:
        """The shape of one row of alpha."""
        if not (outputs := self.task.outputs):
            return ()
        return (math.comb(outputs[0], 2),) if self.one_vs_one else outputs


@dataclass(frozen=True, config={**STRICT, "arbitrary_types_allowed": True})
class SavedModel:
    """The content of a model file."""

    model: NSVM
    settings: Settings
    facts: Facts


def save_model(path: Path, saved: SavedModel, named: bool = False) -> None:
    """Write a model file; see ``nsvm_cli.storage.files.write_atomically``.

    Raises:
        RunError: it would be too large.
    """
    model, e = saved.model, saved.model.expansion
    tensors = {THETA + name: tensor for name, tensor in model.network.state_dict().items()}
    tensors |= {"z": e.z, "alpha": e.alpha, "mean": model.scaling.mean, "std": model.scaling.std}
    optional = {"i": e.i, "sigmoids": model.sigmoids}
    tensors |= {name: tensor for name, tensor in optional.items() if tensor is not None}
    if e.alpha.ndim > 1:
        tensors["bias"] = torch.zeros_like(e.alpha[:1].sum(0)) + e.bias
    content = {"settings": plain(saved.settings), "facts": asdict(saved.facts)}
    tensor_file.write(path, MODEL, content, tensors, named)


def load_model(path: Path, runtime: Mapping[str, Any] | None = None) -> SavedModel:
    """Read and check a model file, which may come from an untrusted source.

    Before anything larger than the header is read or built, the settings are type- and range-checked, classes
    are looked up by registered name, and the tensors are compared with those that the settings imply.

    Args:
        path: the file.
        runtime: ``device`` and ``threads`` that override those of the file.

    Raises:
        InputError: the file is missing, damaged, of another kind, or inconsistent.
    """
    file = tensor_file.read(path, MODEL, noun="model file")
    try:
        settings, facts = _understood(file.content)
        kernel = build_parts(settings).kernel
        build_source(settings.dataset)
        _check_specs(file.specs, settings, facts)
    except (ValueError, TypeError, RuntimeError, OverflowError, RecursionError) as error:
        raise unusable(path, error) from error.__cause__  # of a plugin that refuses its settings
    settings = parse_settings({**plain(settings), **within_means(settings), **(runtime or {})})
    device = select_device(settings.device, settings.threads)
    try:
        with plugin_errors():
            model = _model(file, settings, facts, kernel, device)
    except (InputError, RunError):
        raise
    except (ValueError, RuntimeError) as error:
        raise out_of_memory(error) or unusable(path, error) from None
    return SavedModel(model, settings, facts)


def within_means(settings: Settings) -> dict[str, Any]:
    """Return what a file may have of threads and memory: it may come from a larger machine, or a stranger."""
    return {
        "threads": min(settings.threads, os.cpu_count() or 1) if settings.threads else None,
        "memory_budget": min(settings.memory_budget, MEMORY_BUDGET),
    }


def _understood(content: Mapping[str, Any]) -> tuple[Settings, Facts]:
    """Return the settings and facts of a model file."""
    found = {key: value for key, value in content.items() if key != "sha256"}
    if found.keys() != {"settings", "facts"}:
        raise ValueError(f"expected settings and facts, got {', '.join(found) or 'nothing'}")
    if not all(isinstance(value, dict) for value in found.values()):
        raise ValueError("expected JSON objects for settings and facts")
    return parse_settings(found["settings"]), Facts(**found["facts"])


def _check_specs(specs: Mapping[str, Spec], settings: Settings, facts: Facts) -> None:
    """Check the tensors of a model file against its settings and facts, without allocating memory."""
    expected = _specs(settings, facts, specs)
    for name in sorted(expected.keys() | specs.keys()):
        if name not in expected:
            raise ValueError(f"there should be no tensor {name!r}")
        if name not in specs:
            raise ValueError(f"it has no tensor {name!r}")
        if specs[name] != expected[name]:
            (dtype, shape), (got_dtype, got_shape) = expected[name], specs[name]
            raise ValueError(
                f"{name} should be {dtype} of shape {list(shape)}, got {got_dtype} of shape {list(got_shape)}"
            )


def _specs(settings: Settings, facts: Facts, got: Mapping[str, Spec]) -> dict[str, Spec]:
    """Return the specs that the tensors of a model should have.

    Those that it has say how many terms there are, whether they are samples of the training set, and whether
    the mean and deviation are those of all values or have the shape of a sample.
    """
    dtype: torch.dtype = getattr(torch, settings.dtype)
    theta = empty_network(settings.network, facts.shape, facts.task.outputs).to(dtype).state_dict()
    z = got.get("z", ("", (0, 0)))[1]
    if len(z) != 2:
        raise ValueError(f"z should be a matrix, got shape {list(z)}")
    specs = {THETA + name: spec(tensor) for name, tensor in theta.items()}
    shapes = {"z": z, "alpha": (*z[:1], *facts.outputs)}
    shapes |= {"bias": facts.outputs} if facts.outputs else {}
    specs |= {name: (DTYPES[dtype], shape) for name, shape in shapes.items()}
    if "i" in got:
        specs["i"] = (DTYPES[torch.int64], z[:1])
    if settings.calibration:
        specs["sigmoids"] = (DTYPES[torch.float64], (2, *facts.task.outputs))
    scaling = facts.shape if got.get("mean", ("", ()))[1] else ()
    return specs | dict.fromkeys(("mean", "std"), (DTYPES[torch.float64], scaling))


def _model(file: TensorFile, settings: Settings, facts: Facts, kernel: Kernel, device: torch.device) -> NSVM:
    tensors = file.tensors()
    _expect(all(bool(t.isfinite().all()) for t in tensors.values()), "a tensor holds NaN or infinity")
    z, alpha, mean, std = (tensors[name] for name in ("z", "alpha", "mean", "std"))
    bias = tensors["bias"].to(device) if facts.outputs else facts.bias
    if (i := tensors.get("i")) is not None:
        _expect(bool((i >= 0).all()), "i holds values that are not indices of samples")
        i = i.to(device)
    _expect(bool((std > 0).all()), "std is not positive")
    network = build_network(settings.network, facts.shape, seed=0, outputs=facts.task.outputs)
    network = network.to(device, z.dtype)
    network.load_state_dict({k.removeprefix(THETA): v for k, v in tensors.items() if k.startswith(THETA)})
    n = features(network, z.new_zeros(1, *facts.shape, device=device)).shape[1]
    _expect(z.shape[1] == n, f"z has {z.shape[1]} columns where the network gives {n} features")
    expansion = Expansion(z.to(device), alpha.to(device), facts.scale, bias, facts.one_vs_one, i)
    return NSVM(facts.task, Scaling(mean, std), network, kernel, expansion, tensors.get("sigmoids"))


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)


def find_model_file(path: str | Path) -> Path:
    """Return the model file for a path: the path itself, or the model file of a run directory.

    Raises:
        InputError: the directory holds no finished run.
    """
    path = Path(path)
    if not path.is_dir():
        return path
    if not (path / "final.safetensors").is_file():
        raise InputError(
            f"{path} has no final.safetensors: expected a run that has finished or has a checkpoint"
        )
    return path / "final.safetensors"
