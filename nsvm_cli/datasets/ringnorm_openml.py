"""The published draw of Ringnorm: OpenML data set 1496, or a local copy of it."""

from __future__ import annotations

import logging
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic.dataclasses import dataclass

from nsvm_cli.datasets.base import Samples, Source
from nsvm_cli.datasets.tables import read_csv, to_samples
from nsvm_cli.errors import InputError
from nsvm_cli.registry import STRICT

if TYPE_CHECKING:
    import pandas as pd

OPENML_ID = 1496
SHAPE = (7400, 21)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class RingnormOpenML(Source):
    """7400 samples of 20 features and their class.

    Read from ``path``, a CSV file with the class in its last column, with or without a header; else
    from OpenML through the openml package and its cache.
    """

    path: str | None = None

    def load(self, rng: np.random.Generator) -> Samples:
        table, source = (
            (_from_openml(), f"OpenML {OPENML_ID}")
            if self.path is None
            else (_from_csv(self.path), self.path)
        )
        if table.shape != SHAPE:
            raise InputError(
                f"{source}: expected {SHAPE[0]} rows of 20 features and a class, got {table.shape[0]} rows "
                f"of {table.shape[1]} columns; another table goes with dataset=csv"
            )
        return to_samples(table.iloc[:, :-1], table.iloc[:, -1], source)


def _from_csv(path: str) -> pd.DataFrame:
    import pandas as pd  # slow to import, and most runs read no table

    table = read_csv(path, header=None)
    has_header = pd.to_numeric(table.iloc[0], errors="coerce").isna().all()
    return read_csv(path) if has_header else table


def _from_openml() -> pd.DataFrame:
    logging.disable(logging.WARNING)  # what goes wrong is said below, in one line
    try:
        import openml  # slow to import, and wanted only here

        data = openml.datasets.get_dataset(
            OPENML_ID, download_data=True, download_qualities=False, download_features_meta_data=True
        )
        table: Any = data.get_data()[0]
        label = data.default_target_attribute
        features: pd.DataFrame = table.drop(columns=label)
        return features.assign(label=table[label])
    except Exception as error:  # whatever openml, its HTTP client or its cache raise
        reason = textwrap.shorten(str(error) or type(error).__name__, 150, placeholder=" ...")
        raise InputError(
            f"dataset=ringnorm_openml: OpenML {OPENML_ID} cannot be had ({reason}): connect to the "
            "network, name a local copy with dataset.path=FILE.csv, or take dataset=ringnorm (generated) or "
            "dataset=digits (comes with scikit-learn), which need no network"
        ) from None
    finally:
        logging.disable(logging.NOTSET)
