"""``nsvm train --estimate``: the time of a run, before it is started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nsvm_cli.compose.composition import compose_settings, search_folder
from nsvm_cli.config.settings import parse_settings
from nsvm_cli.output import answer, flash, say
from nsvm_cli.plugins import load_plugins

if TYPE_CHECKING:
    from nsvm_cli.runs.estimate import Part
    from nsvm_cli.runs.experiment import Experiment


def estimate(words: Sequence[str], config_dir: str | None) -> None:
    """Train for two seconds, and print an estimate for the whole run. Writes no file."""
    settings = parse_settings(compose_settings([*search_folder(config_dir), *words]))
    load_plugins(settings.plugins)
    flash("loading PyTorch and the data")
    from nsvm_cli.runs.estimate import estimate as estimate_run
    from nsvm_cli.runs.experiment import prepare
    from nsvm_cli.terminal.console import show_rows

    experiment = prepare(settings)
    parts = estimate_run(experiment, say)
    show_rows([*_rows(experiment, parts)])
    if any(part.tried < part.steps for part in parts):
        answer("Beyond the steps that were tried, support vectors and seconds follow from a power law.")


def _rows(e: Experiment, parts: Sequence[Part]) -> Iterator[tuple[str, str, str]]:
    """Yield what is estimated, the estimate, and what it is of."""
    sizes = {name: size for name, size in e.data.splits.sizes.items() if size and name != "all"}
    yield "samples", str(sum(sizes.values())), ", ".join(f"{size} {name}" for name, size in sizes.items())
    yield "epochs", f"{e.trainer.last_theta_step * e.trainer.k / sizes['train']:.3g}", ""
    yield "engine", e.engine, ""
    for number, part in enumerate(parts, 1):
        name = f"time of Part {number}" if len(parts) > 1 else "time of steps"
        yield name, _duration(part.seconds), f"from {part.tried} of {part.steps} {part.unit}"
    yield "training time", _duration(sum(part.seconds for part in parts)), ""
    yield "support vectors", f"{parts[-1].support_vectors:.0f}", ""


def _duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds / 60:.0f} min"
