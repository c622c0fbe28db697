"""Output to terminals and programs: names with control characters, failing streams, and narrow terminals."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from rich.table import Table

from nsvm_cli.cli.sweep import Sweep
from nsvm_cli.errors import RunError
from nsvm_cli.terminal.console import Console
from tests.cli.process import evaluated, exit_code, nsvm, trained

TINY = ["algorithm=pegasos", "algorithm.steps=50", "dataset.samples=300", "curves=false"]
HOSTILE = "\x1b]0;x\x07\x1b[31m[red]:dog:"
SHOWN = r"\x1b]0;x\x07\x1b[31m[red]:dog:"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(*TINY, cwd=tmp_path_factory.mktemp("run"))[0]


@contextlib.contextmanager
def full_disk() -> Iterator[TextIO]:
    file = os.open("/dev/full", os.O_WRONLY)
    yield open(file, "w", closefd=False)  # closing it would fail, like writing  # noqa: SIM115
    os.close(file)


@contextlib.contextmanager
def reader_gone() -> Iterator[TextIO]:
    reading, writing = os.pipe()
    os.close(reading)
    yield open(writing, "w", closefd=False)  # noqa: SIM115
    os.close(writing)


def test_hostile_names_are_printed_as_they_are(run: Path, tmp_path: Path) -> None:
    there = shutil.copytree(run, tmp_path / HOSTILE)
    for words in (("evaluate", HOSTILE), ("train", f"resume={there}")):
        done = nsvm(*words, cwd=tmp_path, code=0)
        assert SHOWN in done.stdout
        assert done.stdout.replace("\n", "").isprintable()
    assert evaluated(there, cwd=tmp_path)["checkpoint"].startswith(f"{there}/"), "JSON must not escape paths"


def test_hostile_values_of_a_sweep(tmp_path: Path) -> None:
    words = ["dataset=csv", f"dataset.path='{HOSTILE}','b'", "algorithm=majority", "hydra.sweep.dir=sweep"]
    done = nsvm("train", "-m", *words, cwd=tmp_path, env={"COLUMNS": "300"}, code=2)
    assert SHOWN in done.stderr, done
    assert "\x1b" not in done.stderr


def test_a_table_prints_strings_as_they_are() -> None:
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    Console(out := io.StringIO()).print(table)
    lines = out.getvalue().splitlines()
    assert len(lines) == 6
    assert [line.count(SHOWN) for line in lines] == [1, 0, 1, 0, 1, 0]
    assert len({len(line.rstrip()) for line in lines[1:]}) == 1, "expected lines of equal length"


@pytest.mark.parametrize("failing", [full_disk, reader_gone])
def test_training_goes_on_without_output(failing: Any, tmp_path: Path) -> None:
    with failing() as out, failing() as errors:
        assert exit_code("train", *TINY, "hydra.run.dir=run", cwd=tmp_path, out=out, errors=errors) == 0
    assert (tmp_path / "run" / "result.json").exists()


def test_an_answer_that_is_lost_is_a_failure(run: Path, tmp_path: Path) -> None:
    with full_disk() as out:
        assert exit_code("evaluate", str(run), cwd=tmp_path, out=out, errors=(errors := io.StringIO())) == 1
    assert errors.getvalue() == "nsvm: standard output: No space left on device\n"


def test_an_encoding_that_lacks_characters(run: Path, tmp_path: Path) -> None:
    (tmp_path / "é").symlink_to(run)
    with open(tmp_path / "out", "w", encoding="ascii") as out:
        assert exit_code("evaluate", "é", cwd=tmp_path, out=out, errors=io.StringIO()) == 0
    text = (tmp_path / "out").read_text()
    assert r"\xe9/final.safetensors" in text
    assert "| accuracy " in text


def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"b\xff")
    done = nsvm("train", *TINY, f"hydra.run.dir='{folder}'", cwd=tmp_path, code=0)
    assert f"{tmp_path}/b\\udcff" in done.stdout


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (40, "peg.*"),
        (150, "pegasos on ringnorm, seed 0 ━{10,} 50/50 TIME TIME validation SHARE violations N .*"),
    ],
)
def test_the_bar_shows_what_there_is_room_for(columns: int, expected: str, tmp_path: Path) -> None:
    words = ["train", *TINY, "dataset.validation=30", "validation.every=10"]
    errors, env = Terminal(), {"COLUMNS": str(columns), "TERM": "xterm"}
    assert exit_code(*words, cwd=tmp_path, env=env, out=io.StringIO(), errors=errors) == 0
    assert errors.getvalue().startswith("starting ...\r"), "expected a message before the slow imports"
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", errors.getvalue()).replace("\r", "\n").splitlines()
    *_, bar, after = [line.rstrip() for line in shown if line.strip()]
    assert max(len(bar), len(after)) <= columns
    assert after.startswith("model and scores")
    for name, pattern in (("TIME", r"[0:]+\d"), ("SHARE", r"\d+\.\d\d %"), ("N", r"\d+")):
        expected = expected.replace(name, pattern)
    assert re.fullmatch(expected, bar), bar


@pytest.mark.parametrize("jobs", [6, None])
def test_the_number_of_jobs(jobs: int | None, tmp_path: Path) -> None:
    config = OmegaConf.create(
        {"hydra": {"sweep": {"dir": str(tmp_path)}}, "overwrite": True, "allow_mismatch": False}
    )
    words = OverridesParser.create().parse_overrides(["seed=0,1,2", "algorithm=alg1,alg2", "kernel=rbf"])
    sweep = Sweep([])
    none_ran = pytest.raises(RunError, match="6 of the sweep's jobs wrote no status to ")
    with none_ran if jobs else contextlib.nullcontext(), sweep.reported():
        assert sweep.start(config, words, [["seed=0"]] * (jobs or 0)) == [["seed=0"]] * (jobs or 0)
    assert (sweep.jobs, sweep.keys) == (jobs, {"seed", "algorithm"})
