"""Damaged and forged model files and checkpoints, which readers must accept or properly refuse."""

from __future__ import annotations

import copy
import json
import re
import time
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from nsvm_cli.artifacts.model_file import MODEL
from nsvm_cli.runs.checkpoint import KIND
from nsvm_cli.storage.tensor_file import BLANK
from trials.files import Reader, join, make, split

ALGORITHMS = ["alg1", "alg2", "alg3", "alg4", "pegasos"]
EXAMPLES = 500
DAMAGE = ("cut", "flip", "bytes")
"""Changes that do not update the checksum of a file, so that readers must refuse the file."""

TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=12) | st.text(max_size=2)
ODD = st.one_of(
    st.sampled_from(
        [None, True, False, 0, -1, 1, 2**31, 2**63, 10**19, 10**30, 0.0, -1.5, 1e308, 1e-308, ""]
    ),
    st.sampled_from(
        ["name", "F32", "F64", "I64", "U8", "BF16", "cuda", "float64", "rbf", "alg1", "mlp", "identity"]
    ),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
)
VALUES = st.recursive(
    ODD,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)


def paths(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in nested dicts and lists."""
    places = [at]
    if isinstance(tree, dict):
        for key, value in tree.items():
            places += paths(value, (*at, key))
    elif isinstance(tree, list):
        for n, value in enumerate(tree):
            places += paths(value, (*at, n))
    return places


def changed(data: st.DataObject, tree: Any) -> Any:
    """Return a copy of the tree with one to three of its values replaced, removed or added."""
    tree = copy.deepcopy(tree)
    for _ in range(data.draw(st.integers(1, 3))):
        if not (places := paths(tree)[1:]):
            break  # nothing is left
        *above, last = data.draw(st.sampled_from(places))
        holder = tree
        for key in above:
            holder = holder[key]
        if not isinstance(holder, dict | list) or (isinstance(holder, list) and last >= len(holder)):
            continue
        how = data.draw(st.sampled_from(["replace", "replace", "remove", "add", "copy"]))
        if how == "remove":
            del holder[last]
        elif how == "add" and isinstance(holder, dict):
            holder[data.draw(TEXT)] = data.draw(VALUES)
        elif how == "copy":
            other = data.draw(st.sampled_from(paths(tree)))
            value = tree
            for key in other:
                value = value[key]
            holder[last] = copy.deepcopy(value)
        else:
            holder[last] = data.draw(VALUES)
    return tree


def mangled(data: st.DataObject, whole: bytes, kind: str) -> tuple[str, bytes]:
    """Return the way in which an intact file was changed, and the changed file."""
    how = data.draw(st.sampled_from([*DAMAGE, "header", "content", "content", "tensors", "text"]))
    if how == "cut":
        return how, whole[: data.draw(st.integers(0, len(whole) - 1))]
    if how == "flip":
        place = data.draw(st.integers(0, 8 * len(whole) - 1))
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        return how, bytes(flipped)
    header, rest = split(whole)
    content = json.loads(header["__metadata__"][kind])
    content["sha256"] = BLANK
    if how == "bytes":
        at, length = data.draw(st.integers(0, len(whole))), data.draw(st.integers(0, 64))
        return how, whole[:at] + data.draw(st.binary(max_size=64)) + whole[at + length :]
    if how == "header":
        header["__metadata__"][kind] = json.dumps(content)
        return how, join(json.dumps(changed(data, header)), rest)
    if how == "content":
        content = {"sha256": BLANK, **changed(data, {k: v for k, v in content.items() if k != "sha256"})}
    if how == "tensors":
        at = data.draw(st.integers(0, len(rest)))
        rest = rest[:at] + data.draw(st.binary(min_size=1, max_size=8)) * 3 + rest[at:]
        rest = rest[: len(whole) - 8 - int.from_bytes(whole[:8], "little")]
    header["__metadata__"][kind] = json.dumps(content)
    text = json.dumps(header)
    if how == "text":
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.text(max_size=8)) + text[at + data.draw(st.integers(0, 8)) :]
    return how, join(text, rest)


def _way(said: str) -> str:
    """Return the start of a refusal without names and numbers, to count similar refusals together."""
    words = re.sub(r"^.*?: |'[^']*'|\[.*?\]|-?[0-9][0-9.e+-]*", " ", said)
    return "taken" if said == "taken" else " ".join(words.split()[:7])


def fuzz(folder: Path, arguments: Namespace) -> list[str]:
    """Pass changed files to the readers for some minutes; any undocumented error is a defect."""
    whole = {
        (kind, a): file.read_bytes()
        for a in ALGORITHMS
        for kind, file in zip((MODEL, KIND), make(folder, a), strict=True)
    }
    readers = {(kind, a): Reader(kind, a) for kind, a in whole}
    file = folder / "file.safetensors"
    outcomes: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def one(data: st.DataObject) -> None:
        kind, algorithm = data.draw(st.sampled_from(sorted(whole)))
        how, content = mangled(data, whole[kind, algorithm], kind)
        file.write_bytes(content)
        said = readers[kind, algorithm](file)
        assert "\n" not in said
        assert said != "taken" or how not in DAMAGE or content == whole[kind, algorithm]
        outcomes[_way(said)] += 1

    began, rounds = time.monotonic(), 0
    while time.monotonic() - began < 60 * arguments.minutes:
        seed(rounds)(one)()
        rounds += 1
    tried, ways = outcomes.total(), len(outcomes) - 1
    return [
        f"{tried} files in {(time.monotonic() - began) / 60:.1f} minutes: {outcomes['taken']} taken, the "
        f"others refused with the documented error, in {ways} ways or more",
        "",
        *(f"- {count}: {way}" for way, count in outcomes.most_common(60)),
    ]
