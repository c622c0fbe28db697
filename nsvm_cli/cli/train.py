"""``nsvm train``: compose a configuration, train, write a run directory."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from nsvm_cli.cli.hydra_app import plain_values, run_app
from nsvm_cli.cli.plugins import load_plugins
from nsvm_cli.errors import InputError, RunError

if TYPE_CHECKING:
    from nsvm_cli.settings import Settings

STARTED = time.time()


def train(arguments: list[str]) -> None:
    """Trains one model, or with ``-m`` one for each combination of overrides."""
    run_app(_job, arguments)


def _job(config: DictConfig) -> None:
    job = HydraConfig.get()
    directory = Path(job.runtime.output_dir)
    name = f"job {job.job.num} ({' '.join(job.overrides.task)}): " if job.mode == RunMode.MULTIRUN else ""
    try:
        _train(config, directory, sweep=job.mode == RunMode.MULTIRUN)
    except InputError as error:
        raise InputError(f"{name}{error}") from None
    except (RunError, OSError) as error:
        raise RunError(f"{name}{error}") from None
    finally:
        with contextlib.suppress(OSError):  # it is not empty once something was trained
            if directory.stat().st_mtime >= STARTED:  # Hydra's, rather than the user's own
                directory.rmdir()


def _train(config: DictConfig, directory: Path, sweep: bool) -> None:
    settings = _settings(plain_values(config))
    # torch takes seconds to import: not before the configuration is known to compose
    from nsvm_cli.experiment import assist, conduct, prepare
    from nsvm_cli.processes import launched
    from nsvm_cli.report import Progress, show_result
    from nsvm_cli.run_directory import RunDirectory
    from nsvm_cli.settings import plain

    if sweep and launched() > 1:
        raise InputError("-m takes one process: expected one run under torchrun, or a sweep without it")
    experiment = prepare(settings)
    if experiment.problem.processes.rank > 0:
        assist(experiment)
        return
    title = f"{settings.algorithm['name']} on {settings.dataset['name']}"
    with (
        RunDirectory(directory, plain(settings)) as run,
        Progress(title, experiment.trainer.total) as progress,
    ):
        result = conduct(experiment, run, progress.show)
    show_result(result, directory)
    if settings.curves:
        from nsvm_cli.curves import draw_curves  # takes a while to import: what is worth knowing comes first

        draw_curves(directory)


def _settings(values: dict[str, Any]) -> Settings:
    """The composed values, checked."""
    from nsvm_cli.settings import parse_settings

    settings = parse_settings(values)
    load_plugins(settings.plugins)
    return settings
