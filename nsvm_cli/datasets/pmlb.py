"""The Penn Machine Learning Benchmarks: tables of classes and of real targets."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.base import Table, TableSource
from nsvm_cli.datasets.csv import CSV, Dialect, header_of, reading
from nsvm_cli.datasets.download import cache_folder, fetch
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.tasks import TASKS

REVISION = "7c1f4bdc00136dc2e55c87fa6b8ba6e8af6d1a68"
"""The commit of PMLB whose tables are downloaded, of February 2025."""

ADDRESS = f"https://media.githubusercontent.com/media/EpistasisLab/pmlb/{REVISION}/datasets"
"""The address of the tables."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PMLB(TableSource):
    """A table of the Penn Machine Learning Benchmarks (Olson et al., 2017; Romano et al., 2022).

    ``root`` has ``TABLE/TABLE.tsv.gz``, like ``datasets`` in PMLB's repository, or, as in its first releases,
    ``classification/TABLE.csv.gz`` and ``regression/TABLE.tsv.gz``. Without ``root`` a table is downloaded
    once into the user's cache folder, from one commit of the repository.
    """

    table: Annotated[str, Field(pattern=r"^[_A-Za-z0-9][_A-Za-z0-9.+-]*$", max_length=128)]
    root: str | None = None

    def load(self, rng: np.random.Generator, text: Collection[str] = ()) -> Table:
        file = self._downloaded() if self.root is None else self._found(Path(os.path.expanduser(self.root)))
        dialect = Dialect(separator="\t")
        with reading(str(file), dialect):
            label = "class" if "class" in header_of(file, dialect) else "target"  # as in the first releases
        settings = {field.name: getattr(self, field.name) for field in fields(TableSource)}
        return CSV(path=str(file), label=label, separator="\t", **settings).load(rng, text)

    def _found(self, root: Path) -> Path:
        files = {file.name.split(".")[0]: file for kind in TASKS for file in root.glob(f"{kind}/*.?sv.gz")}
        files |= {file.parent.name: file for file in root.glob("*/*.tsv.gz") if file.parent.name not in TASKS}
        if self.table not in files:
            raise InputError(
                f"dataset.table: {self.root} has no table {self.table!r}; {did_you_mean(self.table, files)}"
            )
        return files[self.table]

    def _downloaded(self) -> Path:
        """Return the file of the table in the cache; the commit in its address stands for a checksum."""
        try:
            return fetch(f"{ADDRESS}/{self.table}/{self.table}.tsv.gz", None, cache_folder() / "PMLB")
        except (OSError, ValueError) as error:
            raise InputError(
                f"dataset.table: {self.table} cannot be downloaded ({error}): see its name on "
                "https://epistasislab.github.io/pmlb, or name a folder with dataset.root=FOLDER"
            ) from None
