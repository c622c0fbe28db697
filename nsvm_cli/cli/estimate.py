"""``nsvm train --estimate``: the time and memory of a run, before it is started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from nsvm_cli.cli.job import RunOptions, composed_settings
from nsvm_cli.compose.composition import run_app
from nsvm_cli.compose.hydra_private import asks_for_sweep
from nsvm_cli.errors import InputError
from nsvm_cli.output import answer, flash, say

if TYPE_CHECKING:
    from nsvm_cli.config.settings import Settings
    from nsvm_cli.runs.estimate import Forecast
    from nsvm_cli.runs.experiment import Experiment

FOLDER = "hydra.run.dir="

Rows = Iterator[tuple[str, str]]
"""Rows of the table: what is estimated, and the estimate."""


class Composed:
    """The settings and run directory that Hydra composed, or neither, if it was asked to print something.

    An error is kept, because Hydra would print a line about one that is raised.
    """

    settings: Settings | None = None
    error: Exception | None = None

    def __call__(self, config: DictConfig) -> None:
        choices = HydraConfig.get().runtime.choices
        self.folder = f"outputs/{choices['dataset']}_{choices['algorithm']}/TIME"
        try:
            self.settings = composed_settings(config, RunOptions())
        except Exception as error:
            self.error = error


def estimate(options: RunOptions, words: Sequence[str]) -> None:
    """Train for two seconds, and print an estimate for the whole run. Writes no file.

    Raises:
        InputError: the words are those of a sweep, or of a run to resume.
    """
    if options.resume or asks_for_sweep([*words]):
        raise InputError("--estimate is for one run from its start: leave out -m and resume=, try one job")
    composed = Composed()
    run_app(composed, [*words, f"{FOLDER}."])  # Hydra makes the folder
    if composed.error:
        raise composed.error
    if composed.settings is None:
        return
    flash("loading PyTorch and the data")
    from nsvm_cli.parallel.signals import Signals
    from nsvm_cli.runs.estimate import estimate as estimate_run
    from nsvm_cli.runs.experiment import prepare

    experiment = prepare(composed.settings)
    named = [word.removeprefix(FOLDER).strip("'\"") for word in words if word.startswith(FOLDER)]
    with Signals() as signals:
        signals.end_at_once("interrupted")
        forecast = estimate_run(experiment, say)
    _show(experiment, forecast, [composed.folder, *named][-1])


def _show(e: Experiment, forecast: Forecast, folder: str) -> None:
    from rich.table import Table

    from nsvm_cli.terminal.console import Console

    algorithm, dataset = e.settings.algorithm["name"], e.settings.dataset["name"]
    table = Table(title=f"{algorithm} on {dataset}: an estimate", title_justify="left", show_header=False)
    for name, value in (*_task(e), *_time(forecast), *_files(e, forecast, folder)):
        table.add_row(name, value)
    Console().print(table)
    if any(part.tried < part.steps for part in forecast.parts):
        answer("Support vectors and violations beyond the steps that were tried follow from a power law.")


def _task(e: Experiment) -> Rows:
    sizes, trainer, epochs = e.data.splits.sizes, e.trainer, e.settings.algorithm.get("epochs")
    passes = f"{trainer.last_theta_step * trainer.k / sizes['train']:.3g}"
    steps = (f"{n}" if n else "a solver without steps" for n in trainer.part_steps)
    yield "samples", ", ".join(f"{n} {name}" for name, n in sizes.items() if n and name != "all")
    yield "features", " x ".join(map(str, e.problem.x.shape[1:]))
    yield "classes", str(len(e.data.task.classes) or "none, but real targets")
    yield "steps", ", then ".join(steps)
    yield "epochs", f"{passes}, at most algorithm.epochs={epochs}" if epochs else passes
    yield "engine", e.engine


def _time(forecast: Forecast) -> Rows:
    for number, part in enumerate(forecast.parts, 1):
        name = f"time of Part {number}" if len(forecast.parts) > 1 else "time of steps"
        yield name, f"{_duration(part.seconds)}, from {part.tried} of {part.steps} {part.unit}"
    if forecast.validation:
        yield "time of records", _duration(forecast.validation)
    yield "training time", _duration(forecast.validation + sum(part.seconds for part in forecast.parts))
    yield "evaluation", _duration(forecast.evaluation)
    yield "support vectors", f"{forecast.parts[-1].support_vectors:.0f}"
    yield "peak memory", f"{forecast.memory / 2**20:,.0f} MiB"


def _duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _files(e: Experiment, forecast: Forecast, folder: str) -> Rows:
    model, checkpoint = (f"{max(1, size / 2**10):,.0f} KiB" for size in (forecast.model, forecast.checkpoint))
    yield "run directory", folder
    yield "final.safetensors", model
    if e.settings.validation.every:
        yield "best.safetensors", model
    if (how := e.settings.checkpoint).every:
        if how.named:
            yield "step-*.safetensors", f"{checkpoint} each"
        else:
            yield "last.safetensors", checkpoint + (", until the run has finished" if not how.kept else "")
            yield "previous.safetensors", f"{checkpoint}, until the run has finished"
    yield "other files", "less than 1 MiB"
