"""Functions that write settings as overrides, quoted for Hydra and for a shell."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any


def override(key: str, value: Any) -> str:
    """Return the override ``key=value``, quoted for a shell."""
    text = f"{key}={written(value)}"
    plain = "'" not in text or re.search(r'["$`\\!]', text)
    return shlex.quote(text) if plain else f'"{text}"'


def written(value: Any) -> str:
    """Return a value in Hydra's grammar, quoted if necessary."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{written(key)}:{written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    special = value.lower() in ("true", "false", "null", "nan", "inf")
    plain = re.fullmatch(r"[a-zA-Z_/][\w./+-]*|-?[1-9]\d*|0", value, re.ASCII)
    return value if plain and not special else quoted(value)


def quoted(text: str) -> str:
    """Return text in single quotes. Hydra requires doubled backslashes, but only before a quote."""
    text = re.sub(r"(\\*)'", r"\1\1\'", text)
    return "'" + re.sub(r"(\\+)\Z", r"\1\1", text) + "'"
