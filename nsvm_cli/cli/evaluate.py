"""``nsvm evaluate``: evaluate a trained model."""

from __future__ import annotations

import json
from typing import Any

import yaml

from nsvm_cli.cli.plugins import load_plugins
from nsvm_cli.errors import InputError, did_you_mean

HELP = """\
usage: nsvm evaluate PATH [OVERRIDE ...] [--json]

Judge the trained model in PATH, a run directory or a checkpoint file, on its test set (on its
validation set, if it was trained with dataset.validation).

overrides:
  split=NAME           test, train, validation, or all: every sample of the data set
  dataset.KEY=VALUE    where the data are now, for instance dataset.root=FOLDER or dataset.path=FILE
  dataset=NAME         other data, for instance dataset=csv dataset.path=new.csv split=all
  device=NAME          auto, cpu or cuda
  threads=N            threads on the CPU
  plugins=[MODULE]     modules of your own that the model's kernel or network comes from

options:
  --json               print one JSON object instead of a table
  -h, --help           this text
"""

SPLITS = ("test", "train", "validation", "all")
RUNTIME = ("device", "threads")


def evaluate(arguments: list[str]) -> None:
    """Prints how the model does, as a table or as JSON. Writes no file."""
    if "-h" in arguments or "--help" in arguments:
        print(HELP, end="")
        return
    words = [word for word in arguments if word != "--json"]
    if not words or words[0].startswith("-"):
        raise InputError(
            "evaluate needs a PATH: a run directory or a checkpoint file; see nsvm evaluate --help"
        )
    path, overrides = words[0], _overrides(words[1:])
    load_plugins(overrides.pop("plugins"))
    name = overrides.pop("dataset", None)
    changes = {
        key.removeprefix("dataset."): overrides.pop(key) for key in [*overrides] if key.startswith("dataset.")
    }

    from nsvm_cli.runs.evaluation import evaluate_model  # torch takes seconds to import

    dataset = None if name is None else _dataset(name)
    figures = evaluate_model(path, overrides.pop("split", None), overrides, dataset, changes)
    if "--json" in arguments:
        print(json.dumps(figures, allow_nan=False))
    else:
        from nsvm_cli.report.console import show_evaluation

        show_evaluation(figures)


def _dataset(name: str) -> dict[str, Any]:
    from nsvm_cli.cli.hydra_app import compose_section  # Hydra is wanted only here

    return compose_section("dataset", name)


def _overrides(words: list[str]) -> dict[str, Any]:
    """``dataset.root=x split=all`` as values; text stays text, for the settings know their types."""
    values: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        known = [*RUNTIME, "split", "plugins", "dataset", "dataset.root", "dataset.path"]
        if not equals:
            raise InputError(f"expected an override KEY=VALUE, got {word!r}; PATH comes first, once")
        if key not in known and not key.startswith("dataset."):
            raise InputError(f"{key}: there is nothing of this name to override; {did_you_mean(key, known)}")
        values[key] = _parse(value) if value.startswith("[") or value == "null" else value
    if values.get("split", "test") not in SPLITS:
        raise InputError(
            f"split={values['split']}: there is no such split; {did_you_mean(values['split'], SPLITS)}"
        )
    plugins = values.get("plugins", [])
    values["plugins"] = plugins if isinstance(plugins, list) else str(plugins).split(",")
    if not isinstance(values.get("dataset", ""), str):
        raise InputError(f"dataset={values['dataset']}: expected the name of a data set")
    return values


def _parse(value: str) -> Any:
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        raise InputError(f"cannot read the value {value!r}: expected null or a list such as [0,1]") from None
