"""Run commands on untrusted files, in a process that logs writes, started programs and connections."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nsvm_cli
from tests.patience import PATIENCE

WITNESS = """
import os, sys

def note(event, arguments):
    if event == "open":
        path, _, flags = arguments
        quiet = "__pycache__" in str(path) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if quiet or path in (LOG, "/dev/null"):
            return
    elif event not in WATCHED:
        return
    with open(LOG, "a") as log:
        print(event, *arguments, file=log)

LOG = os.environ["WITNESS_LOG"]
WATCHED = {"os.system", "subprocess.Popen", "os.exec", "os.fork", "os.posix_spawn",
    "socket.connect", "socket.getaddrinfo", "pickle.find_class"}
sys.addaudithook(note)
"""

# all commands share a process, which does the slow imports before it measures the commands
COMMANDS = """
import contextlib, io, json, os, re, sys, time
from nsvm_cli.cli import main
import nsvm_cli.cli.train, nsvm_cli.cli.tune
import nsvm_cli.runs.train, nsvm_cli.runs.open_model, nsvm_cli.terminal.console

def peak():
    return int(re.search("VmHWM:\\\\s*([0-9]+)", open("/proc/self/status").read())[1])

for folder, words in json.loads(sys.argv[1]):
    os.chdir(folder)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # from here on, the peak is the command's
    before = peak()
    if os.path.exists(os.environ["WITNESS_LOG"]):
        os.remove(os.environ["WITNESS_LOG"])
    code, said, began = None, io.StringIO(), time.process_time()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            main(words)
    except SystemExit as exit:
        code = exit.code
    seconds = time.process_time() - began
    log = os.environ["WITNESS_LOG"]
    noted = open(log).read() if os.path.exists(log) else ""
    print(json.dumps([words, code, said.getvalue(), seconds, peak() - before, noted]), flush=True)
"""


def expect_refusals(commands: Sequence[tuple[Path, list[str]]], folder: Path) -> None:
    """Check that each command fails with one line, quickly, in little memory and without side effects."""
    witness = folder / "witness"
    witness.mkdir()
    (witness / "sitecustomize.py").write_text(WITNESS)
    for place, _ in commands:
        for name in ("evil.py", "torch.py"):
            (place / name).write_text("open('marker', 'w')")
    path = f"{witness}{os.pathsep}{Path(nsvm_cli.__file__).parents[1]}"
    environment = {**os.environ, "PYTHONPATH": path, "WITNESS_LOG": str(folder / "log")}
    before = listing(folder)
    words = json.dumps([(str(place), words) for place, words in commands])
    done = subprocess.run(
        # -P keeps the current folder off the path, as for the installed command; -B avoids a __pycache__
        [sys.executable, "-B", "-P", "-c", COMMANDS, words],
        env={**environment, "SECRET": "hush"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert listing(folder) == before
    answers = done.stdout.splitlines()
    assert len(answers) == len(commands)
    for answer in answers:
        _, code, said, seconds, memory, noted = json.loads(answer)
        assert code == 2, answer
        assert said.startswith("nsvm: "), answer
        assert said.count("\n") == 1, answer
        assert said[:-1].isprintable(), answer
        assert "hush" not in said, answer
        assert not [line for line in noted.splitlines() if "clear_refs" not in line], answer
        assert seconds < 10, answer  # CPU time, which other processes do not affect
        assert memory < 200_000, answer  # KiB beyond the memory of the packages, which depends on their build


def listing(folder: Path) -> set[Path]:
    return {*folder.rglob("*")} - {folder / "log"}
