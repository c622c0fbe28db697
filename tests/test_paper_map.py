"""All tests, files, settings, commands and identifiers that docs/paper.md names exist."""

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
"""Prefixes of expressions that the page writes as in the code of the steps."""

TRAIN_HELP = (ROOT / "conf" / "train.yaml").read_text()
"""The settings that ``nsvm train --help`` shows, read from the file because the command takes seconds."""


def names() -> dict[str, list[str]]:
    """Return the names on the page, grouped by kind, which is inferred from the spelling."""
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
    """Return the object or dataclass field to which a dotted name, such as ``module.Class.field``, refers."""
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
    assert defined_in == known.__name__, f"{name} is defined in {defined_in}"
    return found


def one_by_one(words: list[str]) -> Iterator[dict[str, str]]:
    """Yield the overrides with the first of their values, then with the second, and so on."""
    pairs = [word.split("=", 1) for word in words]
    values = [re.split(r",(?![^\[]*\])", value) for _, value in pairs]
    for n in range(max(map(len, values))):
        yield {key: some[min(n, len(some) - 1)] for (key, _), some in zip(pairs, values, strict=True)}


def of_parts_alone(option: str) -> bool:
    """Return whether an option only chooses parts, because other tests compose and build all parts."""
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
            assert re.search(rf"(?<!\S)\[?{key}\b", shown[name]), f"{command}: the help has no {word}"


def test_figures_and_letters(tmp_path: Path) -> None:
    """Each word is a figure of a diagnosis or a run, or consists of identifiers in the trainers' code."""
    figures = {*diagnose(*load(tmp_path)), *re.findall(r"`(\w+)`", (ROOT / "docs" / "files.md").read_text())}
    files = (ROOT / "nsvm_cli" / "trainers").glob("*.py")
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    letters = {getattr(node, kind, None) for node in nodes for kind in ("id", "attr", "arg", "name")}
    for word in NAMES["word"]:
        assert word in figures or {*re.findall(r"\w+", word)} <= letters, word
