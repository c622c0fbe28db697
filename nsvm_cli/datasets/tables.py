"""CSV files, read by pandas."""

from __future__ import annotations

import hashlib
import lzma
import math
import os
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsvm_cli.config.registry import shown
from nsvm_cli.errors import InputError, did_you_mean, out_of_memory
from nsvm_cli.memory import expect_room

if TYPE_CHECKING:
    import pandas as pd

DAMAGED = (EOFError, lzma.LZMAError, zipfile.BadZipFile, zlib.error)
"""Errors from damaged compressed files, beside ValueError and OSError."""

MISSING = (
    *("", "NA", "N/A", "n/a", "<NA>", "#N/A", "#N/A N/A", "#NA", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
"""The texts that pandas takes for an empty cell; here not among labels, where they are names."""


@contextmanager
def reading_csv(what: str) -> Iterator[None]:
    """Turn errors and warnings of pandas within the context into InputErrors about ``what``.

    Raises:
        RunError: memory ran out.
    """
    import pandas as pd  # slow to import, and most runs read no table

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows with more cells than the header
            yield
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(
            f"{what} cannot be read as CSV: expected UTF-8, got bytes such as {shown(error.object[:20])}; "
            "convert the file, for instance with iconv -f cp1252 -t utf-8, or -f utf-16"
        ) from None
    except (ValueError, OSError, ImportError, pd.errors.ParserWarning, *DAMAGED) as error:
        raise out_of_memory(error) or InputError(f"{what} cannot be read as CSV: {error}") from None


def first_line(file: Path, separator: str) -> list[str]:
    """Return the cells of the first line of a table, unchanged."""
    import pandas as pd

    cells = pd.read_csv(file, sep=separator, header=None, nrows=1, dtype=object, keep_default_na=False)
    return [str(cell) for cell in cells.iloc[0]]


def parsing(
    names: Sequence[str], separator: str, labels: Collection[str], text: Collection[str]
) -> dict[str, Any]:
    """Return pandas' options for a table with a header, whose columns it calls 0, 1, 2, ...

    Labels are read unchanged, and columns of text are never taken for numbers or truth values. The end of the
    file's name says how it is compressed.
    """
    return {
        "sep": separator,
        "header": 0,
        "names": range(len(names)),
        "dtype": {n: object for n, name in enumerate(names) if name in labels or name in text},
        "keep_default_na": False,
        # separators at the ends of the lines make one more column, which pandas drops if it is empty
        "na_values": {n: MISSING for n, name in enumerate([*names, ""]) if name not in labels},
        "skip_blank_lines": len(names) > 1,  # in a table of one column, a blank line is an empty cell
        # low_memory would infer a column's type block by block, and index_col would silently turn the first
        # column into row names
        "low_memory": False,
        "index_col": False,
    }


def read_csv(
    path: str,
    setting: str,
    separator: str = ",",
    labels: Sequence[str] = (),
    text: Collection[str] = (),
    headless: bool = False,
) -> pd.DataFrame:
    """Return a table. Only regular files are opened.

    Args:
        setting: the one that names the file, for messages.
        labels: names one of which a column must have; it is read unchanged.
        text: columns that are text even if they look like numbers.
        headless: whether a first line that holds a number is a row; the columns are then V1, V2, ...

    Raises:
        InputError: there is no such file, it is not a CSV file, or two columns have the same name.
        RunError: memory ran out.
    """
    import pandas as pd

    what = f"{setting}={path}"
    with reading_csv(what):
        file = Path(os.path.expanduser(path))
        if not file.is_file():
            problem = "is not a file" if file.exists() else "does not exist"
            advice = f", relative to the folder where the command is run; name it with {setting}=FILE"
            raise InputError(f"{what} {problem}: expected a CSV file{'' if file.is_absolute() else advice}")
        if (size := file.stat().st_size) == 0:
            raise InputError(f"{what} cannot be read as CSV: it is empty")
        expect_room(size, what)  # before it is read: a stranger's settings may name any file
        names = first_line(file, separator)
        header = not (headless and any(map(is_number, names)))
        names = column_names(names) if header else [f"V{n}" for n in range(1, len(names) + 1)]
        expect_different(names, what)
        if labels and not {*labels} & {*names}:
            other = separator_in(names[0]) if len(names) == 1 else None
            hint = f"; is \"dataset.separator='{other}'\" meant?" if other else ""
            raise InputError(
                f"dataset.label: {path} has no column {' or '.join(map(repr, labels))}; "
                f"{did_you_mean(labels[0], names)}{hint}"
            )
        options = parsing(names, separator, labels, text) | {"header": 0 if header else None}
        table: pd.DataFrame = pd.read_csv(file, **options)
        return table.set_axis(names, axis=1)


def column_names(header: Sequence[str]) -> list[str]:
    """Return the names of columns; those without a name in the header are numbered."""
    return [name or f"Unnamed: {number}" for number, name in enumerate(header)]


def expect_different(names: Sequence[str], what: str, among: Collection[str] | None = None) -> None:
    """Raise an InputError if two columns have the same name; ``among`` are the names that matter."""
    for name, count in Counter(names).items():
        if count > 1 and (among is None or name in among):
            raise InputError(
                f"{what}: {count} columns are called {shown(name)}: expected a name of its own for each"
            )


def is_number(text: str) -> bool:
    """Return whether text is a finite number in the form that columns of numbers may hold."""
    import pandas as pd

    return math.isfinite(pd.to_numeric(text, errors="coerce"))


def parse_separator(typed: str) -> str:
    """Return the separator of the cells of a table.

    Raises:
        InputError: it cannot be one.
    """
    separator = "\t" if typed == r"\t" else typed  # how one types a tab in a shell
    if len(separator) != 1 or not separator.isascii() or separator in '"\r\n':
        expected = r"expected one ASCII character as separator, such as ; or \t, and no quote"
        raise InputError(f"{expected}, got {shown(typed)}")
    return separator


def separator_in(header: str) -> str | None:
    """Return the likely separator of the names in a header, as one types it."""
    return next((typed for typed in (";", r"\t", "|", ",") if parse_separator(typed) in header), None)


def file_sha256(path: str) -> str:
    """Return the SHA-256 of a file."""
    with open(os.path.expanduser(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
