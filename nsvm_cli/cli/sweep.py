"""The jobs of a sweep, as their status files report them, and the closing table."""

from __future__ import annotations

import contextlib
import math
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from nsvm_cli.errors import InputError, Interrupted, RunError
from nsvm_cli.output import answer


class SweepDirectory(Callback):
    """Hydra's callback that tells the process that starts a sweep where its jobs are, and how many."""

    path: ClassVar[Path | None] = None
    jobs: ClassVar[int | None] = None

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Remember the directory, and the number of jobs if it is known."""
        SweepDirectory.path = Path(config.hydra.sweep.dir)
        SweepDirectory.jobs = _count_jobs(config.hydra)


def _count_jobs(hydra: DictConfig) -> int | None:
    """Return the number of combinations of the values in overrides; None if it is up to a sweeper."""
    if not hydra.sweeper._target_.endswith(".BasicSweeper"):
        return None
    params = [f"{key}={values}" for key, values in (hydra.sweeper.params or {}).items()]
    try:
        overrides = OverridesParser.create().parse_overrides([*params, *hydra.overrides.task])
        swept = (override.sweep_string_iterator() for override in overrides if override.is_discrete_sweep())
        return math.prod(sum(1 for _ in values) for values in swept)
    except (HydraException, ValueError):  # left to Hydra: a mistake, or glob(*)
        return None


@dataclass(frozen=True)
class Outcome:
    """What became of one job; ``status`` is that of a run directory."""

    job: int
    overrides: list[str]
    status: str
    message: str
    exit_code: int | None


@contextlib.contextmanager
def closing_table(sweep: str) -> Iterator[None]:
    """Show what became of the jobs once the block ends, if it has started a sweep.

    Raises:
        InputError, RunError: a job failed.
        Interrupted: a signal ended the sweep.
    """
    SweepDirectory.path = SweepDirectory.jobs = None
    try:
        yield
    except (InputError, RunError):
        _report(sweep)
        raise
    except KeyboardInterrupt as error:
        if not _report(sweep, interrupted=True):
            raise
        signum = error.signum if isinstance(error, Interrupted) else signal.SIGINT
        raise Interrupted(signum, "interrupted: the same command resumes the sweep") from None
    except Exception as error:  # the launcher's own, such as a process of it that was killed
        if not any(outcome.status == "failed" for outcome in _report(sweep)):
            raise
        raise RunError(f"the sweep ended early: {next(iter(str(error).splitlines()), '')}") from None
    if failed := [outcome for outcome in _report(sweep) if outcome.status == "failed"]:
        raise _failure(failed)


def _failure(failed: Sequence[Outcome]) -> InputError | RunError:
    first, more = failed[0], len(failed) - 1
    line = f"job {first.job} ({' '.join(first.overrides)}): {first.message}"
    line += f"; {more} more of the sweep's jobs failed" if more else ""
    return InputError(line) if all(outcome.exit_code == 2 for outcome in failed) else RunError(line)


def _report(sweep: str, interrupted: bool = False) -> list[Outcome]:
    if SweepDirectory.path is None:
        return []
    found = outcomes(SweepDirectory.path, sweep, interrupted)
    if found:
        _show(SweepDirectory.path, found)
    return found


def outcomes(directory: Path, sweep: str, interrupted: bool = False) -> list[Outcome]:
    """Return what became of the jobs of a sweep, in their order.

    Args:
        directory: the directory of the sweep.
        sweep: the name in the statuses of its jobs; other sweeps may share the directory.
        interrupted: whether the sweep was interrupted: its running jobs had no time to report it.
    """
    from nsvm_cli.storage.run_directory import STATUS, read_status

    statuses = ((file.parent, read_status(file.parent) or {}) for file in directory.rglob(STATUS))
    found = [_outcome(job, status, interrupted) for job, status in statuses if status.get("sweep") == sweep]
    return sorted(found, key=lambda outcome: outcome.job)


def _outcome(directory: Path, about: dict[str, Any], interrupted: bool) -> Outcome:
    from nsvm_cli.storage.run_directory import KILLED, outcome_of

    known: dict[str, Any] = {field.name: about.get(field.name) for field in fields(Outcome)}
    status, message = outcome_of(directory, about)
    if message != KILLED:
        return Outcome(**known | {"status": status, "message": message})
    if interrupted:
        return Outcome(**known | {"status": "interrupted"})
    return Outcome(**known | {"status": "failed", "message": message, "exit_code": 1})


def _show(directory: Path, found: Sequence[Outcome]) -> None:
    from rich.table import Table

    from nsvm_cli.report.console import Console

    count = Counter(outcome.status for outcome in found)
    shown = [f"{count[status]} {status}" for status in ("finished", "failed", "interrupted")]
    shown += [f"{count['running']} running"] if count["running"] else []
    answer(f"{directory}: {', '.join(shown)}")
    table = Table()
    for column in ("job", "overrides", "", "message"):
        table.add_column(column, overflow="fold")
    common = set.intersection(*(set(outcome.overrides) for outcome in found))
    for o in found:
        if o.status != "finished":
            overrides = [word for word in o.overrides if word not in common] or o.overrides
            table.add_row(str(o.job), " ".join(overrides), o.status, o.message)
    if table.row_count:
        Console().print(table)
