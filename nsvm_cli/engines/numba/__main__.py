"""Compile everything ahead, so that no run has to: python -m nsvm_cli.engines.numba [TYPE ...]"""

from __future__ import annotations

import sys

from nsvm_cli.engines.numba.code import can_keep_code, code_folder, compile_once
from nsvm_cli.engines.numba.coverage import TRAINERS
from nsvm_cli.errors import RunError


def main(types: list[str]) -> None:
    """Compile for these types of numbers."""
    if not {*types} <= {"float32", "float64"}:
        raise SystemExit("usage: python -m nsvm_cli.engines.numba [float32] [float64]")
    if not can_keep_code():
        raise SystemExit(f"nsvm: nothing can be kept in {code_folder()}, so each run compiles for itself")
    for dtype in types:
        for algorithm in TRAINERS:
            try:
                compile_once(algorithm, dtype)
            except RunError as error:
                raise SystemExit(f"nsvm: {error}") from None


if __name__ == "__main__":
    main(sys.argv[1:] or ["float32", "float64"])
