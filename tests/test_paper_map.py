"""docs/paper.md, the map of the paper: everything that it names exists, under the name that it gives."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from nsvm_cli.artifacts.diagnosis import diagnose
from nsvm_cli.compose.composition import compose_settings
from nsvm_cli.config.registry import construct
from nsvm_cli.config.settings import Settings, parse_settings
from nsvm_cli.models.networks import build_network
from nsvm_cli.models.penalties import with_weight
from nsvm_cli.trainers import build_parts
from tests.cli.process import nsvm
from tests.compositions import GROUPS, ROOT, together
from tests.page.models import load

PAGE = (ROOT / "docs" / "paper.md").read_text()
SECTIONS = {field.name for field in fields(Settings)}
LETTERS = ("F", "problem", "state")
"""What code begins with that is written as in the steps."""

TRAIN_HELP = (ROOT / "conf" / "train.yaml").read_text()
"""What ``nsvm train --help`` shows; Hydra takes seconds for it."""


def names() -> dict[str, list[str]]:
    """Return what the page names, by its kind, which follows from how it is written."""
    found: dict[str, list[str]] = {}
    prose = re.sub(r"```.*?```|<!--.*?-->", "", PAGE, flags=re.DOTALL)
    for name in dict.fromkeys(re.findall(r"`([^`]+)`", prose)):
        if name.startswith("nsvm "):
            kind = "command"
        elif "::" in name:
            kind = "test"
        elif "=" in name:
            kind = "option"
        elif "/" in name:
            kind = "file"
        elif re.fullmatch(r"[a-z]\w*(\.\w+)+", name) and not name.startswith(LETTERS):
            kind = "setting" if name.split(".")[0] in SECTIONS else "code"
        else:
            kind = "word"
        found.setdefault(kind, []).append(name)
    return found


NAMES = names()


def test_tests() -> None:
    for name in NAMES["test"]:
        file, function = name.split("::")
        defined = ast.parse((ROOT / "tests" / file).read_text()).body
        assert function in [node.name for node in defined if isinstance(node, ast.FunctionDef)], name


def test_files() -> None:
    for name in NAMES["file"]:
        assert (ROOT / name).exists() or (ROOT / "nsvm_cli" / name).exists(), name


def test_code() -> None:
    for name in NAMES["code"]:
        assert resolved(name), name


def resolved(name: str) -> Any:
    """Return what a name of a module and its members stands for: an object, or the field of a class."""
    parts, known = name.split("."), None
    for n in range(1, len(parts)):
        try:
            module = import_module(".".join(["nsvm_cli", *parts[:n]]))
        except ModuleNotFoundError:
            break
        known, members = module, parts[n:]
    assert known, name
    found: Any = known
    for member in members:
        own_fields = getattr(found, "__dataclass_fields__", {})
        found = getattr(found, member, own_fields.get(member))
        assert found is not None, name
    defined_in = getattr(getattr(known, members[0]), "__module__", known.__name__)
    assert defined_in == known.__name__, f"{name} is in {defined_in}"
    return found


def one_by_one(words: list[str]) -> Iterator[dict[str, str]]:
    """Yield the words with the first of their values, with the second, and so on."""
    pairs = [word.split("=", 1) for word in words]
    values = [re.split(r",(?![^\[]*\])", value) for _, value in pairs]
    for n in range(max(map(len, values))):
        yield {key: some[min(n, len(some) - 1)] for (key, _), some in zip(pairs, values, strict=True)}


def of_parts_alone(option: str) -> bool:
    """Tell whether an option only chooses parts, of which other tests compose and build every one."""
    return all(word.split("=")[0] in GROUPS for word in shlex.split(option))


def test_options_that_choose_parts() -> None:
    for words in (words for option in NAMES["option"] for words in one_by_one(shlex.split(option))):
        for group in words.keys() & GROUPS:
            assert (ROOT / "conf" / group / f"{words[group]}.yaml").exists(), words


@pytest.mark.parametrize(
    "words",
    together(
        words
        for option in NAMES["option"]
        if not of_parts_alone(option)
        for words in one_by_one(shlex.split(option))
    ),
    ids=" ".join,
)
def test_options(words: list[str]) -> None:
    """With the parts of which they are settings."""
    settings = parse_settings(compose_settings(words))
    build_parts(settings)
    construct(with_weight, "", {"penalties": settings.penalties})
    build_network(settings.network, (1, 28, 28), 0)


def test_settings() -> None:
    settings = compose_settings([])
    for name in NAMES["setting"]:
        section, key = name.split(".")
        assert key in settings[section], name


def test_commands(tmp_path: Path) -> None:
    shown = {"train": TRAIN_HELP}
    for command in NAMES["command"]:
        _, name, *words = command.split()
        if name == "tune":
            compose_settings(words)
            continue
        if name not in shown:
            shown[name] = nsvm(name, "--help", cwd=tmp_path, code=0).stdout
        for word in words:
            key = word.partition("=")[0]
            assert re.search(rf"(?<!\S)\[?{key}\b", shown[name]), f"{word} in {command}"


def test_figures_and_letters(tmp_path: Path) -> None:
    """Words are figures of a diagnosis or a run, or what the algorithms call the paper's letters."""
    figures = {*diagnose(*load(tmp_path)), *re.findall(r"`(\w+)`", (ROOT / "docs" / "files.md").read_text())}
    files = (ROOT / "nsvm_cli" / "trainers").glob("*.py")
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    letters = {getattr(node, kind, None) for node in nodes for kind in ("id", "attr", "arg", "name")}
    for word in NAMES["word"]:
        assert word in figures or {*re.findall(r"\w+", word)} <= letters, word
