"""The entries of a reproduction, apart from what runs them, which takes seconds to import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nsvm_cli.config.settings import Settings


@dataclass(frozen=True)
class Entry:
    """The settings of a neural SVM, and what it is compared with.

    Entries with the same name of the data set share the methods that need no network, ``baselines``: names in
    ``BASELINES``. ``network`` are the settings of the same network without an SVM, None if there is none. It
    runs with the steps in its settings, since it was tuned for that number of steps.
    """

    name: str
    dataset: str
    nsvm: Settings
    network: Settings | None
    baselines: Sequence[str]
