"""Tables of public repositories: OpenML and the Penn Machine Learning Benchmarks."""

from __future__ import annotations

import logging
import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.base import Table, TableSource, expect_column
from nsvm_cli.datasets.csv import CSV, layout_of, pandas_errors, read_cells
from nsvm_cli.datasets.download import fetch, reason
from nsvm_cli.datasets.layout import Dialect
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.output import say
from nsvm_cli.storage.files import cache_folder, locked
from nsvm_cli.tasks import TASKS

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, config=STRICT)
class OpenML(TableSource):
    """A data set of OpenML by its number, downloaded once into the cache of the openml package.

    The default ``label`` is OpenML's target. With ``path``, a local CSV file is read instead, with the label
    in its last column.
    """

    id: PositiveInt
    path: str | None = None
    label: str | None = None

    def load(self, rng: np.random.Generator) -> Table:
        if self.path is None:
            source, remarks = f"OpenML {self.id}", list[str]()
            cells, target = _from_openml(self.id)
        else:
            source = self.path
            cells, remarks = read_cells(source, "dataset.path", Dialect(), text=self.text)
            target = cells.columns[-1]
        label = self.label or target
        expect_column("dataset.label", source, label, cells)
        return Table(cells, (source,), label, self, origins=(f"OpenML {self.id}",), remarks=tuple(remarks))


def _from_openml(number: int) -> tuple[pd.DataFrame, str | None]:
    """Return the table of an OpenML data set, and the name of its target."""
    logging.disable(logging.WARNING)  # errors are reported below in one line
    os.environ["OPENML_SKIP_PARQUET"] = "true"  # openml downloads Parquet by http, unchecked
    try:
        import openml  # slow to import, and needed only here

        cache = Path(openml.config.get_cache_directory())
        with locked(cache, wait=True):
            if not (cache / "datasets" / str(number)).exists():
                say(f"Downloading OpenML data set {number} from {openml.config.server}")
            data = openml.datasets.get_dataset(number, download_features_meta_data=True)
            cells: Any = data.get_data()[0]  # a data frame
    except Exception as error:
        raise InputError(
            f"dataset.id={number} cannot be downloaded from OpenML ({reason(error)}); connect to the "
            "network, set dataset.path=FILE.csv to read a local copy, or use dataset=ringnorm or "
            "dataset=digits, which require no download"
        ) from None
    finally:
        logging.disable(logging.NOTSET)
    return cells.astype(dict.fromkeys(cells.select_dtypes("category"), object)), data.default_target_attribute


REVISION = "7c1f4bdc00136dc2e55c87fa6b8ba6e8af6d1a68"
"""The commit of PMLB, of February 2025, from which tables are downloaded."""

ADDRESS = f"https://media.githubusercontent.com/media/EpistasisLab/pmlb/{REVISION}/datasets"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PMLB(TableSource):
    """A table of the Penn Machine Learning Benchmarks (Olson et al., 2017; Romano et al., 2022).

    Without ``root``, the table is downloaded once into the user's cache folder. The folder ``root`` holds
    ``TABLE/TABLE.tsv.gz`` or, as in PMLB's first releases, ``classification/TABLE.csv.gz`` and
    ``regression/TABLE.tsv.gz``.
    """

    table: Annotated[str, Field(pattern=r"^[_A-Za-z0-9][_A-Za-z0-9.+-]*$", max_length=128)]
    root: str | None = None

    def load(self, rng: np.random.Generator) -> Table:
        root = self.root
        file = self._downloaded() if root is None else self._local(Path(os.path.expanduser(root)))
        with pandas_errors(str(file), file):
            # the first releases of PMLB use "class"
            label = "class" if "class" in layout_of(file, Dialect()).names else "target"
        settings = {field.name: getattr(self, field.name) for field in fields(TableSource)}
        return CSV(path=str(file), label=label, **settings).load(rng)

    def _local(self, root: Path) -> Path:
        files = {file.name.split(".")[0]: file for kind in TASKS for file in root.glob(f"{kind}/*.?sv.gz")}
        files |= {file.parent.name: file for file in root.glob("*/*.tsv.gz") if file.parent.name not in TASKS}
        if self.table not in files:
            raise InputError(
                f"dataset.table: {self.root} has no table {self.table!r}; {did_you_mean(self.table, files)}"
            )
        return files[self.table]

    def _downloaded(self) -> Path:
        """Return the downloaded file of the table. Its URL contains a commit, so no checksum is needed."""
        try:
            return fetch(f"{ADDRESS}/{self.table}/{self.table}.tsv.gz", None, cache_folder() / "PMLB")
        except (OSError, ValueError) as error:
            raise InputError(
                f"dataset.table={self.table} cannot be downloaded ({error}); check the name at "
                "https://epistasislab.github.io/pmlb, or set dataset.root=FOLDER to read local files"
            ) from None
