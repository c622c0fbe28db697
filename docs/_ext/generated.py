"""Fill in what the pages take from the program itself: the options in conf/ and the help texts.

``<!-- generated: NAME -->`` in a page is replaced with what the function of that name returns.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from textwrap import fill
from types import ModuleType
from typing import Any, get_type_hints

import yaml
from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import nsvm_cli
from nsvm_cli.cli import main
from nsvm_cli.compose.composition import compose_settings
from nsvm_cli.config.registry import NonNegative
from nsvm_cli.config.settings import Settings
from nsvm_cli.datasets import DATASETS
from nsvm_cli.models.kernels import KERNELS
from nsvm_cli.models.losses import LOSSES
from nsvm_cli.models.networks import NETWORKS, Output
from nsvm_cli.models.optimizers import OPTIMIZERS
from nsvm_cli.models.penalties import PENALTIES
from nsvm_cli.runs.loggers import LOGGERS
from nsvm_cli.trainers import TRAINERS
from nsvm_cli.trainers.samplers import SAMPLERS

CONF = next(
    folder
    for folder in (Path(nsvm_cli.__file__).parent / "conf", Path(nsvm_cli.__file__).parents[1] / "conf")
    if folder.is_dir()
)
GROUPS: dict[str, Mapping[str, Any]] = {
    "dataset": DATASETS,
    "algorithm": TRAINERS,
    "network": NETWORKS,
    "kernel": KERNELS,
    "optimizer": OPTIMIZERS,
    "loss": LOSSES,
    "sampler": SAMPLERS,
    "logger": LOGGERS,
}
COLUMNS = ["setting", "default", "type", "meaning"]
MEANINGS = {
    "batch_size": "k, the number of samples in a batch",
    "beta1": "decay of the running mean of gradients",
    "beta2": "decay of the running mean of squared gradients",
    "c": "the constant term",
    "checkpoint.every": "time between checkpoints (`30s`, `5min`, `1h`), or steps; null: none",
    "checkpoint.keep": "checkpoints that stay when a run has finished: `last`, `none`, `all` or the newest N",
    "channels": "output channels of the two convolutions",
    "degree": "the power",
    "device": "`auto` takes a GPU if there is one",
    "dtype": "precision of all computations",
    "dropout": "probability of dropping a channel or a value in the pass whose gradient moves θ",
    "eps": "lower bound of the norm that `normalize` divides by",
    "gamma": "null: 1/n for features z in R^n; `rbf` and `polynomial`: 1/(n var z) where z does not move",
    "head": "append a linear layer onto R, or R^C for C > 2 classes: a classifier without an SVM",
    "learning_rate": "of the boosting: what each tree is multiplied by",
    "lam": "λ, the weight of the norm of f",
    "lr": "learning rate",
    "momentum": "momentum of the gradient steps",
    "mu": "μ, the weight of the first fraction of the objective",
    "kernel.normalize": "divide K(a, b) by √K(a, a)·√K(b, b)",
    "network.normalize": "divide the features by their norm",
    "path": "the file",
    "samples": "samples to generate",
    "scale": "factor applied after `normalize`",
    "scaling": "`standard`: mean 0 and deviation 1; `minmax`: 0..1; `none`: as they are; of the training set",
    "schedule": "`constant`, `linear` or `cosine`; the last two fall to 0",
    "seed": "decides the split, the initial θ, the sampling and the dropout",
    "separator": "the character between two cells",
    "steps": "T, the number of steps",
    "validation": "samples per class to take from the training set and evaluate on instead of the test set",
    "validation.every": "steps between two evaluations on the validation set; null: none",
    "warmup": "share of the run in which the learning rate rises to `lr`",
    "weight_decay": "weight of the L2 regularisation",
    "widths": "width of each layer",
}
"""What a setting means, where its line in conf/ has no comment."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Fill in the pages as they are read, at each build: Sphinx does not see their sources change."""
    app.connect("env-get-outdated", _filled_pages)
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _filled_pages(app: Sphinx, env: BuildEnvironment, *_: set[str]) -> list[str]:
    return [page for page in env.found_docs if "<!-- generated:" in Path(env.doc2path(page)).read_text()]


def _fill(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = re.sub(r"<!-- generated: (\w+) ?(\w*) -->", lambda m: GENERATORS[m[1]](m[2]), source[0])


def group(name: str) -> str:
    """Return the options of a group, each with its settings."""
    registry = GROUPS[name]
    files = {file.stem: file for file in (CONF / name).glob("*.yaml")}
    order = [*(option for option in registry if option in files), *sorted(files.keys() - registry.keys())]
    return "\n".join(_option(name, option, files[option], registry.get(option)) for option in order)


def _option(group: str, option: str, file: Path, part: Any) -> str:
    text = file.read_text()
    values = yaml.safe_load(text) or {}
    values = values.get(group, values) if isinstance(values.get(group, values), dict) else values
    types = _types(part) | (_types(Output) if group == "network" else {})
    rows = _rows(group, values, types, text)
    return f"### `{group}={option}`\n\n{escape(_description(text))}\n\n{_table(COLUMNS, rows)}"


def _rows(section: str, values: Mapping[str, Any], types: Mapping[str, str], text: str) -> list[list[str]]:
    """Return a row for each setting of a section; what it means is said by the comment in its line."""
    comments = dict(reversed(re.findall(r"^ *(\w+):.*? # *(.+)$", text, flags=re.M)))
    rows = []
    for key, value in values.items():
        if key not in ("name", "defaults"):
            name = f"{section}.{key}".lstrip(".")
            meaning = MEANINGS.get(name) or comments.get(key) or MEANINGS.get(key, "")
            rows.append([f"`{name}`", _default(value), types.get(key, ""), escape(meaning)])
    return rows


def _description(text: str) -> str:
    """Return the comment at the top of a file."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("# @package"):
            lines.append(line.removeprefix("#").strip())
    return " ".join(lines)


def _default(value: Any) -> str:
    if value == "???":
        return "required"
    if match := re.fullmatch(r"\$\{tuned:[\w.]+,(.+)\}", str(value)):
        return f"[tuned](experiments.md#where-the-values-come-from), else `{match[1]}`"
    return f"`{yaml.safe_dump(value, default_flow_style=True).partition(chr(10))[0]}`"


def _types(part: Any) -> dict[str, str]:
    """Return what each parameter of a registered class may be, in words."""
    if part is None:
        return {}
    annotated = part.__init__ if isinstance(part, type) and not is_dataclass(part) else part
    hints = get_type_hints(annotated, include_extras=True)
    names = [name for name in inspect.signature(part).parameters if name in hints]
    return {name: _type(hints[name]) for name in names if name != "shape"}


def _type(hint: Any) -> str:
    try:
        return _words(TypeAdapter(hint).json_schema())
    except PydanticInvalidForJsonSchema:  # checked by code of its own
        return ""


def _words(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_words(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        items = schema.get("items") or next(iter(schema.get("prefixItems", [])), {})
        fixed = "prefixItems" in schema
        return f"{schema['minItems']} values, each {_words(items)}" if fixed else f"list of {_words(items)}"
    bounds = [
        f"{sign} {schema[key]:g}"
        for key, sign in (
            ("exclusiveMinimum", ">"),
            ("minimum", "≥"),
            ("exclusiveMaximum", "<"),
            ("maximum", "≤"),
        )
        if abs(schema.get(key, math.inf)) < 1e9
    ]
    kinds = {"boolean": "true or false", "string": "text", "object": "section"}
    kind = str(schema.get("type", ""))
    return " ".join([kinds.get(kind, kind), ", ".join(bounds)]).strip()


def run_settings(_: str) -> str:
    """Return the settings of the run itself, from train.yaml."""
    text = (CONF / "train.yaml").read_text()
    known = [field.name for field in fields(Settings)]
    values = {key: value for key, value in yaml.safe_load(text).items() if key in known}
    plain = {key: value for key, value in values.items() if not isinstance(value, dict)}
    rows = _rows("", plain, _types(Settings), text)
    for key in [key for key in values if key not in plain]:
        below = text[text.index(f"\n{key}:") :]
        weights = dict.fromkeys(PENALTIES, _type(NonNegative))
        types = weights if key == "penalties" else _types(get_type_hints(Settings)[key])
        rows += _rows(key, values[key], types, below)
    return _table(COLUMNS, rows)


def tune_settings(_: str) -> str:
    """Return the default search of ``nsvm tune``."""
    return f"```yaml\n{(CONF / 'tune' / 'default.yaml').read_text()}```\n"


PAPERS = {
    "network": ("widths", "channels", "normalize", "scale"),
    "kernel": ("name", "gamma"),
    "algorithm": ("lam", "mu", "batch_size", "steps", "split", "loss", "solver"),
}
OURS = {
    "optimizer": ("lr", "momentum", "weight_decay", "schedule", "warmup"),
    "network": ("eps", "dropout"),
}
NOT_THE_PAPERS = {"optimizer.schedule", "optimizer.warmup"}


def papers_experiments(dataset: str) -> str:
    """Return the settings of the paper's experiments on a data set, and who chose each of them."""
    names = [f"alg{n}" for n in (1, 2, 3, 4)]
    runs = [compose_settings([f"dataset={dataset}", f"algorithm={name}"]) for name in names]
    ours = NOT_THE_PAPERS | ({"network.dropout"} if dataset == "ringnorm" else set())
    rows = []
    for whose, sections in (("the paper", PAPERS), ("ours", OURS)):
        for section, key in [(section, key) for section, keys in sections.items() for key in keys]:
            cells = [run[section].get(key) for run in runs]
            if any(cell is not None for cell in cells):
                name = f"{section}.{key}"
                chosen_by = "ours; the paper has none" if name in ours else whose
                rows.append([f"`{name}`", *("" if c is None else _default(c) for c in cells), chosen_by])
    return _table(["setting", *(f"`{name}`" for name in names), "chosen by"], rows)


def values(folder: str) -> str:
    """Return the files of a folder of conf/, as they are."""
    files = sorted((CONF / folder).glob("*.yaml"))
    blocks = [
        f"### `{file.relative_to(CONF)}`\n\n```yaml\n{file.read_text().strip()}\n```\n" for file in files
    ]
    return "\n".join(blocks)


def help_text(command: str) -> str:
    """Return what ``nsvm COMMAND --help`` prints."""
    shown = io.StringIO()
    os.environ["COLUMNS"] = "92"
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main([*([command] if command else []), "--help"])
    text = shown.getvalue().strip()
    lines = [fill(line, 92, subsequent_indent="  ") if len(line) > 92 else line for line in text.splitlines()]
    return "```text\n" + "\n".join(lines) + "\n```\n"


def api(package: str) -> str:
    """Return directives that document the modules of a package; without a name, those beside the packages."""
    parent = import_module(f"nsvm_cli.{package}" if package else "nsvm_cli")
    names = [module.name for module in iter_modules(parent.__path__) if not module.ispkg]
    blocks = [_automodule(parent, f":members: {', '.join(_defined_in(parent))}")] if package else []
    for name in (name for name in names if not name.startswith("_")):
        module = import_module(f"{parent.__name__}.{name}")
        blocks.append(
            f"## {package}.{name}".replace("## .", "## ") + "\n\n" + _automodule(module, ":members:")
        )
    return "\n".join(blocks)


def _automodule(module: ModuleType, members: str) -> str:
    options = members if members != ":members: " else ":no-members:"
    return f"```{{eval-rst}}\n.. automodule:: {module.__name__}\n   {options}\n```\n"


def _defined_in(module: ModuleType) -> list[str]:
    """Return what a package defines itself, rather than re-exports."""
    return [
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


GENERATORS: dict[str, Callable[[str], str]] = {
    "api": api,
    "group": group,
    "help": help_text,
    "papers_experiments": papers_experiments,
    "run_settings": run_settings,
    "tune_settings": tune_settings,
    "values": values,
}
