"""The program that compiles units in a separate process; see ``nsvm_cli.engines.numba.code``."""

from __future__ import annotations

import gc
import os
import sys
import threading
from typing import Any, cast

import torch
from numba.core import event
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen

from nsvm_cli.engines import NUMBA, for_engine
from nsvm_cli.engines.numba.kernel_rows import DUAL
from nsvm_cli.engines.numba.working_sets import solve_small_problems
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.models.kernels import RBF
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.optimizers import SGD
from nsvm_cli.trainers import Problem, build_trainer


class LinkedCode(JITCodeLibrary):
    """The code of a function. To save time, it is compiled only in its callers, unless Python calls it."""

    @property
    def _is_called_from_python(self) -> bool:
        return any(f.name.startswith("_ZN7cpython") for f in self._final_module.functions)

    def _optimize_final_module(self) -> None:
        if self._is_called_from_python:
            # twice: after inlining, reference counts can be removed, and then more loops are vectorised
            cast(Any, super())._optimize_final_module()
            cast(Any, super())._optimize_final_module()

    def _finalize_final_module(self) -> None:
        if self._is_called_from_python:
            cast(Any, super())._finalize_final_module()
        else:
            cast(Any, self)._finalize_dynamic_globals()
            self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        cast(Any, self)._ensure_finalized()
        return cast(Any, super()).get_pointer_to_function(name) if self._is_called_from_python else 0

    @property
    def codegen(self) -> Any:
        """The object that receives the globals of functions. Without machine code, globals are ignored."""
        return self

    def set_env(self, name: str, env: Any) -> None:
        if self._is_called_from_python:
            codegen: Any = self._codegen
            codegen.set_env(name, env)


def compile_unit(unit: str) -> None:
    """Compile the code of a unit (an algorithm and a dtype, as in ``alg4-float32``) by taking a few steps."""
    algorithm, dtype = unit.split("-")
    x = torch.linspace(-1, 1, 80, dtype=getattr(torch, dtype)).sin().view(40, 2)
    if algorithm == DUAL:
        solve_small_problems(x)
        return
    problem = Problem(x, x[:, 0].sign(), RBF(), seed=0)
    network = build_network({"name": "mlp", "widths": [4, 3]}, (2,), seed=0).to(x)
    F = FeatureMap(network, SGD(1e-3, momentum=0.9), seed=0)
    trainer = for_engine(NUMBA, build_trainer({"name": algorithm, "steps": 8}))
    trainer.advance(problem, trainer.start(problem, F), trainer.part_steps[0])


def main() -> None:
    """Compile the units on the command line. Exit as soon as the parent process ends."""
    gc.disable()  # collecting garbage would take a sixth of the time
    event.broadcast = lambda event: None  # each call of LLVM would send an event, which nothing uses
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    JITCPUCodegen._library_class = LinkedCode
    for unit in sys.argv[1:]:
        compile_unit(unit)


def _end_with_parent() -> None:
    sys.stdin.read()  # read returns when the pipe closes
    os._exit(1)


if __name__ == "__main__":
    main()
    os._exit(0)  # freeing all memory would take a second
