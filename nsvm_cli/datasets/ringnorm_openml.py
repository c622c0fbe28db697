"""The published draw of Ringnorm: OpenML data set 1496, or a local copy of it."""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.base import Samples, Source, Table
from nsvm_cli.datasets.download import https_only, reason
from nsvm_cli.datasets.encoding import as_numbers, code_labels
from nsvm_cli.datasets.tables import read_csv
from nsvm_cli.errors import InputError
from nsvm_cli.output import say
from nsvm_cli.storage.files import locked

if TYPE_CHECKING:
    import pandas as pd

OPENML_ID = 1496
SHAPE = (7400, 21)
SORTED_ROWS = "f87d98057c63f0c4dc65b9b6bc56836ddd4378241a1fc33e0451abc30f621a9c"
"""``sha256_of_rows`` of OpenML's table, derived from the published draw as its test shows."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class RingnormOpenML(Source):
    """The published draw of Ringnorm: 7400 samples of 20 features and a class.

    It is read from ``path``, a CSV file with the class in its last column, with or without a header. Without
    ``path`` the openml package downloads it into its cache, and it is verified.
    """

    path: str | None = None

    def load(self, rng: np.random.Generator) -> Samples:
        return _from_openml() if self.path is None else _to_samples(_from_csv(self.path), self.path)


def _to_samples(table: pd.DataFrame, source: str) -> Samples:
    if table.shape != SHAPE:
        raise InputError(
            f"{source}: expected {SHAPE[0]} rows of 20 features and a class, got {table.shape[0]} rows "
            f"of {table.shape[1]} columns; use dataset=csv for another table"
        )
    rows = Table(table.iloc[:, :-1], table.iloc[:, -1], (source,))
    return replace(code_labels(rows, "classification"), x=as_numbers(rows))


def _from_csv(path: str) -> pd.DataFrame:
    import pandas as pd  # slow to import, and most runs read no table

    table = read_csv(path, header=False)
    has_header = pd.to_numeric(table.iloc[0], errors="coerce").isna().all()
    return read_csv(path) if has_header else table


def _from_openml() -> Samples:
    logging.disable(logging.WARNING)  # errors are reported below, in one line
    os.environ["OPENML_SKIP_PARQUET"] = "true"  # openml gets parquet over plain http, without a checksum
    try:
        import openml  # slow to import, and needed only here

        cache = Path(openml.config.get_cache_directory())
        with locked(cache, wait=True), https_only():
            cached = (cache / "datasets" / str(OPENML_ID)).exists()
            try:
                if cached:
                    return _get(openml)
            except OSError:
                raise  # such as a full disk: no reason to discard the cache
            except Exception:
                pass  # a killed download leaves a partial file: openml writes in place
            say(f"Downloading OpenML {OPENML_ID} from {openml.config.server}")
            return _get(openml, force_refresh_cache=True)
    except Exception as error:  # anything that openml, its HTTP client or its cache raises
        raise InputError(
            f"dataset=ringnorm_openml: OpenML {OPENML_ID} cannot be obtained ({reason(error)}): connect to "
            "the network, name a local copy with dataset.path=FILE.csv, or use dataset=ringnorm (generated) "
            "or dataset=digits (comes with scikit-learn), which need no network"
        ) from None
    finally:
        logging.disable(logging.NOTSET)


def _get(openml: Any, **options: bool) -> Samples:
    """Return the verified samples. openml checks the MD5 sum of downloads, but not of its cache."""
    data = openml.datasets.get_dataset(
        OPENML_ID,
        download_data=True,
        download_qualities=False,
        download_features_meta_data=True,
        **options,
    )
    table: Any = data.get_data()[0]
    label = data.default_target_attribute
    features: pd.DataFrame = table.drop(columns=label)
    samples = _to_samples(features.assign(label=table[label]), f"OpenML {OPENML_ID}")
    if (got := sha256_of_rows(samples)) != SORTED_ROWS:
        raise ValueError(f"its rows are not the published ones, SHA-256 {got}")
    return samples


def sha256_of_rows(samples: Samples) -> str:
    """Return the SHA-256 of the sorted rows (x, y) as little-endian float64.

    It does not depend on the order in which a server or a file format holds the rows.
    """
    rows = np.column_stack([samples.x, samples.y]).astype("<f8")
    return hashlib.sha256(rows[np.lexsort(rows.T[::-1])].tobytes()).hexdigest()
