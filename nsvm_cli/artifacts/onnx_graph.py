"""Trained models as ONNX graphs, for programs that have neither nsvm nor torch."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from nsvm_cli import __version__
from nsvm_cli.artifacts.model_file import Facts, SavedModel
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.models.calibration import probabilities
from nsvm_cli.models.nsvm import NSVM, votes
from nsvm_cli.plugins import location
from nsvm_cli.tasks import Classification

MOST_BYTES = 2**31 - 2**20
"""The most bytes in the tensors of a graph: protobuf writes no message of 2 GiB."""

DIFFERENCES = 2**16
"""Numbers for each sample that a Laplacian kernel holds at a time."""


class Graph(nn.Module):
    """An ``NSVM`` as one pass: decision values, predictions and, if calibrated, probabilities.

    The kernel matrix is not split into blocks: the caller chooses the size of a batch.
    """

    z: Tensor
    alpha: Tensor
    bias: Tensor
    x_mean: Tensor  # not "mean": the exporter confuses a tensor with an operator of the same name
    x_std: Tensor

    def __init__(self, model: NSVM) -> None:
        super().__init__()
        self.model, self.network = model, model.network
        self.outputs = ["scores", "prediction", *(["probabilities"] if model.sigmoids is not None else [])]
        g, scaling = model.expansion, model.scaling
        tensors = {"z": g.z, "alpha": g.alpha, "bias": torch.as_tensor(g.bias).to(g.z)}
        tensors |= {"x_mean": scaling.mean, "x_std": scaling.std}
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)

    def forward(self, x: Float64[Tensor, "p ..."]) -> tuple[Tensor, ...]:
        """Return the outputs for raw samples; a prediction is the index of a class, or a target."""
        g, task, sigmoids = self.model.expansion, self.model.task, self.model.sigmoids
        z = self.network(((x - self.x_mean) / self.x_std).to(self.z.dtype))
        scores = self.model.kernel(z, self.z) @ self.alpha / g.scale + self.bias
        scores = votes(scores) if g.one_vs_one else scores
        decided = task.decide(scores)
        prediction = task.index(decided) if isinstance(task, Classification) else decided
        if sigmoids is None:
            return scores, prediction
        return scores, prediction, probabilities(sigmoids, scores).to(self.z.dtype)


def onnx_graph(path: Path, saved: SavedModel) -> bytes:
    """Return a model, which comes from a file, as an ONNX graph.

    Its input ``x`` is a batch of raw samples in float64, which keeps the digits of a large offset, such as
    that of a year. Its outputs are those of ``Graph``, in the model's dtype, except predictions: an index is
    an int64, a target a float64.

    Raises:
        InputError: the model is too large, or the exporter is not installed.
        RunError: ONNX cannot express the network or the kernel.
    """
    try:
        import onnxscript  # noqa: F401  # torch imports it too, but its message says less
        from onnx_ir.passes.common import ClearMetadataAndDocStringPass
    except ImportError:
        raise InputError("export --onnx needs ONNX Script: pip install 'nsvm[onnx]'") from None
    graph = Graph(saved.model)
    if (size := sum(tensor.nbytes for tensor in graph.state_dict().values())) > MOST_BYTES:
        raise InputError(
            f"{path} has {size / 2**20:,.0f} MiB of tensors, and an ONNX graph holds less than 2,048: train "
            f"a model with fewer support vectors than its {len(graph.z)}"
        )
    program = _exported(graph, torch.zeros(2, *saved.facts.shape, dtype=torch.float64))
    ClearMetadataAndDocStringPass()(program.model)  # removes the paths of the code on this computer
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    program.model.metadata_props.update({"model_sha256": digest, **_metadata(saved.facts)})
    content: bytes = program.model_proto.SerializeToString()
    return content


def _exported(graph: Graph, example: Tensor) -> torch.onnx.ONNXProgram:
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the exporter's own code
            program = torch.onnx.export(
                graph,
                (example,),
                input_names=["x"],
                output_names=graph.outputs,
                dynamic_shapes=({0: "batch"},),
                custom_translation_table={torch.ops.aten._cdist_forward.default: _distances},
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = f"{str(cause).splitlines()[0]}{location(cause)}"
        raise RunError(f"the model cannot be written as ONNX: {reason}") from cause
    assert program is not None
    return program


def _distances(a: Any, b: Any, p: float, compute_mode: int | None) -> Any:
    """Return operators for ||a_i - b_j||_p, for all i and some j at a time: ONNX has no such operator."""
    from onnxscript import opset18

    op: Any = opset18
    norm = {1.0: op.ReduceL1, 2.0: op.ReduceL2}[p]
    s, n = b.shape
    rows = max(1, DIFFERENCES // n)
    parts = (op.Slice(b, [first], [first + rows], [0]) for first in range(0, s, rows))
    return op.Concat(*(norm(op.Sub(op.Unsqueeze(a, [1]), b_j), [-1], keepdims=0) for b_j in parts), axis=1)


def _metadata(facts: Facts) -> dict[str, str]:
    """Return what a user of the graph has to know, as text or JSON."""
    properties = {
        "nsvm_version": __version__,
        "data_sha256": facts.sha256,
        "task": facts.task.kind,
        "classes": json.dumps(facts.classes),
    }
    if (encoder := facts.known.encoder) is None:
        return properties
    text = [f"{name}={value}" for name, values in encoder.text.items() for value in values]
    return properties | {
        "features": json.dumps([*encoder.numbers, *text]),
        "columns": json.dumps(encoder.columns),
    }
