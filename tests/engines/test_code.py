"""Machine code, which a separate process compiles so that the first run has the same bits as later runs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("numba")

from nsvm_cli.engines.numba.code import COMPILES, code_folder, compile_once, is_compiled, unit_folder
from nsvm_cli.engines.numba.jit import loaded
from nsvm_cli.errors import RunError
from tests.cli.process import start

UNIT, OTHER = "alg1-float32", "pegasos-float32"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield an empty cache folder, and replace the compiler by a program that writes nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code_folder.cache_clear()
    monkeypatch.setattr(sys, "executable", shutil.which("true"))
    yield tmp_path / "cache"
    code_folder.cache_clear()


def test_a_unit_is_compiled_once_and_anew_where_it_is_damaged(cache: Path) -> None:
    said: list[str] = []
    for units in ([UNIT], [OTHER, UNIT], [UNIT, OTHER]):
        compile_once(units, said.append)
    assert [line.split(" (")[0] for line in said] == ["compiling for these settings"] * 2
    assert is_compiled(UNIT)
    damaged = unit_folder(UNIT) / "alg1.nbc"
    damaged.write_bytes(b"noise")
    assert not is_compiled(UNIT)
    assert is_compiled(OTHER)
    compile_once([UNIT])
    assert is_compiled(UNIT)
    assert not damaged.exists()


def test_what_cannot_be_compiled_is_said_in_a_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(RunError, match=f"steps of {UNIT} cannot be compiled: exit code 1; use engine=torch"):
        compile_once([UNIT])
    assert not is_compiled(UNIT)


def test_a_process_that_only_runs_adds_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(x: int) -> int:
        return 2 * x

    stretch = loaded(twice, UNIT)
    with pytest.raises(RunError, match="does not match these samples: use engine=torch"):
        stretch(1)
    assert not [*cache.rglob("*.nb?")]
    monkeypatch.setenv(COMPILES, "1")
    assert stretch(1.5) == 3
    assert [path.suffix for path in sorted(cache.rglob("*.nb?"))] == [".nbc", ".nbi"]


def test_python_with_and_without_optimization_have_code_apart(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, flags = code_folder(), {name: getattr(sys.flags, name) for name in dir(sys.flags)}
    monkeypatch.setattr(sys, "flags", SimpleNamespace(**flags | {"optimize": 2}))
    code_folder.cache_clear()
    assert code_folder() != plain


@pytest.mark.thorough
def test_runs_that_wait_for_the_compiler_and_later_ones_have_the_same_bits(tmp_path: Path) -> None:
    """The cache is empty at first, and a file is damaged later. Compiling takes about 15 seconds."""
    words = ["train", "algorithm=alg1", "algorithm.steps=3000", "engine=numba", "curves=false"]

    def finished(*names: str) -> list[bool]:
        """Train side by side, and return for each run whether it said that it compiles."""
        env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
        runs = [start(*words, f"hydra.run.dir={name}", cwd=tmp_path, env=env) for name in names]
        said = [run.communicate()[1] for run in runs]
        assert not any(run.returncode for run in runs), said
        return ["compiling" in lines for lines in said]

    assert any(finished("first", "beside"))
    assert finished("loaded") == [False]
    (code,) = tmp_path.rglob("*.nbc")
    code.write_bytes(code.read_bytes()[:-1])
    assert finished("anew") == [True]
    bits = {file.read_bytes() for file in tmp_path.glob("*/final.safetensors")}
    assert len(bits) == 1
