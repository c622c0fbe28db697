"""``nsvm tune``: choose hyperparameters on validation data."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nsvm_cli.cli.hydra_app import compose_settings, search_folder
from nsvm_cli.cli.plugins import load_plugins
from nsvm_cli.config.settings import parse_settings

if TYPE_CHECKING:
    from nsvm_cli.studies.tune import Candidate, Search

HELP = """\
usage: nsvm tune [OVERRIDE ...]

Search learning rate, momentum, weight decay, dropout and schedule by the paper's protocol: every
candidate is trained on several seeds and judged on validation data; the test set is never read.
Interrupted, the same command goes on where it was.

overrides are those of nsvm train, and:
  tune.trials=100      candidates
  tune.seeds=8         seeds of each, from tune.first_seed=1000 on; a hopeless candidate gets fewer
  tune.finalists=5     the best candidates, judged once more ...
  tune.final_seeds=20  ... on so many fresh seeds; the best of them is the answer
  tune.seconds=S       a run that takes longer has failed; by default there is no limit
  tune.validation=N    validation samples per class (the paper: 200 for Ringnorm, 500 for MNIST)
  tune.directory=PATH  where study.db, the search's memory, and finalists.csv are
  tune.jobs=N          runs at a time; by default one a core
  tune.space.KEY=[...] values to choose from;  tune.space.KEY.low= and .high= for a range
  +tune.space.KEY=     one more key of the settings; ~tune.space.KEY leaves one out

options:
  --config-dir FOLDER  more configurations, your own
  -h, --help           this text
"""


def tune(arguments: list[str]) -> None:
    """Searches, and prints the finalists."""
    if "-h" in arguments or "--help" in arguments:
        print(HELP, end="")
        return
    # one's own configurations come by --config-dir, as for nsvm train
    folders = [search_folder(word) for flag, word in pairwise(arguments) if flag == "--config-dir"]
    words = [w for before, w in pairwise(["", *arguments]) if "--config-dir" not in (before, w)]
    values = compose_settings(["+tune=default", "dataset.validation=${tune.validation}", *folders, *words])
    section = values.pop("tune")
    del section["validation"]  # has become dataset.validation
    plugins = parse_settings(values).plugins
    load_plugins(plugins)
    # torch takes seconds to import: not before the configuration is known to compose
    from nsvm_cli.studies.tune import parse_search
    from nsvm_cli.studies.tune import tune as run

    search = parse_search(section)
    progress = Progress(f"tune {values['algorithm']['name']} on {values['dataset']['name']}", search)
    finalists = run(values, search, functools.partial(load_plugins, plugins), progress.show)
    _show(finalists, Path(search.directory))


class Progress:
    """A line for each candidate that beats those before it, and now and then a count; on stderr."""

    def __init__(self, title: str, search: Search) -> None:
        self.seeds, self.tried, self.best = search.seeds, 0, 0.0
        self.title = f"{title}: {search.trials} candidates on {search.seeds} seeds, in {search.directory}"

    def show(self, candidate: Candidate) -> None:
        """Shows a candidate that has just been tried."""
        if self.tried == 0:  # not before anything has been found wrong with the search
            print(self.title, file=sys.stderr, flush=True)
        self.tried += 1
        if len(candidate.accuracies) == self.seeds and candidate.mean > self.best:
            self.best = candidate.mean
            print(
                f"candidate {candidate.number}: {100 * candidate.mean:.2f} %  {candidate.overrides}",
                file=sys.stderr,
                flush=True,
            )
        elif self.tried % 10 == 0:
            print(f"{self.tried} tried by this command", file=sys.stderr, flush=True)


def _show(finalists: Sequence[Candidate], directory: Path) -> None:
    seeds = len(finalists[0].final)
    table = Table(
        title=f"the best {len(finalists)} on {seeds} fresh seeds",
        title_justify="left",
        show_lines=True,
    )
    table.add_column("")
    table.add_column("validation accuracy", no_wrap=True)
    table.add_column("standard error")
    table.add_column("overrides")
    for c in finalists:
        figures = (f"{100 * value:.2f} %" for value in (c.mean, c.error))
        table.add_row(str(c.number), *figures, escape(c.overrides))
    Console().print(table)
    print(f"Best: {finalists[0].overrides}\nSearch: {directory}")
