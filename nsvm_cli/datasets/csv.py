"""CSV files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, BeforeValidator
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.base import Source, Table
from nsvm_cli.datasets.tables import file_sha256, parse_separator, read_csv
from nsvm_cli.errors import InputError

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
        return read_tables(self.path, self.test_path, self.separator, (self.label,), self.drop)


def read_tables(
    path: str,
    test_path: str | None,
    separator: str,
    labels: Sequence[str],
    drop: Sequence[str],
    setting: str = "dataset.path",
) -> Table:
    """Return the table of the rows of a file, followed by those of its test set, if there is one.

    ``labels`` are the names that the column of labels may have.
    """
    import pandas as pd

    def read(text: Collection[str]) -> list[pd.DataFrame]:
        tables = [read_csv(path, setting, separator, labels, text)]
        if test_path is not None:
            text = [*text, *tables[0].select_dtypes(exclude="number")]
            tables.append(read_csv(test_path, "dataset.test_path", separator, labels, text))
        return tables

    tables = read(())
    label = next(name for name in labels if name in tables[0])
    different = tables[0].columns.symmetric_difference(tables[-1].columns).difference([*drop])
    if len(different):
        raise InputError(
            f"dataset.test_path={test_path}: expected the columns of {path}, but only one of the two has "
            f"{', '.join(different)}; leave out what is no feature with dataset.drop=[...]"
        )
    rows = pd.concat(tables, ignore_index=True)[[*tables[0]]]
    files = (path,) if test_path is None else (path, test_path)
    return Table(
        rows,
        files,
        label,
        drop,
        official_test=None if test_path is None else len(tables[0]),
        with_text=lambda text: pd.concat(read(text), ignore_index=True),
        origins=tuple(map(file_sha256, files)),
    )
