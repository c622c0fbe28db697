"""CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import AfterValidator, BeforeValidator
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT, shown
from nsvm_cli.datasets.base import Source, Table
from nsvm_cli.datasets.tables import CSVFile, to_table
from nsvm_cli.errors import InputError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd


def parse_separator(typed: str) -> str:
    """Return the separator of the cells of a table.

    Raises:
        InputError: it cannot be one.
    """
    separator = "\t" if typed == r"\t" else typed  # how one types a tab in a shell
    if len(separator) != 1 or not separator.isascii() or separator in '"\r\n':
        expected = r"expected one ASCII character as separator, such as ; or \t, and no quote"
        raise InputError(f"{expected}, got {shown(typed)}")
    return separator


Separator = Annotated[str, AfterValidator(parse_separator)]
Names = Annotated[tuple[str, ...], BeforeValidator(lambda names: () if names is None else names)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CSV(Source):
    """A CSV file with a header: one column of labels, all others features.

    Labels are numbers or text, the names of the classes, which are sorted in ascending order; or real
    targets. Features are numbers or text, and may be missing; the columns in ``drop`` are left out. The rows
    of ``test_path``, if it is given, are the test set.
    """

    path: str
    label: str = "label"
    separator: Separator = ","
    drop: Names = ()
    test_path: str | None = None

    def load(self, rng: np.random.Generator) -> Table:
        files = [CSVFile(self.path, "dataset.path", self.separator)]
        if self.test_path is not None:
            files.append(CSVFile(self.test_path, "dataset.test_path", self.separator))
        tables = [self._read(file) for file in files]
        _expect_same_columns(files, tables, self.drop)
        return to_table(files, tables, self.label, self.drop)

    def _read(self, file: CSVFile) -> pd.DataFrame:
        table = file.read(labels=[self.label])
        if self.label not in table.columns:
            other = separator_in(str(table.columns[0])) if len(table.columns) == 1 else None
            hint = f"; is \"dataset.separator='{other}'\" meant?" if other else ""
            raise InputError(
                f"dataset.label: {file.path} has no column {self.label!r}; "
                f"{did_you_mean(self.label, map(str, table.columns))}{hint}"
            )
        return table


def separator_in(header: str) -> str | None:
    """Return the likely separator of the names in a header, as one types it."""
    return next((typed for typed in (";", r"\t", "|", ",") if parse_separator(typed) in header), None)


def _expect_same_columns(files: Sequence[CSVFile], tables: list[pd.DataFrame], drop: Names) -> None:
    different = tables[0].columns.symmetric_difference(tables[-1].columns)
    if differing := [name for name in different if name not in drop]:
        raise InputError(
            f"{files[-1].what}: expected the columns of {files[0].path}, but only one of the two has "
            f"{', '.join(differing)}; leave out what is no feature with dataset.drop=[...]"
        )
