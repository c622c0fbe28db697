"""Model files: the tensors of a trained model, and the settings and facts that prediction needs, as JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt, ValidationError
from pydantic.dataclasses import dataclass
from torch import Tensor

from nsvm_cli.config.registry import STRICT, NonNegative, Positive, one_line, shown
from nsvm_cli.config.settings import Settings, parse_settings, plain
from nsvm_cli.datasets import Known
from nsvm_cli.datasets.encoding import MOST_CLASSES, Columns, TableEncoder
from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.datasets.unlabelled import sample_bytes
from nsvm_cli.errors import InputError, RunError, out_of_memory
from nsvm_cli.memory import MEMORY_BUDGET, expect_room_for_sample, memory_limit
from nsvm_cli.models.activations import ActivationMeter
from nsvm_cli.models.feature_map import features
from nsvm_cli.models.kernels import build_kernel
from nsvm_cli.models.networks import build_network, empty_network
from nsvm_cli.models.nsvm import NSVM, Expansion, output_bytes
from nsvm_cli.parallel.device import select_device
from nsvm_cli.plugins import plugin_errors
from nsvm_cli.runs.parts import check_parts
from nsvm_cli.storage import tensor_file
from nsvm_cli.storage.run_directory import CONFIG_BYTES, config_text
from nsvm_cli.storage.tensor_file import DTYPES, Spec, TensorFile, spec, unusable
from nsvm_cli.tasks import Regression, Task, task_for

if TYPE_CHECKING:
    from nsvm_cli.runs.experiment import Experiment

MODEL = "nsvm-model-1"
THETA = "theta."
SETTINGS_BYTES = 4 * CONFIG_BYTES
"""The most that the settings take as JSON, which config.yaml holds too."""


def _in_memory(shape: tuple[int, ...]) -> tuple[int, ...]:
    expect_room_for_sample(sample_bytes(shape), "the values")
    return shape


Name = Annotated[str, Field(max_length=4096)]
Shape = Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=8), AfterValidator(_in_memory)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Facts:
    """What prediction and evaluation need beside tensors and settings.

    ``scale``, ``bias`` and ``one_vs_one`` are those of g (see ``Expansion``); for more than two classes, the
    bias is a tensor. ``shape`` is that of one sample, and ``sha256`` is the checksum of the data that the
    model was trained on. ``columns`` is None if these were no table. ``target`` holds mean and standard
    deviation of real targets, which have no classes. ``labels`` is NumPy's name of the type of the labels
    that an estimator was given, such as bool; None for other models. ``text_as_written`` says that categories
    are compared as they are written, which earlier versions did not. ``theta_change`` and ``feature_change``
    say how far training has moved the network (see ``nsvm_cli.models.change``); files of earlier versions do
    not.
    """

    scale: Positive
    bias: float
    shape: Shape
    classes: Annotated[tuple[Name, ...], Field(max_length=MOST_CLASSES)]
    steps: NonNegativeInt
    source: Name
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    columns: Columns | None = None
    one_vs_one: bool = False
    target: tuple[float, Positive] | None = None
    labels: Name | None = None
    text_as_written: bool = False
    theta_change: NonNegative | None = None
    feature_change: Annotated[float, Field(ge=0, le=2)] | None = None

    def __post_init__(self) -> None:
        if (len(self.classes) < 2) == (self.target is None):
            raise ValueError(f"expected two or more classes, or a target, got {len(self.classes)} classes")
        if (encoder := self.known.encoder) and self.shape != (encoder.width,):
            raise ValueError(f"its columns give {encoder.width} features, expected shape {list(self.shape)}")
        if encoder and encoder.text and not self.text_as_written:
            raise ValueError(
                "an earlier nsvm wrote it, to which 1 and 1.0 were the same text: train it again"
            )

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


def facts(
    experiment: Experiment,
    model: NSVM,
    steps: int,
    movement: Mapping[str, float | None] | None = None,
    labels: str | None = None,
) -> Facts:
    """Return the facts for the file of a model.

    Args:
        experiment: the run that it was trained in.
        model: the model.
        steps: the steps that were taken.
        movement: ``theta_change`` and ``feature_change``, if they are known.
        labels: the type of the labels of an estimator.
    """
    data, expansion = experiment.data, model.expansion
    return Facts(
        scale=expansion.scale,
        bias=expansion.bias if isinstance(expansion.bias, float) else 0.0,
        shape=tuple(experiment.problem.x.shape[1:]),
        classes=data.task.classes,
        steps=steps,
        source=data.source,
        sha256=data.sha256,
        columns=None if data.encoder is None else data.encoder.columns,
        one_vs_one=expansion.one_vs_one,
        target=(data.task.mean, data.task.std) if isinstance(data.task, Regression) else None,
        labels=labels,
        text_as_written=data.encoder is not None,
        **(movement or {}),
    )


def save_model(path: Path, saved: SavedModel, named: bool = False) -> None:
    """Write a model file; see ``nsvm_cli.storage.files.write_atomically``.

    Raises:
        RunError: it would be too large.
    """
    tensor_file.write(path, MODEL, *_content(saved), named)


def _content(saved: SavedModel) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the JSON and the tensors of a model file."""
    model, e = saved.model, saved.model.expansion
    tensors = {THETA + name: tensor for name, tensor in model.network.state_dict().items()}
    tensors |= {"z": e.z, "mean": model.scaling.mean, "std": model.scaling.std}
    if model.sigmoids is not None:
        tensors["sigmoids"] = model.sigmoids
    if e.alpha.ndim == 1:
        tensors |= {"alpha": e.alpha.abs(), "y": torch.where(e.alpha < 0, -1, 1).to(e.alpha)}
    else:
        tensors |= {"alpha": e.alpha, "bias": torch.zeros_like(e.alpha[:1].sum(0)) + e.bias}
    return {"settings": plain(saved.settings), "facts": asdict(saved.facts)}, tensors


def check_storable(experiment: Experiment) -> None:
    """Check, before training, that files can hold the settings and the model of a run, and be read again.

    Raises:
        InputError: they cannot.
    """
    e = experiment
    with ActivationMeter():
        z = e.F(e.problem.x[:1])[:0]
    try:
        expansion = Expansion(z, z.new_zeros(0, *e.data.task.outputs), scale=1.0)
        sigmoids = z.new_zeros(2, *e.data.task.outputs).double() if e.settings.calibration else None
        model = NSVM(e.data.task, e.scaling, e.F.network, e.problem.K, expansion, sigmoids)
        content, tensors = _content(SavedModel(model, e.settings, facts(e, model, steps=0)))
        text = tensor_file.check(MODEL, content, tensors)
        config_text(plain(e.settings))
        _understood(json.loads(text), {name: spec(tensor) for name, tensor in tensors.items()})
    except ValidationError as error:
        raise InputError(f"the files of this run could not be read: {one_line(error)}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"the files of this run could not be read: {error}") from None


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
        settings, facts = _understood(file.content, file.specs)
    except ValidationError as error:
        raise unusable(path, one_line(error)) from None
    except (ValueError, TypeError, RuntimeError, OverflowError, RecursionError) as error:
        raise unusable(path, error) from error.__cause__  # of a plugin that refuses its settings
    settings = parse_settings({**plain(settings), **_within_means(settings), **(runtime or {})})
    device = select_device(settings.device, settings.threads)
    try:
        with memory_limit(settings.memory_budget), plugin_errors():
            model = _model(file, settings, facts, device)
    except (InputError, RunError):
        raise
    except (ValueError, RuntimeError) as error:
        raise out_of_memory(error) or unusable(path, error) from None
    return SavedModel(model, settings, facts)


def _within_means(settings: Settings) -> dict[str, Any]:
    """Return what a file may have of threads and memory: it may come from a larger machine, or a stranger."""
    return {
        "threads": min(settings.threads, os.cpu_count() or 1) if settings.threads else None,
        "memory_budget": min(settings.memory_budget, MEMORY_BUDGET),
    }


def _understood(content: Mapping[str, Any], specs: Mapping[str, Spec]) -> tuple[Settings, Facts]:
    """Return the settings and facts of a model file, checked against each other and against its tensors."""
    found = {key: value for key, value in content.items() if key != "sha256"}
    if found.keys() != {"settings", "facts"}:
        raise ValueError(f"expected settings and facts, got {', '.join(found) or 'nothing'}")
    given = {key: _mapping(value) for key, value in found.items()}
    # checked first, for pydantic makes a list of all that is wrong
    size = len(json.dumps(given["settings"]))
    _expect(size <= SETTINGS_BYTES, f"its settings have {size} bytes, expected at most {SETTINGS_BYTES}")
    for name in sorted(given["facts"].keys() - {field.name for field in fields(Facts)})[:1]:
        raise ValueError(f"there should be no fact {shown(name)}")
    settings = parse_settings(given["settings"])
    check_parts(settings)
    facts = Facts(**given["facts"])
    needed = output_bytes(facts.outputs, facts.one_vs_one, getattr(torch, settings.dtype).itemsize)
    expect_room_for_sample(needed, "the decision values")
    z, mean = specs.get("z", ("", (0, 0)))[1], specs.get("mean", ("", ()))[1]
    _expect_specs(specs, _specs(settings, facts, z, scaling=facts.shape if mean else ()))
    return settings, facts


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("expected JSON objects for settings and facts")
    return value


def _specs(settings: Settings, facts: Facts, z: tuple[int, ...], scaling: tuple[int, ...]) -> dict[str, Spec]:
    """Return the specs of the tensors of a model, without allocating memory.

    Args:
        settings, facts: the model's.
        z: the shape of z.
        scaling: the shape of the mean and deviation of samples: () for one of each, or that of a sample.
    """
    dtype: torch.dtype = getattr(torch, settings.dtype)
    theta = empty_network(settings.network, facts.shape, facts.task.outputs).to(dtype).state_dict()
    if len(z) != 2:
        raise ValueError(f"z should be a matrix, got shape {list(z)}")
    specs = {THETA + name: spec(tensor) for name, tensor in theta.items()}
    shapes = {"z": z, "alpha": (*z[:1], *facts.outputs)}
    shapes |= {"bias": facts.outputs} if facts.outputs else {"y": z[:1]}
    specs |= {name: (DTYPES[dtype], shape) for name, shape in shapes.items()}
    if settings.calibration:
        specs["sigmoids"] = (DTYPES[torch.float64], (2, *facts.task.outputs))
    return specs | dict.fromkeys(("mean", "std"), (DTYPES[torch.float64], scaling))


def _expect_specs(got: Mapping[str, Spec], expected: Mapping[str, Spec]) -> None:
    for name in sorted(expected.keys() | got.keys()):
        if name not in expected:
            raise ValueError(f"there should be no tensor {name!r}")
        if name not in got:
            raise ValueError(f"it has no tensor {name!r}")
        if got[name] != expected[name]:
            (dtype, shape), (got_dtype, got_shape) = expected[name], got[name]
            raise ValueError(
                f"{name} should be {dtype} of shape {list(shape)}, got {got_dtype} of shape {list(got_shape)}"
            )


def _model(file: TensorFile, settings: Settings, facts: Facts, device: torch.device) -> NSVM:
    tensors = file.tensors()
    _expect(all(bool(t.isfinite().all()) for t in tensors.values()), "a tensor holds NaN or infinity")
    z, alpha, mean, std = (tensors[name] for name in ("z", "alpha", "mean", "std"))
    bias: float | Tensor = facts.bias
    if facts.outputs:
        bias = tensors["bias"].to(device)
    else:
        y = tensors["y"]
        _expect(bool((y.abs() == 1).all()), "y holds values that are not labels")
        _expect(bool((alpha > 0).all()), "alpha is not positive")
        alpha = alpha * y
    _expect(bool((std > 0).all()), "std is not positive")
    network = build_network(settings.network, facts.shape, seed=0, outputs=facts.task.outputs)
    network = network.to(device, z.dtype)
    network.load_state_dict({k.removeprefix(THETA): v for k, v in tensors.items() if k.startswith(THETA)})
    with ActivationMeter():
        n = features(network, z.new_zeros(1, *facts.shape, device=device)).shape[1]
    _expect(z.shape[1] == n, f"z has {z.shape[1]} columns where the network gives {n} features")
    expansion = Expansion(z.to(device), alpha.to(device), facts.scale, bias, facts.one_vs_one)
    kernel, sigmoids = build_kernel(settings.kernel), tensors.get("sigmoids")
    return NSVM(facts.task, Scaling(mean, std), network, kernel, expansion, sigmoids)


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
        raise InputError(f"{path} has no final.safetensors: expected the directory of a finished run")
    return path / "final.safetensors"
