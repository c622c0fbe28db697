"""The sweeper of ``nsvm train -m``, installed as ``hydra_plugins/nsvm.py``, where Hydra finds plugins.

Every program that uses Hydra imports this module, so it imports other modules of nsvm only in functions.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


class JobSweeper(Sweeper):
    """Runs one job for each combination of the swept values, and skips jobs that have finished."""

    def __init__(self, max_batch_size: int | None = None, params: Mapping[str, str] | None = None) -> None:
        self.max_batch_size, self.params = max_batch_size, params

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> list[Sequence[JobReturn]]:
        from nsvm_cli.cli.sweep import SweepDirectory, overrides_of

        assert self.config is not None
        assert self.launcher is not None
        assert SweepDirectory.sweep is not None
        values: dict[str, dict[str, None]] = {}
        for override in (overrides := overrides_of(self.config)):
            swept, key = override.is_sweep_override(), override.get_key_element()
            texts = override.sweep_string_iterator() if swept else [override.get_value_element_as_str()]
            values[key] = dict.fromkeys(f"{key}={text}" for text in texts)
        jobs = SweepDirectory.sweep.start(self.config, overrides, [*map(list, product(*values.values()))])
        self.validate_batch_is_legal(jobs)
        (folder := Path(self.config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        size, returned = self.max_batch_size or len(jobs) or 1, []
        for at in range(0, len(jobs), size):
            returned.append(self.launcher.launch(jobs[at : at + size], initial_job_idx=at))
            with contextlib.redirect_stderr(io.StringIO()):  # Hydra prints the job that raised an error
                for job in returned[-1]:
                    job.return_value  # noqa: B018  # raises the error of the job
        return returned
