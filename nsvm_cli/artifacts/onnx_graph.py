"""Trained models as ONNX graphs, for programs without nsvm and torch."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from nsvm_cli.errors import InputError, RunError, first_line
from nsvm_cli.models.nsvm import NSVM, probabilities
from nsvm_cli.plugins import location
from nsvm_cli.tasks import Classification


class Graph(nn.Module):
    """An ``NSVM`` as a module that returns decision values, predictions and, if calibrated, probabilities."""

    def __init__(self, model: NSVM) -> None:
        super().__init__()
        self.model, self.network, self.g = model, model.network, model.expansion.exact
        self.outputs = ["scores", "prediction", *(["probabilities"] if model.sigmoids is not None else [])]

    def forward(self, x: Float64[Tensor, "p ..."]) -> tuple[Tensor, ...]:
        """Return the outputs for raw samples. A prediction is the index of a class, or a target."""
        g, task, sigmoids = self.g, self.model.task, self.model.sigmoids
        scaling = self.model.scaling
        z = self.network(((x - scaling.mean) / scaling.std).to(self.model.expansion.z.dtype))
        sums = self.model.kernel(z.to(g.z.dtype), g.z) @ g.alpha
        scores = self.model.metadata.fill_absent(g.of_sums(sums).to(z.dtype))
        decided = task.decide(scores)
        prediction = task.index(decided) if isinstance(task, Classification) else decided
        if sigmoids is None:
            return scores, prediction
        return scores, prediction, probabilities(sigmoids, scores).to(z.dtype)


def onnx_graph(model: NSVM) -> bytes:
    """Return a model as an ONNX graph.

    The input ``x`` is a batch of raw samples in float64; the outputs are the outputs of ``Graph``. Class
    indices are int64, targets are float64, and all other outputs have the model's dtype. The metadata contain
    the classes and columns as JSON.

    Raises:
        InputError: the exporter is not installed, or the kernel is precomputed.
        RunError: ONNX cannot express the network or the kernel.
    """
    try:
        import onnxscript  # noqa: F401  # torch also imports it, but with a less helpful message
        from onnx_ir.passes.common import ClearMetadataAndDocStringPass
    except ImportError:
        raise InputError(
            "export --onnx requires ONNX Script: install it with pip install 'nsvm[onnx]'"
        ) from None
    if model.settings.kernel["name"] == "precomputed":
        raise InputError(
            "a model with kernel=precomputed cannot be written as ONNX: it requires the matrix file"
        )
    graph = Graph(model)
    # float64 keeps the digits of values with a large offset, such as years
    program = _exported(graph, torch.zeros(2, *model.metadata.shape, dtype=torch.float64))
    ClearMetadataAndDocStringPass()(program.model)  # removes the paths of the code on this computer
    metadata: dict[str, Any] = {"classes": model.metadata.classes}
    if (encoder := model.metadata.encoder) is not None:
        metadata |= {"features": encoder.features, "columns": asdict(encoder)["columns"]}
    program.model.metadata_props.update({name: json.dumps(value) for name, value in metadata.items()})
    return program.model_proto.SerializeToString()


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
        reason = f"{first_line(cause)}{location(cause)}"
        raise RunError(f"the model cannot be written as ONNX: {reason}") from cause
    assert program is not None
    return program


def _distances(a: Any, b: Any, p: float, compute_mode: int | None) -> Any:
    """Return an expression of ONNX operators for the distances ||a_i - b_j||_p of all rows of a and b."""
    from onnxscript import opset18

    op: Any = opset18
    norm = {1.0: op.ReduceL1, 2.0: op.ReduceL2}[p]
    return norm(op.Sub(op.Unsqueeze(a, [1]), op.Unsqueeze(b, [0])), [-1], keepdims=0)
