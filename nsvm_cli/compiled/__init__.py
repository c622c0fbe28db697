"""The compiled engine: whole stretches of steps as functions of machine code, which Numba makes.

It covers small networks, fully connected or with two convolutions (see ``coverage``). Nothing depends on this
room, except that a run asks ``select`` who takes its steps.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Literal

from nsvm_cli.compiled.code import can_keep_code, code_folder, is_compiled, name_of_type
from nsvm_cli.compiled.coverage import name_of, pays_off, uncovered
from nsvm_cli.errors import InputError
from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.trainers import Problem, Trainer

Engine = Literal["torch", "numba"]
TORCH: Engine = "torch"
NUMBA: Engine = "numba"


def select(asked: Literal["auto"] | Engine, trainer: Trainer[Any], problem: Problem, F: FeatureMap) -> Engine:
    """Return the engine of a run: the one that was asked for, or the faster one.

    Raises:
        InputError: what was asked for does not cover the run, or is not installed.
    """
    gap = uncovered(trainer, problem, F)
    if asked == NUMBA:
        if not is_usable():
            raise InputError("engine=numba needs Numba: pip install 'nsvm[fast]', or engine=torch")
        if gap:
            raise InputError(f"engine=numba does not cover {gap}: expected engine=auto or engine=torch")
        return NUMBA
    if asked == TORCH or gap or find_spec("numba") is None:
        return TORCH
    return NUMBA if pays_off(trainer, F, is_ready(trainer, problem)) and is_usable() else TORCH


def can_take(trainer: Trainer[Any], problem: Problem, F: FeatureMap) -> bool:
    """Return whether compiled functions can take the steps of a run here."""
    return not uncovered(trainer, problem, F) and is_usable()


@cache
def is_usable() -> bool:
    """Return whether Numba is installed, and fits the packages that it finds."""
    try:
        import numba  # noqa: F401  # half a second: only where it is about to be used
    except ImportError:
        return False
    return True


def is_ready(trainer: Trainer[Any], problem: Problem) -> bool:
    """Return whether the functions for these steps have been compiled before."""
    names = {"alg4": ("alg4", "pegasos")}.get(name := name_of(trainer), (name,))
    return all(is_compiled(name, name_of_type(problem.x.dtype)) for name in names)


def compiling_notice(engine: Engine, trainer: Trainer[Any], problem: Problem) -> str | None:
    """Return what to say before a run whose functions have to be compiled first; None before others."""
    if engine == TORCH or is_ready(trainer, problem):
        return None
    what = "compiling the steps of this algorithm, which takes up to a minute"
    if can_keep_code():
        return f"{what}, once on this computer"
    where = code_folder()
    return f"{what}, for this process alone: {where} is not a writable folder of your own, with mode 0700"


def taken_by(engine: Engine, trainer: Trainer[Any]) -> Trainer[Any]:
    """Return the same algorithm, with its steps taken by this engine."""
    if engine == TORCH:
        return trainer
    from nsvm_cli.compiled.trainers import compiled  # Numba takes half a second to import

    return compiled(trainer)


def circumstances(engine: Engine) -> str:
    """Return what the bits of a result depend on: the engine, its version, and the processor."""
    if engine == TORCH:
        return engine
    import llvmlite.binding

    return f"numba {version('numba')} for {llvmlite.binding.get_host_cpu_name()}"
