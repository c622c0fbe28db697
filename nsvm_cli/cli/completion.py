"""Shell completion for commands, flags, groups, options and keys."""

from __future__ import annotations

import contextlib
import io
import os

from nsvm_cli.cli import COMMANDS
from nsvm_cli.errors import InputError, did_you_mean

BASH = """\
_nsvm() {
    local IFS=$'\\n' line="${COMP_LINE:0:COMP_POINT}"
    local word="${line##* }"
    COMPREPLY=($(nsvm __complete "$line" 2>/dev/null))
    # bash replaces only what follows the last "=" where that character breaks words
    if [[ $word == *=* && $COMP_WORDBREAKS == *=* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*=}"}"}")
    fi
    if [[ ${COMPREPLY[0]} == *[=.] ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o default -F _nsvm nsvm
"""

ZSH = """\
(( $+functions[compdef] )) || { autoload -U compinit && compinit -u; }
_nsvm() {
    local -a found
    found=(${(f)"$(nsvm __complete "$LBUFFER" 2>/dev/null)"})
    if (( $#found )); then compadd -Q -S '' -- $found; else _files; fi
}
compdef _nsvm nsvm
"""

SCRIPTS = {
    "bash": BASH,
    "zsh": ZSH,
    "fish": "complete -c nsvm -a '(nsvm __complete (commandline -cp))'\n",
}

FLAGS = {
    "": ["--help", "--version"],
    "train": ["--help", "--multirun", "--cfg", "--resolve", "--config-dir", "--info", "--hydra-help"],
    "tune": ["--help", "--config-dir"],
    "reproduce": ["--help"],
    "evaluate": ["--help", "--json"],
    "curves": ["--help"],
}

EVALUATE = [
    "split=test",
    "split=train",
    "split=validation",
    "split=all",
    "dataset=",
    "dataset.root=",
    "dataset.path=",
]
EVALUATE += ["device=auto", "device=cpu", "device=cuda", "threads=", "plugins="]

TRAIN = ["resume=", "inexact=true", "overwrite=true"]

TUNE = ["tune.trials=", "tune.seeds=", "tune.first_seed=", "tune.finalists=", "tune.final_seeds="]
TUNE += ["tune.validation=", "tune.directory=", "tune.seconds=", "tune.jobs=", "tune.space."]

REPRODUCE = ["seeds=", "cells=", "ringnorm=", "mnist=", "directory=", "jobs=", "quick=true"]

HELP = """\
usage: nsvm completion SHELL

Print completion for bash, zsh or fish. For this session and bash: eval "$(nsvm completion bash)"
"""


def completion(arguments: list[str]) -> None:
    """Prints the script for a shell."""
    if arguments in (["-h"], ["--help"]):
        print(HELP, end="")
        return
    if len(arguments) != 1 or arguments[0] not in SCRIPTS:
        raise InputError(f"completion needs one shell; {did_you_mean(' '.join(arguments), SCRIPTS)}")
    print(SCRIPTS[arguments[0]], end="")


def complete(arguments: list[str]) -> None:
    """Prints what may stand in place of the last word of a command line; called by the scripts."""
    words = (arguments[0] if arguments else "").split(" ")[1:]
    *before, word = words or [""]
    print("\n".join(c for c in _candidates([b for b in before if b], word) if c.startswith(word)))


def _candidates(before: list[str], word: str) -> list[str]:
    command = before[0] if before else ""
    if word.startswith("-"):
        return FLAGS.get(command, [])
    if not before:
        return [command for command in COMMANDS if not command.startswith("_")]
    if command == "completion":
        return list(SCRIPTS)
    if command == "evaluate":
        return EVALUATE if len(before) > 1 else []
    if command == "reproduce":
        return REPRODUCE
    if command == "curves":
        return []  # the shell knows files
    own = {"train": TRAIN, "tune": TUNE}.get(command, [])
    return _hydra(" ".join([*before, word])) + own


def _hydra(line: str) -> list[str]:
    """Hydra's own answer, which it gives for the line in COMP_LINE."""
    from nsvm_cli.cli.train import train

    os.environ["COMP_LINE"] = line
    with contextlib.redirect_stdout(io.StringIO()) as answer:
        train(["-sc", "query=bash"])
    return answer.getvalue().split()
