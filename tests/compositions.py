"""Composed settings that tests share, because each composition takes Hydra a tenth of a second."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from nsvm_cli.compose.composition import compose_settings

ROOT = Path(__file__).parents[1]
GROUPS = {folder.name for folder in (ROOT / "conf").iterdir() if folder.is_dir()}


@cache
def _composed(*words: str) -> dict[str, Any]:
    return compose_settings([*words])


def composed(words: Iterable[str]) -> dict[str, Any]:
    """Return a copy of the settings for these overrides, which may only refer to files in conf/."""
    return deepcopy(_composed(*words))


def together(commands: Iterable[dict[str, str]]) -> list[list[str]]:
    """Return lists of overrides that cover all commands.

    Commands that choose the same parts share a list unless they give a setting different values.
    """
    by_parts: dict[tuple[tuple[str, str], ...], list[dict[str, str]]] = {}
    for words in commands:
        others = by_parts.setdefault(tuple(sorted(word for word in words.items() if word[0] in GROUPS)), [])
        fits = (one for one in others if all(one.get(key, words[key]) == words[key] for key in words))
        if (same := next(fits, None)) is None:
            others.append(same := {})
        same |= words
    return [["=".join(word) for word in one.items()] for others in by_parts.values() for one in others]
