"""torchvision is imported only when it is needed, and also with a CPU build of torch."""

from __future__ import annotations

import ast
import sys

import pytest
import torch

from nsvm_cli.datasets.torchvision_import import import_torchvision
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.models.networks import build_network
from nsvm_cli.runs.experiment import prepare
from tests.small_runs import small_settings
from tests.test_architecture import MODULES, imports


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate that torchvision is not installed."""
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchvision", None)


def test_it_can_be_imported_again_and_again() -> None:
    first = import_torchvision("models")
    assert import_torchvision("models") is first
    assert first is sys.modules["torchvision.models"]


def test_its_operators_are_declared_whichever_build_of_torch_this_is() -> None:
    import_torchvision("ops")
    schema = str(torch.ops.torchvision.nms.default._schema)
    assert schema == "torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def test_no_module_imports_it_when_it_is_imported_itself() -> None:
    using = [file for file in MODULES.values() if "torchvision" in file.read_text()]
    assert using
    for file in using:
        assert "torchvision" not in {module.split(".")[0] for module in imports(file)}, file
        tree = ast.parse(file.read_text())
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        inside = {node for function in functions for node in ast.walk(function)}
        outside = [node for node in {*ast.walk(tree)} - inside if isinstance(node, ast.Call)]
        assert "import_torchvision" not in {ast.unparse(call.func) for call in outside}, file


@pytest.mark.usefixtures("missing")
def test_a_run_without_images_does_without_it() -> None:
    prepare(small_settings(network={"name": "mlp", "widths": [4], "dropout": 0.1}))


@pytest.mark.usefixtures("missing")
def test_what_needs_it_says_so_in_one_line() -> None:
    with pytest.raises(RunError, match=r"torchvision cannot be imported .*; install the version of"):
        import_torchvision("models")
    says = "network torchvision cannot be built: torchvision cannot be imported"
    with pytest.raises(InputError, match=says):
        build_network({"name": "torchvision"}, (1, 28, 28), seed=0)
