"""CSV files with two classes."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.base import Samples, Source
from nsvm_cli.datasets.tables import read_csv, to_samples
from nsvm_cli.errors import InputError, did_you_mean


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CSV(Source):
    """A CSV file with a header: one column of labels, all other columns numeric features.

    Labels may be numbers or text. The two classes, in ascending order, become -1 and +1.
    """

    path: str
    label: str = "label"
    separator: Annotated[str, Field(min_length=1, max_length=1)] = ","

    def load(self, rng: np.random.Generator) -> Samples:
        table = read_csv(self.path, sep=self.separator)
        if self.label not in table.columns:
            raise InputError(
                f"dataset.label: {self.path} has no column {self.label!r}; "
                f"{did_you_mean(self.label, map(str, table.columns))}"
            )
        return to_samples(table.drop(columns=self.label), table[self.label], self.path)
