"""Where machine code comes from: another process, so that the first run has the bits of all later ones."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")

from nsvm_cli import randomness
from nsvm_cli.cli.compile import warmup
from nsvm_cli.engines.numba import code
from nsvm_cli.errors import RunError
from nsvm_cli.models import losses
from tests.cli.process import nsvm, start

UNIT, OTHER = "alg1-float32-RBF-MLP", "pegasos-float32-RBF"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the code, which is empty, in a cache of its own."""
    folder = tmp_path / "compiled" / "this"
    monkeypatch.setattr(code, "lasting_folder", lambda: folder)
    monkeypatch.setattr(code, "_verified", set())
    forget()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    compiler(tmp_path, 'mkdir "$NSVM_COMPILES/sub"; date +%N > "$NSVM_COMPILES/sub/$1.nbc"')
    yield folder
    forget()


def forget() -> None:
    """Find out anew where code can be kept."""
    code.can_keep_code.cache_clear()
    code.code_folder.cache_clear()


def compiler(tmp_path: Path, script: str) -> None:
    """Put a shell script in the place of the process that compiles; $1 is the unit."""
    file = tmp_path / "python"
    file.write_text(f'#!/bin/sh\nshift 3\necho "$1" >> {tmp_path}/calls\n{script}\n')
    file.chmod(0o755)


def as_new() -> None:
    """Look at the files again, as another process would."""
    code._verified.clear()


def test_what_cannot_be_compiled_is_said_in_a_line(folder: Path, tmp_path: Path) -> None:
    compiler(tmp_path, "echo some lines >&2; echo no memory >&2; exit 1")
    with pytest.raises(RunError, match=f"steps of {UNIT} cannot be compiled: no memory; engine=torch"):
        code.compile_once([UNIT])
    assert not code.is_compiled(UNIT)


def test_it_is_compiled_once(folder: Path, tmp_path: Path) -> None:
    for units in ([UNIT], [OTHER, UNIT], [UNIT, OTHER]):
        code.compile_once(units)
        as_new()
    assert (tmp_path / "calls").read_text().splitlines() == [UNIT, OTHER]


def test_several_are_compiled_side_by_side(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, neither ends before the other has begun."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    compiler(
        tmp_path,
        f"for i in $(seq 300); do [ $(wc -l < {tmp_path}/calls) = 2 ] && exit; sleep 0.01; done; exit 1",
    )
    said: list[str] = []
    code.compile_once([UNIT, OTHER], said.append)
    assert said == [UNIT, OTHER]


def test_code_for_another_processor_is_kept_apart(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code.compile_once([UNIT])
    monkeypatch.setenv("NUMBA_CPU_NAME", "haswell")
    assert not code.is_compiled(UNIT)
    code.compile_once([UNIT])
    monkeypatch.delenv("NUMBA_CPU_NAME")
    assert code.is_compiled(UNIT)
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "+avx2")
    assert not code.is_compiled(UNIT)


def truncate(file: Path) -> None:
    file.write_bytes(b"")


def fill_with_noise(file: Path) -> None:
    file.write_bytes(bytes(range(256)) * 8)


def flip_a_bit(file: Path) -> None:
    file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])


def add_another(file: Path) -> None:
    (file.parent / "another.nbi").write_bytes(b"of somebody else")


OF_A_FILE: list[Callable[[Path], None]] = [truncate, fill_with_noise, flip_a_bit, Path.unlink]
NAMES = (f"code/sub/{UNIT}.nbc", "manifest.json")
DAMAGE = [*((damage, name) for damage in OF_A_FILE for name in NAMES), (add_another, NAMES[0])]


@pytest.mark.parametrize(("damage", "name"), DAMAGE)
def test_what_is_damaged_is_not_loaded_but_compiled_anew(
    folder: Path, tmp_path: Path, damage: Callable[[Path], None], name: str
) -> None:
    code.compile_once([UNIT, OTHER])
    (unit,) = folder.glob(f"{UNIT}*")
    damage(unit / name)
    as_new()
    assert not code.is_compiled(UNIT)
    assert code.is_compiled(OTHER)
    code.compile_once([UNIT])
    assert code.is_compiled(UNIT)
    assert [path.name for path in (unit / "code").rglob("*.*")] == [f"{UNIT}.nbc"]
    assert (tmp_path / "calls").read_text().splitlines()[2:] == [UNIT]


def test_the_folder_is_nobody_elses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        assert code.can_keep_code()
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o750)
    code.can_keep_code.cache_clear()
    assert not code.can_keep_code()
    folder.chmod(0o700)
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")
    code.can_keep_code.cache_clear()
    assert not code.can_keep_code()
    folder.unlink()
    folder.with_name("elsewhere").rename(folder)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    code.can_keep_code.cache_clear()
    assert not code.can_keep_code()


def test_nothing_of_the_current_folder_is_imported(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    for module in ("sitecustomize", "usercustomize", "platform"):
        (tmp_path / f"{module}.py").write_text(
            f"open({str(tmp_path / 'imported')!r}, 'a').write('{module} ')"
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    imports = code.START.replace(
        "from nsvm_cli.engines.numba.compiler import main\nmain()", "import platform"
    )
    monkeypatch.setattr(code, "START", imports)
    with code._leash() as leash:
        code._start_compiler(UNIT, tmp_path, leash).communicate()
    assert not (tmp_path / "imported").exists()


def test_the_compiler_ends_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    from nsvm_cli.engines.numba import compiler

    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    with code._leash() as reader:
        stream = os.fdopen(os.dup(reader))
    monkeypatch.setattr(sys, "stdin", stream)
    compiler._end_with_parent()
    stream.close()
    assert ended == [1]


@pytest.mark.thorough
def test_no_process_is_left_when_one_is_killed_that_waits_for_the_compiler(tmp_path: Path) -> None:
    words = ["train", "algorithm=pegasos", "engine=numba", f"hydra.run.dir={tmp_path / 'run'}"]
    process = start(*words, cwd=tmp_path, env={"XDG_CACHE_HOME": str(tmp_path)})
    while not working_in(tmp_path / "nsvm"):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 10
    while working_in(tmp_path / "nsvm") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not working_in(tmp_path / "nsvm")


def working_in(folder: Path) -> list[Path]:
    """Return the processes whose current folder is below this one."""
    processes = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                processes.append(process)
    return processes


def test_old_versions_are_removed(folder: Path, tmp_path: Path) -> None:
    code.compile_once([UNIT])
    (unit,) = folder.iterdir()
    others = {name: folder.with_name(name) for name in ("earlier", "gone", "of another", "new", "old")}
    for name, other in others.items():
        shutil.copytree(folder, other)
        manifest = (unit / "manifest.json").read_text()
        if name == "gone":
            manifest = manifest.replace(str(Path(code.__file__).parent), str(tmp_path / "removed"))
        if name == "of another":
            manifest = manifest.replace(sys.prefix, str(tmp_path))
        (other / unit.name / "manifest.json").write_text(manifest if name not in ("new", "old") else "")
    os.utime(others["old"], (1, 1))
    code.compile_once([OTHER])
    assert {path.name for path in folder.parent.iterdir()} == {"this", "of another", "new"}
    assert code.is_compiled(UNIT)


def test_a_process_that_only_runs_adds_nothing_and_says_when_it_had_to_compile(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nsvm_cli.engines.numba.jit import kept

    def twice(x: float) -> float:
        return 2 * x

    place = code.cache_folder(UNIT)
    compiled = kept(twice, place)
    assert compiled(1.5) == 3
    assert not [path for path in folder.rglob("*") if path.is_file()]
    with pytest.raises(RunError, match="does not fit these samples: engine=torch"):
        code.expect_loaded(compiled)
    monkeypatch.setenv(code.COMPILES, str(place))
    compiled(1)
    assert [path.suffix for path in sorted(folder.rglob("*")) if path.is_file()] == [".nbc", ".nbi"]


def test_a_copy_has_code_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba would not load what was compiled from files elsewhere, or from before they were written again."""
    folder: Any = code.lasting_folder
    original = folder.__wrapped__()
    copy = shutil.copytree(Path(code.__file__).parent, tmp_path / "engines" / "numba")
    masks = shutil.copy(Path(randomness.__file__), tmp_path)
    (tmp_path / "models").mkdir()
    numbers = shutil.copy(Path(losses.__file__), tmp_path / "models")
    monkeypatch.setattr(code, "__file__", str(copy / "code.py"))
    folders = {original, folder.__wrapped__()}
    for changed in (copy / "alg1.py", masks, numbers):
        os.utime(changed, (1, 1))
        folders.add(folder.__wrapped__())
    assert len(folders) == 5


def test_without_a_place_for_code_each_process_has_its_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(code, "lasting_folder", lambda: tmp_path / "file" / "compiled")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    forget()
    code.compile_once([UNIT])
    assert code.is_compiled(UNIT)
    (own,) = tmp_path.glob("nsvm-*")
    assert own.stat().st_mode & 0o777 == 0o700
    assert code.cache_folder(UNIT).is_relative_to(own)
    with pytest.raises(RunError, match="is not a writable folder of your own"):
        warmup()


def test_all_experiments_are_compiled_ahead(folder: Path, tmp_path: Path) -> None:
    assert nsvm("compile", cwd=tmp_path).returncode == 0
    units = (tmp_path / "calls").read_text().split()
    assert {unit.partition("-")[0] for unit in units} == {"pegasos", "alg1", "alg2", "alg3", "alg4"}
    assert {*units} > {"pegasos-float32-FarRBF", "alg3-float32-FarRBF-MLP"}
    assert len(units) == len({*units})


def test_a_sweep_compiles_once_for_each_kind_of_settings_before_its_jobs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[list[str]] = []
    calls = tmp_path / "calls"
    monkeypatch.setattr("nsvm_cli.cli.job._train", lambda *_: compiled.append(calls.read_text().split()))
    nsvm("train", "-m", "algorithm=pegasos", "engine=numba", "kernel=rbf,linear", "seed=0,1", cwd=tmp_path)
    assert [sorted(units) for units in compiled] == [["pegasos-float32-FarRBF", "pegasos-float32-Linear"]] * 4


@pytest.mark.thorough
def test_the_first_run_has_the_bits_of_the_next(tmp_path: Path) -> None:
    """It has to compile; in a cache of its own, that takes some fifteen seconds."""
    words = ["train", "algorithm=alg1", "algorithm.steps=3000", "engine=numba", "curves=false"]
    for name in ("first", "second"):
        process = start(*words, f"hydra.run.dir={name}", cwd=tmp_path)
        _, said = process.communicate()
        assert process.returncode == 0, said
        assert ("compiling" in said) == (name == "first")
    first, second = (tmp_path / name / "final.safetensors" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
