"""Data sets of OpenML, from its server or from local copies."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.base import Table, TableSource, expect_column
from nsvm_cli.datasets.csv import Dialect, read_cells
from nsvm_cli.datasets.download import reason
from nsvm_cli.datasets.encoding import is_number
from nsvm_cli.errors import InputError
from nsvm_cli.output import say
from nsvm_cli.storage.files import locked

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, config=STRICT)
class OpenML(TableSource):
    """A data set of OpenML by its number, which the openml package downloads once into its cache.

    The label is ``label``, or the column that OpenML names as the target. ``path`` is a copy to read instead:
    a CSV file with the label in its last column, with or without a header.
    """

    id: PositiveInt
    path: str | None = None
    label: str | None = None

    def load(self, rng: np.random.Generator, text: Collection[str] = ()) -> Table:
        source = f"OpenML {self.id}" if self.path is None else self.path
        if self.path is None:
            cells, target = _from_openml(self.id)
        else:
            cells = read_cells(self.path, "dataset.path", Dialect(), text=text)
            if any(map(is_number, map(str, cells))):
                names = [f"V{n}" for n in range(1, cells.shape[1] + 1)]
                cells = read_cells(self.path, "dataset.path", Dialect(), None, text, names)
            target = cells.columns[-1]
        label = self.label or target
        expect_column("dataset.label", source, label, cells)
        return Table(cells, (source,), label, self, origins=(f"OpenML {self.id}",))


def _from_openml(number: int) -> tuple[pd.DataFrame, str | None]:
    """Return the table of a data set, and the name of its target."""
    logging.disable(logging.WARNING)  # errors are reported below, in one line
    os.environ["OPENML_SKIP_PARQUET"] = "true"  # openml gets parquet over plain http, without a checksum
    try:
        import openml  # slow to import, and needed only here

        cache = Path(openml.config.get_cache_directory())
        with locked(cache, wait=True):
            if not (cache / "datasets" / str(number)).exists():
                say(f"Downloading OpenML {number} from {openml.config.server}")
            data = openml.datasets.get_dataset(number, download_features_meta_data=True)
            cells: Any = data.get_data()[0]  # a data frame
    except Exception as error:
        raise InputError(
            f"dataset.id={number}: OpenML {number} cannot be obtained ({reason(error)}): connect to the "
            "network, name a local copy with dataset.path=FILE.csv, or use dataset=ringnorm (generated) or "
            "dataset=digits (comes with scikit-learn)"
        ) from None
    finally:
        logging.disable(logging.NOTSET)
    return cells.astype(dict.fromkeys(cells.select_dtypes("category"), object)), data.default_target_attribute
