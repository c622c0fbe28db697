"""CSV files as tables."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsvm_cli.datasets.base import Table
from nsvm_cli.datasets.table_files import DAMAGED, open_table
from nsvm_cli.errors import InputError, out_of_memory

if TYPE_CHECKING:
    import pandas as pd


def read_csv(path: str, setting: str = "dataset.path", **options: Any) -> pd.DataFrame:
    """Read a CSV file with pandas, which unpacks it if need be. Only regular files are opened.

    Args:
        path: the file.
        setting: the name of the setting that holds the path, for messages.
        options: further options of pandas.

    Raises:
        InputError: there is no such file, it is not a CSV file, or it needs more memory than data may take.
        RunError: memory ran out.
    """
    import pandas as pd  # slow to import, and most runs read no table

    with reading_csv(f"{setting}={path}"):
        file = Path(path).expanduser()
        if not file.is_file():
            what = "is not a file" if file.exists() else "does not exist"
            advice = f", relative to the folder where the command is run; name it with {setting}=FILE"
            raise InputError(
                f"{setting}={path} {what}: expected a CSV file{'' if file.is_absolute() else advice}"
            )
        separator = options.get("sep", ",")
        with open_table(file, separator, f"{setting}={path}") as content:
            # low_memory would infer a column's type block by block, and index_col would silently turn the
            # first column into row names.
            table: pd.DataFrame = pd.read_csv(content, low_memory=False, index_col=False, **options)
    return table


@contextmanager
def reading_csv(what: str) -> Iterator[None]:
    """Turn errors and warnings of pandas within the context into InputErrors about ``what``."""
    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows with more cells than the header
            yield
    except InputError:
        raise
    except (ValueError, OSError, RuntimeError, pd.errors.ParserWarning, *DAMAGED) as error:
        raise out_of_memory(error) or InputError(f"{what} cannot be read as CSV: {error}") from None


def to_table(
    files: tuple[str, ...],
    features: Sequence[pd.DataFrame],
    labels: Sequence[pd.Series],
    unknown: tuple[str, ...] = (),
) -> Table:
    """Return the table of the rows of a file, or of a file and then of its test set.

    Args:
        files: the names of the files.
        features: the features of each; the first decides the order of the columns.
        labels: the labels of each.
        unknown: see ``Table``.
    """
    import pandas as pd

    cells = pd.concat(features, ignore_index=True)[[*features[0]]]
    y = pd.concat([part.astype(object) for part in labels], ignore_index=True)
    return Table(cells, y, files, len(features[0]) if len(files) > 1 else None, unknown)
