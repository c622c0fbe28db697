"""``nsvm export``: write a trained model as an ONNX graph."""

from __future__ import annotations

import argparse

from nsvm_cli.cli.parser import MODEL, CommandParser, output_file
from nsvm_cli.output import answer, say


def configure(parser: CommandParser) -> None:
    parser.add("model", "MODEL", MODEL)
    target = "file to write; the model's as .onnx, unless given"
    parser.add("file", "FILE", target, type=output_file, nargs="?")
    parser.add_argument("--onnx", action="store_true", required=True, help="as an ONNX graph")
    parser.add_plugins()


def export(options: argparse.Namespace) -> None:
    """Write a trained model as one ONNX graph: scaling, network and kernel expansion.
    Its input x is a batch of raw samples, those of a table encoded as features;
    its outputs are scores, and prediction: a target, or the index of a class.

    examples:
      nsvm export run --onnx
      nsvm export run/best.safetensors --onnx model.onnx
    """
    from nsvm_cli.artifacts.onnx_graph import onnx_graph
    from nsvm_cli.runs.open_model import open_model
    from nsvm_cli.storage.files import write_atomically

    source, model = open_model(options.model, {"device": "cpu"}, say)
    target = options.file or source.with_suffix(".onnx")
    write_atomically(target, onnx_graph(model), named=options.file is not None)
    answer(f"ONNX graph: {target}")
