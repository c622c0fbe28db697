"""Help, shell completion, and the packages that the commands import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import argcomplete
import pytest

from nsvm_cli import __version__
from nsvm_cli.cli.parser import COMMANDS, SHELLS, build_parser
from tests.cli.process import nsvm
from tests.patience import PATIENCE


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train --hydra-help", "Hydra"),
        *((f"completion {shell}", "_ARGCOMPLETE") for shell in SHELLS if shell != "bash"),
        ("train algorithm=alg3 dataset=mnist --cfg job --resolve", "steps: 9500"),
    ],
)
def test_help(words: str, said: str, tmp_path: Path) -> None:
    assert said in nsvm(*words.split(), cwd=tmp_path, code=0).stdout
    assert list(tmp_path.iterdir()) == []


USAGE = {"tune": "tune [-h] [--config-dir FOLDER] [OVERRIDE ...]", "completion": "completion [-h] SHELL"}
USAGE |= {"reproduce": "reproduce [-h] [--output FOLDER] SUITE"}


def test_help_fits_into_80_columns(tmp_path: Path) -> None:
    for command in ("", *sorted(COMMANDS)):
        shown = nsvm(*command.split(), "--help", cwd=tmp_path, env={"COLUMNS": "80"}, code=0).stdout
        assert max(map(len, shown.splitlines())) <= 80, command
        assert f"usage: nsvm {USAGE[command]}" in shown if command in USAGE else shown
    assert list(tmp_path.iterdir()) == []


def test_no_command_shows_the_help_and_fails(tmp_path: Path) -> None:
    done = nsvm(cwd=tmp_path, code=2)
    assert all(command in done.stdout for command in COMMANDS)


ALGORITHMS = (
    "\nalgorithm: alg1, alg2, alg3, alg4, auto, cross_entropy, linear_pegasos,\n"
    "  linear_svm, logistic, majority, nystroem, pegasos, svc, trees\ndataset: "
)
LIGHT: list[tuple[str, list[str], list[str]]] = [
    ("--help", ["usage: nsvm "], []),
    ("--version", [f"nsvm {__version__}"], []),
    ("evaluate --help", ["usage: nsvm evaluate [-h] [--split NAME] [--json]"], []),
    ("completion bash", ["_ARGCOMPLETE"], ["argcomplete"]),
    ("train --help", [ALGORITHMS, "sampler: balanced, uniform\n\nAn experiment"], ["hydra", "pydantic"]),
    ("train --cfg job", ["\nalgorithm:\n"], ["hydra", "pydantic"]),
]
IMPORTED = """
import sys
from nsvm_cli.cli import main
try:
    main(sys.argv[1:])
except SystemExit as done:
    assert done.code == 0
heavy = {"torch", "pandas", "sklearn", "openml", "requests", "hydra", "rich", "pydantic"}
heavy |= {"argcomplete", "matplotlib", "scipy", "torchvision", "torch._dynamo", "optuna", "joblib", "sympy"}
print("IMPORTED", *sorted(heavy & set(sys.modules)))
"""


@pytest.mark.parametrize(("words", "said", "imported"), LIGHT)
def test_what_needs_no_torch_imports_none(
    words: str, said: list[str], imported: list[str], tmp_path: Path
) -> None:
    optimized = ["-OO"] if "evaluate" in words else []  # without the docstrings that help shows
    command = [sys.executable, *optimized, "-c", IMPORTED, *words.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert all(text in done.stdout for text in said)
    assert done.stdout.splitlines()[-1].split()[1:] == imported
    assert list(tmp_path.iterdir()) == []


def completions(line: str) -> set[str]:
    """Return the completions of the last word of a command line."""
    finder = argcomplete.CompletionFinder(build_parser([*line.split(), ""][1]), always_complete_options=False)
    found = (finder.rl_complete(line.removeprefix("nsvm "), n) for n in range(100))
    return {word.split()[-1] for word in found if word is not None}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nsvm ", {*COMMANDS}),
        ("nsvm ev", {"evaluate"}),
        ("nsvm train dataset=m", {"dataset=mnist", "dataset=mnist10"}),
        ("nsvm train -m seed=1 dataset=m", {"dataset=mnist", "dataset=mnist10"}),
        ("nsvm train algorithm=alg3 algorithm.m", {"algorithm.mu="}),
        ("nsvm train optimizer.lr=", {"optimizer.lr=0.0052"}),
        ("nsvm train res", {"resume="}),
        ("nsvm train --mu", {"--multirun"}),
        ("nsvm tune dataset=m", {"dataset=mnist", "dataset=mnist10"}),
        ("nsvm tune tune.space.optimizer.lr.h", {"tune.space.optimizer.lr.high="}),
        ("nsvm reproduce t", {"tables"}),
        ("nsvm completion f", {"fish"}),
        ("nsvm evaluate run --j", {"--json"}),
        ("nsvm evaluate --json run --split t", {"test", "train"}),
        ("nsvm report ta", {"table.csv"}),
    ],
)
def test_completion(line: str, expected: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "table.csv").touch()
    monkeypatch.chdir(tmp_path)
    for variable in ("COMP_LINE", "HYDRA_FULL_ERROR"):  # completion sets these; monkeypatch restores them
        monkeypatch.setenv(variable, "")
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    assert completions(line) == expected
    assert [file.name for file in tmp_path.iterdir()] == ["table.csv"]
