"""Where machine code comes from: another process, so that the first run has the bits of all later ones."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")

from nsvm_cli.compiled import __main__, code
from nsvm_cli.errors import RunError
from tests.cli.process import start


def test_what_cannot_be_compiled_is_said_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\necho some lines >&2\necho no memory >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setattr(code, "is_compiled", lambda *_: False)
    monkeypatch.setattr(sys, "executable", str(failing))
    with pytest.raises(RunError, match="steps of alg1 cannot be compiled: no memory; engine=torch"):
        code.compile_once("alg1", "float32")


def test_it_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, folder = tmp_path / "python", tmp_path / "code"
    compiler.write_text(f"#!/bin/sh\necho $* >> {tmp_path}/calls\n")
    compiler.chmod(0o755)
    folder.mkdir()
    monkeypatch.setattr(code, "code_folder", lambda: folder)
    monkeypatch.setattr(sys, "executable", str(compiler))
    for dtype in ("float32", "float64", "float32"):
        code.compile_once("alg1", dtype)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.split()[-2:] for call in calls] == [["alg1", "float32"], ["alg1", "float64"]]


def test_a_copy_has_code_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba would not load what was compiled from files elsewhere, or from before they were written again."""
    folder: Any = code.code_folder
    original = folder.__wrapped__()
    copy = shutil.copytree(Path(code.__file__).parent, tmp_path / "compiled")
    monkeypatch.setattr(code, "__file__", str(copy / "code.py"))
    of_copy = folder.__wrapped__()
    os.utime(copy / "alg1.py", (1, 1))
    assert len({original, of_copy, folder.__wrapped__()}) == 3


def test_without_a_place_for_code_nothing_is_compiled_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(code, "code_folder", lambda: tmp_path / "file" / "compiled")
    code.can_keep_code.cache_clear()
    with pytest.raises(SystemExit, match=r"nothing can be kept in .*, so each run compiles for itself"):
        __main__.main(["float32"])
    code.can_keep_code.cache_clear()


@pytest.mark.thorough
def test_the_first_run_has_the_bits_of_the_next(tmp_path: Path) -> None:
    """It has to compile; in a cache of its own, that takes a minute."""
    words = ["train", "algorithm=alg1", "algorithm.steps=3000", "engine=numba", "curves=false"]
    for name in ("first", "second"):
        process = start(*words, f"hydra.run.dir={name}", cwd=tmp_path)
        _, said = process.communicate()
        assert process.returncode == 0, said
        assert ("compiling" in said) == (name == "first")
    first, second = (tmp_path / name / "final.safetensors" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
