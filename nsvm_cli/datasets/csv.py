"""CSV and Parquet files: read by pandas, one column of labels, all others features."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import numpy as np
from pydantic import AfterValidator
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT, shown
from nsvm_cli.datasets.base import Table, TableSource, expect_column
from nsvm_cli.datasets.encoding import texts
from nsvm_cli.errors import InputError, out_of_memory
from nsvm_cli.memory import expect_room
from nsvm_cli.output import say
from nsvm_cli.storage.files import file_sha256

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "="
"""What labels begin with while pandas looks for empty cells."""


def parse_separator(typed: str) -> str:
    """Return the separator of the cells of a table, or raise an InputError."""
    separator = "\t" if typed == r"\t" else typed  # how one types a tab in a shell
    if len(separator) != 1 or not separator.isascii() or separator in '"\r\n':
        expected = r"expected one ASCII character as separator, such as ; or \t, and no quote"
        raise InputError(f"{expected}, got {shown(typed)}")
    return separator


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Dialect:
    """How a CSV file is written: what separates cells, its encoding, and the decimal sign."""

    separator: Annotated[str, AfterValidator(parse_separator)] = ","
    encoding: str = "utf-8"
    decimal: Literal[".", ","] = "."


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CSV(Dialect, TableSource):
    """A CSV file with a header, or a Parquet file.

    Labels are numbers or text, the names of the classes, which are sorted in ascending order; or real
    targets; rows without one are refused, unless ``skip_unlabelled``. Features are numbers, dates or text,
    and may be missing. The rows of ``test_path`` and ``validation_path``, if they are given, are the test set
    and the validation set.
    """

    path: str
    label: str = "label"
    skip_unlabelled: bool = False
    drop: tuple[str, ...] | None = None
    test_path: str | None = None
    validation_path: str | None = None

    def load(self, rng: np.random.Generator, text: Collection[str] = ()) -> Table:
        """Return the rows of a file, followed by those of the files of the validation and test sets, if any.

        A column of the first file that holds text is text in the others, too.
        """
        import pandas as pd  # slow to import, and most runs read no table

        files = {"path": self.path, "validation_path": self.validation_path, "test_path": self.test_path}
        paths = {name: path for name, path in files.items() if path is not None}
        tables: list[pd.DataFrame] = []
        for name, path in paths.items():
            cells = read_cells(path, f"dataset.{name}", self, self.label, text)
            tables.append(cells[cells[self.label] != ""] if self.skip_unlabelled else cells)
            if self.skip_unlabelled:
                say(f"{path}: skipped {len(cells) - len(tables[-1])} rows without a label")
            text = [*text, *tables[0].select_dtypes(exclude="number")]
            self._expect_columns(tables[0], tables[-1], f"dataset.{name}={path}")
        starts = dict(zip(paths, np.cumsum([0, *map(len, tables)]).tolist(), strict=False))
        return Table(
            pd.concat(tables)[[*tables[0]]],
            tuple(paths.values()),
            self.label,
            self,
            starts.get("test_path"),
            tuple(map(file_sha256, paths.values())),
            starts.get("validation_path"),
        )

    def _expect_columns(self, first: pd.DataFrame, other: pd.DataFrame, what: str) -> None:
        """Expect another table to have the columns of the first; one without weights gets weights of 1."""
        if self.weight in first and self.weight not in other:
            other[self.weight] = 1.0
        different = first.columns.symmetric_difference(other.columns).difference([*(self.drop or ())])
        if len(different):
            raise InputError(
                f"{what}: expected the columns of {self.path}, but only one of the two has "
                f"{', '.join(different)}; leave out what is no feature with dataset.drop=[...]"
            )


def read_cells(
    path: str,
    setting: str,
    dialect: Dialect,
    label: str | None = None,
    text: Collection[str] = (),
    names: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return the cells of a regular file.

    Args:
        setting: the one that names the file, for messages; empty if it is named without one.
        label: the column of labels, which is read unchanged.
        text: columns that are text even if they look like numbers.
        names: those of the columns of a table without a header.

    Raises:
        InputError: there is no such file or column, or it is neither CSV nor Parquet.
        RunError: memory ran out.
    """
    import pandas as pd

    what, file = f"{setting}={path}" if setting else path, Path(os.path.expanduser(path))
    labels = [] if label is None else [label]
    with reading(what, dialect):
        if not file.is_file():
            problem = "is not a file" if file.exists() else "does not exist"
            advice = f", relative to the folder where the command is run; name it with {setting}=FILE"
            relative = setting and not file.is_absolute()
            raise InputError(f"{what} {problem}: expected a CSV file{advice if relative else ''}")
        # before it is read: a stranger's settings may name any file
        if (size := file.stat().st_size) == 0:  # as of those of /proc, which may be endless
            raise InputError(f"{what} cannot be read as CSV: it is empty")
        expect_room(size, what)
        table: pd.DataFrame
        if is_parquet(file):  # compressed
            about = parquet().read_metadata(file)
            expect_room(8 * about.num_rows * about.num_columns, what)
            table = parquet().read_table(file).to_pandas(ignore_metadata=True)  # as for pandas' index
            table = table.assign(**{name: texts(table[name]) for name in labels if name in table})
        elif other := separator_in(header_of(file, dialect)):
            meant = f"\"dataset.separator='{other}'\"" if setting else f"--separator '{other}'"
            raise InputError(f"{what} has 1 column: is {meant} meant?")
        else:
            table = pd.read_csv(file, **parsing(dialect, labels, text) | {"names": names})
            table = _read(table, dialect, labels)
    if label is not None:
        expect_column("dataset.label", path, label, table)
    return table


def is_parquet(file: Path) -> bool:
    """Return whether a file is Parquet, by its name."""
    return file.suffix.lower() == ".parquet"


def parquet() -> Any:
    """Return pyarrow.parquet, which is an extra."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise InputError("Parquet files need pyarrow: pip install 'nsvm[parquet]'") from None
    return pyarrow.parquet


def write_parquet(file: BinaryIO, blocks: Iterable[Mapping[str, Sequence[Any]]]) -> int:
    """Write blocks of columns to a Parquet file, and return the number of their rows."""
    import pandas as pd

    parquet()
    table = pd.concat(map(pd.DataFrame, blocks))
    table.to_parquet(file, engine="pyarrow", index=False)
    return len(table)


def header_of(file: Path, dialect: Dialect) -> list[str]:
    import pandas as pd

    if is_parquet(file):
        return [*parquet().read_schema(file).names]
    return [*pd.read_csv(file, sep=dialect.separator, encoding=dialect.encoding, nrows=0)]


def cells_by_block(
    file: Path, dialect: Dialect, labels: Collection[str], text: Collection[str], rows: int
) -> Iterator[pd.DataFrame]:
    """Yield the cells of a file, some rows at a time; see ``read_cells``."""
    import pandas as pd

    if is_parquet(file):
        with parquet().ParquetFile(file) as content:
            yield from (batch.to_pandas(ignore_metadata=True) for batch in content.iter_batches(rows))
        return
    with pd.read_csv(file, **parsing(dialect, labels, text), chunksize=rows) as chunks:
        for cells in chunks:
            yield _read(cells, dialect, labels)


def _read(table: pd.DataFrame, dialect: Dialect, labels: Collection[str]) -> pd.DataFrame:
    """Return a table with labels as they are written, and with decimal points for commas where pandas has
    taken numbers for text, beside text.
    """
    table = table.assign(**{name: table[name].str.removeprefix(PREFIX) for name in labels if name in table})
    if dialect.decimal == ".":
        return table
    return table.replace(r"^(\s*[+-]?\d*),(\d*(?:[eE][+-]?\d+)?\s*)$", r"\1.\2", regex=True)


def parsing(dialect: Dialect, labels: Collection[str], text: Collection[str]) -> dict[str, Any]:
    """Return pandas' options for a table.

    Labels get a prefix, or pandas would take NA for an empty cell. Columns of text are never taken for
    numbers or truth values. The end of the file's name says how it is compressed.
    """
    return {
        "sep": dialect.separator,
        "encoding": dialect.encoding,
        "decimal": dialect.decimal,
        "dtype": {name: object for name in text if name not in labels},
        "converters": dict.fromkeys(labels, PREFIX.__add__),
        # low_memory would infer a column's type block by block, and index_col would silently turn the first
        # column into row names
        "low_memory": False,
        "index_col": False,
    }


@contextmanager
def reading(what: str, dialect: Dialect) -> Iterator[None]:
    """Turn what pandas or a decompressor raises or warns of into an InputError about ``what``.

    Raises:
        RunError: memory ran out.
    """
    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows with more cells than the header
            yield
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(
            f"{what} cannot be read as CSV: expected {dialect.encoding}, got bytes such as "
            f"{shown(error.object[:20])}; name its encoding, such as cp1252, latin-1 or utf-16, with "
            "dataset.encoding=NAME, or --encoding NAME"
        ) from None
    except Exception as error:
        kind = "Parquet" if is_parquet(Path(what)) else "CSV"
        raise out_of_memory(error) or InputError(f"{what} cannot be read as {kind}: {error}") from None


def separator_in(header: Sequence[str]) -> str | None:
    """Return the likely separator, as one types it, if a header is a single name that holds one."""
    likely = (typed for typed in (";", r"\t", "|", ",") if parse_separator(typed) in header[0])
    return next(likely, None) if len(header) == 1 else None
