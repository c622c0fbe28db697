"""The command ``nsvm tune``."""

from __future__ import annotations

import argparse
import functools
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import yaml
from rich.table import Column, Table

from nsvm_cli.cli.parser import CommandParser
from nsvm_cli.compose.composition import complete_overrides, compose_settings, conf_folder, search_folder
from nsvm_cli.config.registry import construct
from nsvm_cli.config.settings import flat, parse_settings
from nsvm_cli.errors import InputError
from nsvm_cli.metrics import METRICS
from nsvm_cli.output import answer, say
from nsvm_cli.plugins import load_plugins
from nsvm_cli.terminal.console import Console

if TYPE_CHECKING:
    from nsvm_cli.tuning.search import Candidate


DEFAULT = conf_folder() / "tune" / "default.yaml"
USUAL = "+tune.usual_validation=${tuned:tune.validation,200 each}"


def tune_arguments(parser: CommandParser) -> None:
    parser.add("--config-dir", "FOLDER", "folder with your own configuration files")
    completer = functools.partial(complete_overrides, given=["+tune=default"])
    lines = re.findall(r"^(\w+):(.*?) +# (.+)$", DEFAULT.read_text(), re.MULTILINE)
    keys = {f"tune.{name}={default.strip()}": comment for name, default, comment in lines} | {
        "tune.space.KEY=[A,B]": "values to choose from",
        "tune.space.KEY.low=X": "minimum of a range; also set high and, for a log scale, log=true",
        "+tune.space.KEY=...": "search another setting; ~tune.space.KEY removes a setting",
    }
    parser.add_keys("overrides (including overrides of nsvm train)", keys, "OVERRIDE", completer)


def tune(options: argparse.Namespace) -> None:
    """Search for the best learning rate, momentum, weight decay, schedule, dropout,
    lambda and kernel gamma. Settings without an effect are skipped. As in the
    paper, each candidate is trained with several seeds and evaluated on validation
    data. The test set is never read. The last line is the command that trains the
    best candidate. To resume after an interruption, run the same command again.

    examples:
      nsvm tune dataset=mnist algorithm=alg3 tune.trials=20 tune.seconds=600
      nsvm tune tune.space.network.dropout.high=0.3 '~tune.space.optimizer.warmup'
      nsvm tune algorithm=pegasos '+tune.space.kernel.bias=[null,true]'
    """
    # ++ because Hydra refuses + for a key that exists
    words = [re.sub(r"^\+(?=tune\.space\.)", "++", word) for word in options.words]
    # ++ because a user's own configuration of a data set may lack dataset.validation
    # a search needs the algorithm itself, not the choice that is the default for tables
    defaults = ["algorithm=alg4", "+tune=default", "++dataset.validation=${tune.validation}", USUAL]
    values = compose_settings([*defaults, *search_folder(options.config_dir), *words])
    section = values.pop("tune")
    usual = section.pop("usual_validation")
    del section["validation"]  # dataset.validation has its value now
    load_plugins(parse_settings(values).plugins)
    try:  # imported only after the configuration was checked, because importing torch takes seconds
        from nsvm_cli.tuning.search import Search, suited_validation
        from nsvm_cli.tuning.search import tune as run
    except ImportError:
        raise InputError("tune requires Optuna: install it with pip install 'optuna>=5,<6'") from None

    search = construct(Search, "tune", section)
    if values["dataset"]["validation"] is None:
        values["dataset"]["validation"] = suited_validation(values, usual)
    suggested = yaml.safe_load(DEFAULT.read_text())["space"]
    finalists = run(values, search, suggested, Progress(search.seeds).show)
    _show(finalists)
    answer(f"Search: {search.directory}")
    answer(_train_command(options, values, finalists[0]))


def _train_command(options: argparse.Namespace, values: Mapping[str, Any], best: Candidate) -> str:
    """Return the command that trains the best candidate on all training samples."""
    folders = [] if options.config_dir is None else ["--config-dir", options.config_dir]
    replaced = {"dataset.validation", *(word.partition("=")[0] for word in best.words)}
    given = {word: word.lstrip("+~").partition("=")[0] for word in options.words}
    words = [word for word, key in given.items() if key not in replaced and not re.match(r"tune\b", key)]
    needed = values["calibration"] == "sigmoid" or values["threshold"] or values["validation"]["every"]
    if (needed or METRICS[best.metric].needs == "probabilities") and (n := values["dataset"]["validation"]):
        words.append(f"dataset.validation={n}")
    keys = flat(values)
    best_values = [word if word.partition("=")[0] in keys else f"++{word}" for word in best.words]
    return shlex.join(["nsvm", "train", *folders, *words, *best_values])


class Progress:
    """Prints to standard error each candidate that is better than all earlier candidates."""

    def __init__(self, seeds: int) -> None:
        self.seeds, self.best = seeds, -math.inf

    def show(self, candidate: Candidate) -> None:
        metric = METRICS[candidate.metric]
        if len(candidate.scores) == self.seeds and metric.sign * candidate.mean > self.best:
            self.best = metric.sign * candidate.mean
            say(f"candidate {candidate.number}: {metric.written(candidate.mean)}  {candidate.overrides}")


def _show(finalists: Sequence[Candidate]) -> None:
    seeds, metric = len(finalists[0].final), METRICS[finalists[0].metric]
    title = f"the {len(finalists)} best candidates on {seeds} new seeds"
    columns = "", Column(f"validation {metric.name}", no_wrap=True), "standard error", "overrides"
    table = Table(*columns, title=title, title_justify="left", show_lines=True)
    for c in finalists:
        table.add_row(str(c.number), metric.written(c.mean), metric.written(c.error), c.overrides)
    Console().print(table)
