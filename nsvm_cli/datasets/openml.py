"""Data sets of OpenML, from its server or from local copies."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.base import Source, Table
from nsvm_cli.datasets.csv import Names
from nsvm_cli.datasets.download import reason
from nsvm_cli.datasets.encoding import as_numbers, code_labels
from nsvm_cli.datasets.tables import CSVFile
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.output import say
from nsvm_cli.storage.files import locked

if TYPE_CHECKING:
    import pandas as pd

PUBLISHED = {1496: "f87d98057c63f0c4dc65b9b6bc56836ddd4378241a1fc33e0451abc30f621a9c"}
"""``sha256_of_rows`` of the data sets that the paper uses, by their numbers: Ringnorm's."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class OpenML(Source):
    """A data set of OpenML by its number, which the openml package downloads once into its cache.

    The label is ``label``, or the column that OpenML names as the target. The columns in ``drop`` are no
    features. ``path`` is a copy to read instead: a CSV file with the label in its last column, with or
    without a header.
    """

    id: PositiveInt
    path: str | None = None
    label: str | None = None
    drop: Names = ()

    def load(self, rng: np.random.Generator) -> Table:
        source = f"OpenML {self.id}" if self.path is None else self.path
        if self.path is None:
            cells, target = _from_openml(self.id)
        else:
            cells = CSVFile(self.path, headless=True).read()
            target = str(cells.columns[-1])
        label = self.label or target
        if label not in cells:
            known = did_you_mean(str(label), map(str, cells))
            raise InputError(f"dataset.label: {source} has no column {label!r}; {known}")
        features = cells.drop(columns=[label, *self.drop], errors="ignore")
        unknown = tuple(name for name in self.drop if name not in cells)
        return Table(features, cells[label], (source,), unknown=unknown, origins=(f"OpenML {self.id}",))


def _from_openml(number: int) -> tuple[pd.DataFrame, str | None]:
    """Return the table of a data set, and the name of its target.

    Raises:
        InputError: anything that openml, its HTTP client or its cache raises.
    """
    logging.disable(logging.WARNING)  # errors are reported below, in one line
    os.environ["OPENML_SKIP_PARQUET"] = "true"  # openml gets parquet over plain http, without a checksum
    try:
        import openml  # slow to import, and needed only here

        cache = Path(openml.config.get_cache_directory())
        with locked(cache, wait=True):
            if (cache / "datasets" / str(number)).exists():
                try:
                    return _get(openml, number)
                except OSError:
                    raise  # such as a full disk: no reason to discard the cache
                except Exception:
                    pass  # a killed download leaves a partial file: openml writes in place
            say(f"Downloading OpenML {number} from {openml.config.server}")
            return _get(openml, number, force_refresh_cache=True)
    except Exception as error:
        raise InputError(
            f"dataset.id={number}: OpenML {number} cannot be obtained ({reason(error)}): {_ways(number)}"
        ) from None
    finally:
        logging.disable(logging.NOTSET)


def _get(openml: Any, number: int, **options: bool) -> tuple[pd.DataFrame, str | None]:
    """Return table and target. openml checks the MD5 sum of downloads, but not of its cache."""
    data = openml.datasets.get_dataset(number, download_features_meta_data=True, **options)
    for address in (openml.config.server, data.url):
        if not address.startswith("https://"):
            raise ValueError(f"{address} is not https")
    cells, target = data.get_data()[0], data.default_target_attribute
    if hashlib.md5(Path(data.data_file).read_bytes(), usedforsecurity=False).hexdigest() != data.md5_checksum:
        raise ValueError(f"{data.data_file} is damaged")
    cells = cells.astype(dict.fromkeys(cells.select_dtypes("category"), object))
    if number in PUBLISHED:
        table = Table(cells.drop(columns=target), cells[target], (f"OpenML {number}",))
        if (got := sha256_of_rows(table)) != PUBLISHED[number]:
            raise ValueError(f"its rows are not the published ones, SHA-256 {got}")
    return cells, target


def _ways(number: int) -> str:
    """Return advice on how to obtain samples, for the end of a message."""
    generated = "dataset=ringnorm (generated) or " if number in PUBLISHED else ""
    return (
        f"connect to the network, name a local copy with dataset.path=FILE.csv, or use {generated}"
        "dataset=digits (comes with scikit-learn)"
    )


def sha256_of_rows(table: Table) -> str:
    """Return the SHA-256 of the sorted rows (x, y) as little-endian float64.

    It does not depend on the order in which a server or a file format holds the rows.
    """
    rows = np.column_stack([as_numbers(table), code_labels(table, "classification").y]).astype("<f8")
    return hashlib.sha256(rows[np.lexsort(rows.T[::-1])].tobytes()).hexdigest()
