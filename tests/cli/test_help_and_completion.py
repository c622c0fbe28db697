"""What the command says about itself, and how fast it gets there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nsvm_cli import __version__
from nsvm_cli.cli.completion import SCRIPTS
from tests.cli.process import nsvm


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--help", "usage: nsvm COMMAND"),
        ("--version", f"nsvm {__version__}"),
        ("train --help", "algorithm: alg1, alg2, alg3, alg4, cross_entropy, pegasos"),
        ("train --hydra-help", "Hydra"),
        ("train algorithm=alg3 --info", "alg3"),
        ("evaluate --help", "usage: nsvm evaluate PATH"),
        ("tune --help", "usage: nsvm tune"),
        ("reproduce --help", "usage: nsvm reproduce"),
        ("curves --help", "usage: nsvm curves RUN"),
        ("completion --help", "usage: nsvm completion SHELL"),
    ],
)
def test_help(words: str, said: str, tmp_path: Path) -> None:
    done = nsvm(*words.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_no_command_shows_the_help_and_fails(tmp_path: Path) -> None:
    done = nsvm(cwd=tmp_path)
    assert done.returncode == 2
    assert "usage: nsvm COMMAND" in done.stdout


def test_cfg_job_composes_the_papers_setting(tmp_path: Path) -> None:
    done = nsvm("train", "algorithm=alg3", "dataset=mnist", "--cfg", "job", "--resolve", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "steps: 9500" in done.stdout
    assert list(tmp_path.iterdir()) == []


LIGHT = {
    "--help": [],
    "--version": [],
    "evaluate --help": [],
    "completion bash": [],
    "train --help": ["hydra"],
    "train --cfg job": ["hydra"],
}
IMPORTED = """
import sys
from nsvm_cli.cli import main
try:
    main(sys.argv[1:])
except SystemExit as done:
    assert done.code == 0
heavy = {"torch", "pandas", "sklearn", "openml", "pooch", "requests", "hydra", "rich", "pydantic"}
print("IMPORTED", *sorted(heavy & set(sys.modules)))
"""


@pytest.mark.parametrize("words", sorted(LIGHT))
def test_what_needs_no_torch_imports_none(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *words.split()], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines()[-1].split()[1:] == LIGHT[words], done.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nsvm ", {"train", "tune", "reproduce", "evaluate", "curves", "completion"}),
        ("nsvm ev", {"evaluate"}),
        ("nsvm train dataset=m", {"dataset=mnist"}),
        ("nsvm train dataset=mnist algorithm=al", {f"algorithm=alg{i}" for i in (1, 2, 3, 4)}),
        ("nsvm train algorithm=alg3 algorithm.m", {"algorithm.mu="}),
        ("nsvm train optimizer=adam optimizer.b", {"optimizer.beta1=", "optimizer.beta2="}),
        ("nsvm train --mu", {"--multirun"}),
        ("nsvm tune dataset=m", {"dataset=mnist"}),
        ("nsvm tune tune.see", {"tune.seeds="}),
        ("nsvm reproduce q", {"quick=true"}),
        ("nsvm completion f", {"fish"}),
        ("nsvm evaluate run split=t", {"split=test", "split=train"}),
    ],
)
def test_completion(line: str, expected: set[str], tmp_path: Path) -> None:
    done = nsvm("__complete", line, cwd=tmp_path)
    assert set(done.stdout.split()) == expected
    assert list(tmp_path.iterdir()) == []


def test_completion_in_a_real_bash(tmp_path: Path) -> None:
    """The function that bash calls, with what bash sets, with "=" breaking words and not."""
    (tmp_path / "nsvm").write_text(f'#!/bin/sh\nexec {sys.executable} -m nsvm_cli "$@"\n')
    (tmp_path / "nsvm").chmod(0o755)
    script = """
        PATH=$PWD:$PATH; eval "$(nsvm completion bash)"
        COMP_LINE="nsvm train dataset=dig"; COMP_POINT=${#COMP_LINE}
        _nsvm; echo "${COMPREPLY[@]}"
        COMP_WORDBREAKS=" "; _nsvm; echo "${COMPREPLY[@]}"
        complete -p nsvm
    """
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["digits", "dataset=digits", "complete -o default -F _nsvm nsvm"]


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_a_script_for_every_shell(shell: str, tmp_path: Path) -> None:
    done = nsvm("completion", shell, cwd=tmp_path)
    assert done.returncode == 0
    assert "__complete" in done.stdout
