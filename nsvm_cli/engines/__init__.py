"""The engines, which take the steps that the algorithm's ``step`` method defines.

``literal`` calls ``step`` itself, ``torch`` evaluates many steps ahead in one batch, and ``numba`` takes many
steps in one call of compiled code.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Literal

from nsvm_cli.engines import look_ahead
from nsvm_cli.engines.coverage import base_of, pays_off, uncovered_by_numba, uncovered_by_torch, units
from nsvm_cli.engines.numba.code import compile_once, is_compiled, is_usable
from nsvm_cli.errors import InputError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.output import say
from nsvm_cli.trainers import Problem, Trainer

Engine = Literal["literal", "torch", "numba"]
LITERAL: Engine = "literal"
TORCH: Engine = "torch"
NUMBA: Engine = "numba"


def select(asked: Literal["auto"] | Engine, trainer: Trainer[Any], problem: Problem, F: FeatureMap) -> Engine:
    """Return the engine of a run: the requested engine or, for ``auto``, the fastest that supports it.

    Raises:
        InputError: the requested engine does not support the run, or is not installed.
    """
    if asked == LITERAL:
        return LITERAL
    gap = uncovered_by_numba(trainer, problem, F)
    if asked == NUMBA:
        if not is_usable():
            advice = "install it with pip install 'nsvm[fast]', or use engine=torch"
            raise InputError(f"engine=numba requires Numba: {advice}")
        if gap:
            raise InputError(f"engine=numba does not support {gap}; use engine=auto or engine=torch")
        return NUMBA
    if uncovered_by_torch(trainer, problem, F):
        return LITERAL
    if asked == TORCH or gap or find_spec("numba") is None:
        return TORCH
    ready = all(map(is_compiled, units(trainer.parts, problem)))
    return NUMBA if pays_off(trainer, F, ready) and is_usable() else TORCH


def why_slower(engine: Engine, trainer: Trainer[Any], problem: Problem, F: FeatureMap) -> str | None:
    """Return a message with the setting that rules out a faster engine, or None if no setting does."""
    gap = uncovered_by_numba(trainer, problem, F)
    if gap is None or problem.x.device.type != "cpu":
        return None
    compiles = engine == TORCH and base_of(trainer) and pays_off(trainer, F, True)
    if compiles or uncovered_by_torch(trainer, problem, F):
        return f"engine={engine} is used, because faster engines do not support {gap}"
    return None


def for_engine(engine: Engine, trainer: Trainer[Any]) -> Trainer[Any]:
    """Return the trainer, converted to the class that takes its steps with this engine."""
    if engine == LITERAL:
        return trainer
    if engine == TORCH:
        return look_ahead.with_faster_class(trainer, look_ahead.LOOK_AHEAD)
    from nsvm_cli.engines.numba.trainers import COMPILED  # Numba takes half a second to import

    return look_ahead.with_faster_class(trainer, COMPILED)


def compile_steps(engine: Engine, trainer: Trainer[Any], problem: Problem) -> None:
    """Show a message and compile missing code for a run, if any. Raise a RunError if this fails."""
    if engine != LITERAL and is_usable():
        compiled = [part for part in trainer.parts if engine == NUMBA or part.chooses_steps]
        compile_once(units(compiled, problem), say)


def circumstances(engine: Engine) -> str:
    """Return the engine and, for numba, its version and the processor, since they determine the last bits."""
    if engine != NUMBA:
        return engine
    import llvmlite.binding

    processor = os.environ.get("NUMBA_CPU_NAME") or llvmlite.binding.get_host_cpu_name()
    return f"numba {version('numba')} for {processor}"
