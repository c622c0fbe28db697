"""CSV files as tables."""

from __future__ import annotations

import codecs
import contextlib
import functools
import hashlib
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsvm_cli.config.registry import shown
from nsvm_cli.datasets.base import Table
from nsvm_cli.datasets.encoding import is_number
from nsvm_cli.datasets.table_files import DAMAGED, open_stream, open_table
from nsvm_cli.errors import InputError, out_of_memory

if TYPE_CHECKING:
    import pandas as pd

EMPTY = ("",)
"""The text of an empty cell among text and labels."""

MISSING = (
    *("", "NA", "N/A", "n/a", "<NA>", "#N/A", "#N/A N/A", "#NA", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
"""The texts that other programs write for an empty cell among numbers."""

SEPARATED = re.compile(r"[^\0]+[,;|\t][^\0]+")
"""A header that seems to hold several names."""


@dataclass(frozen=True)
class CSVFile:
    """A CSV file, compressed or not, that a setting names. Only regular files are opened.

    With ``headless``, a first line that holds a number is a row, and the columns are V1, V2, ...
    """

    path: str
    setting: str = "dataset.path"
    separator: str = ","
    headless: bool = False

    @property
    def what(self) -> str:
        """The setting, for messages."""
        return f"{self.setting}={self.path}"

    @property
    def _file(self) -> Path:
        return Path(self.path).expanduser()

    def read(self, labels: Collection[str] = ()) -> pd.DataFrame:
        """Return the table. Columns of numbers become numbers, and those of labels stay text.

        The values of the others do not always show how they are written: see ``as_written``.

        Raises:
            InputError: there is no such file, it is not a CSV file, two columns have the same name, or it
                needs more memory than data may take.
            RunError: memory ran out.
        """
        import pandas as pd  # slow to import, and most runs read no table

        with reading_csv(self.what):
            if not self._file.is_file():
                problem = "is not a file" if self._file.exists() else "does not exist"
                advice = (
                    f", relative to the folder where the command is run; name it with {self.setting}=FILE"
                )
                advice = "" if self._file.is_absolute() else advice
                raise InputError(f"{self.what} {problem}: expected a CSV file{advice}")
            with open_table(self._file, self.separator, self.what) as content:
                names = first_line(self._file, self.separator)
                header = not self.headless or not any(map(is_number, names))
                names = names if header else [f"V{number}" for number in range(1, len(names) + 1)]
                expect_different(names, self.what)
                if len(names) == 1 and names[0] not in labels and SEPARATED.fullmatch(names[0]):
                    return pd.DataFrame(columns=names)  # with a wrong separator, rows may not be readable
                options = parsing(column_names(names), self.separator, labels)
                table: pd.DataFrame = pd.read_csv(content, **options | {"header": 0 if header else None})
        return table

    def as_written(self, names: Sequence[str]) -> pd.DataFrame:
        """Return these columns as text; only an empty cell is empty."""
        import pandas as pd

        with reading_csv(self.what), open_stream(self._file) as content:
            header = column_names(first_line(self._file, self.separator))
            options = parsing(header, self.separator, names)
            table: pd.DataFrame = pd.read_csv(content, usecols=[*names], **options)
        return table[[*names]]

    def sha256(self) -> str:
        """Return the SHA-256 of the unpacked content."""
        with reading_csv(self.what), open_stream(self._file) as content:
            return hashlib.file_digest(content, "sha256").hexdigest()


def first_line(file: Path, separator: str) -> list[str]:
    """Return the cells of the first line of a table as text, unchanged."""
    import pandas as pd

    options: dict[str, Any] = {"sep": separator, "header": None, "dtype": object, "keep_default_na": False}
    with open_stream(file) as content:
        cells = pd.read_csv(content, nrows=1, index_col=False, **options)
    return [str(cell) for cell in cells.iloc[0]]


def expect_different(names: Sequence[str], what: str, among: Collection[str] | None = None) -> None:
    """Raise an InputError if two columns have the same name; ``among`` are the names that matter."""
    counts = {name: n for name, n in Counter(names).items() if name and (among is None or name in among)}
    if repeated := [name for name, n in counts.items() if n > 1]:
        raise InputError(
            f"{what}: {counts[repeated[0]]} columns are called {shown(repeated[0])}: "
            "expected a name of its own for each"
        )


def column_names(header: Iterable[str]) -> list[str]:
    """Return the names of columns; those without a name in the header are numbered."""
    return [name or f"Unnamed: {number}" for number, name in enumerate(header)]


def parsing(names: Sequence[str | int], separator: str, text: Collection[str]) -> dict[str, Any]:
    """Return pandas' options for a table with a header: all columns but those of text may hold numbers."""
    # if all rows end with a separator, there is one more column, which pandas drops if it is empty
    after = {len(names): EMPTY}
    return {
        "sep": separator,
        "header": 0,
        "names": names,
        "dtype": {name: object for name in names if name in text},
        "keep_default_na": False,
        "na_values": {name: EMPTY if name in text else MISSING for name in names} | after,
        # low_memory would infer a column's type block by block, and index_col would silently turn the first
        # column into row names
        "low_memory": False,
        "index_col": False,
    }


@contextlib.contextmanager
def reading_csv(what: str) -> Iterator[None]:
    """Turn errors and warnings of pandas within the context into InputErrors about ``what``."""
    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows with more cells than the header
            yield
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"{what} cannot be read as CSV: {_encoding_of(error)}") from None
    except (ValueError, OSError, RuntimeError, pd.errors.ParserWarning, *DAMAGED) as error:
        raise out_of_memory(error) or InputError(f"{what} cannot be read as CSV: {error}") from None


def _encoding_of(error: UnicodeDecodeError) -> str:
    """Return which encoding the bytes that are no UTF-8 may have, and how they read in it."""
    encoding = "utf-16" if error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "cp1252"
    text = ""
    with contextlib.suppress(UnicodeDecodeError):
        text = codecs.getincrementaldecoder(encoding)().decode(
            error.object
        )  # a cell may end within a character
    if not text or not all(c.isprintable() or c.isspace() for c in text):
        return f"expected UTF-8, got {shown(error.object)}"
    return (
        f"expected UTF-8, got bytes that read {shown(text)} in {encoding}; if that is right, convert the "
        f"text with iconv -f {encoding} -t utf-8"
    )


def to_table(
    files: Sequence[CSVFile], tables: Sequence[pd.DataFrame], label: str, drop: Sequence[str] = ()
) -> Table:
    """Return the table of the rows of a file, followed by those of its test set, if there is one."""
    import pandas as pd

    features = [table.drop(columns=[label, *drop], errors="ignore") for table in tables]
    paths = tuple(file.path for file in files)

    @functools.lru_cache(maxsize=1)
    def as_written(names: tuple[str, ...]) -> pd.DataFrame:
        read = [file.as_written(names) for file in files]
        if (lengths := [*map(len, read)]) != [*map(len, tables)]:
            raise InputError(f"{', '.join(paths)} changed while it was read, to {lengths} rows")
        return pd.concat(read, ignore_index=True)

    return Table(
        cells=pd.concat(features, ignore_index=True)[[*features[0]]],
        labels=pd.concat([table[label].astype(object) for table in tables], ignore_index=True),
        files=paths,
        official_test=len(tables[0]) if len(files) > 1 else None,
        unknown=tuple(name for name in drop if not any(name in table for table in tables)),
        as_written=as_written,
        origins=tuple(file.sha256() for file in files),
    )
