"""CSV files as samples and labels."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nsvm_cli.datasets.base import Samples
from nsvm_cli.datasets.table_files import DAMAGED, open_table
from nsvm_cli.errors import InputError, out_of_memory
from nsvm_cli.tasks import BinaryClassification

if TYPE_CHECKING:
    import pandas as pd


def read_csv(path: str, **options: Any) -> pd.DataFrame:
    """Read a CSV file with pandas. Only regular files are opened.

    Raises:
        InputError: there is no such file, it is not a CSV file, or it needs more memory than data may take.
        RunError: memory ran out.
    """
    import pandas as pd  # slow to import, and most runs read no table

    try:
        file = Path(path).expanduser()
        if not file.is_file():
            what = "is not a file" if file.exists() else "does not exist"
            raise InputError(f"dataset.path={path} {what}: expected a CSV file")
        what = f"dataset.path={path}"
        with open_table(file, options.get("sep", ","), what) as content, warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows with more cells than the header
            # low_memory would infer a column's type block by block, and index_col would silently turn the
            # first column into row names.
            table: pd.DataFrame = pd.read_csv(content, low_memory=False, index_col=False, **options)
    except InputError:
        raise
    except (ValueError, OSError, RuntimeError, pd.errors.ParserWarning, *DAMAGED) as error:
        raise out_of_memory(error) or InputError(
            f"dataset.path={path} cannot be read as CSV: {error}"
        ) from None
    return table


def to_samples(features: pd.DataFrame, labels: pd.Series, source: str) -> Samples:
    """Return the samples of a table. The two classes, in ascending order, become -1 and +1.

    Raises:
        InputError: there is no feature, a feature is not a number, a label is missing, or there are not
            exactly two classes.
    """
    import pandas as pd

    if features.shape[1] == 0:
        raise InputError(f"{source}: expected at least one feature beside the label, found none")
    for name, column in features.items():
        numbers = pd.to_numeric(column, errors="coerce")
        if (bad := numbers.isna()).any():
            row = int(np.flatnonzero(bad)[0])
            got = "an empty cell" if pd.isna(column.iloc[row]) else repr(column.iloc[row])
            raise InputError(f"{source}: column {name}, row {row + 1}: expected a number, got {got}")
    if (missing := labels.isna()).any():
        raise InputError(f"{source}: row {int(np.flatnonzero(missing)[0]) + 1} has no label")
    classes = sorted(labels.unique().tolist(), key=lambda label: (isinstance(label, str), label))
    if len(classes) != 2:
        some = ", ".join(str(c) for c in classes[:5]) + (", ..." if len(classes) > 5 else "")
        raise InputError(
            f"{source}: expected labels of exactly 2 classes, found {len(classes)}: {some or 'no rows'}"
        )
    x = features.apply(pd.to_numeric).to_numpy(np.float64)
    y = BinaryClassification.encode(labels.to_numpy(), classes)
    return Samples(x, y, (str(classes[0]), str(classes[1])), source)
