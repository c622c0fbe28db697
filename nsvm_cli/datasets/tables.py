"""CSV files, read by pandas."""

from __future__ import annotations

import hashlib
import lzma
import math
import os
import warnings
import zipfile
import zlib
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

PREFIX = "="
"""What labels begin with while pandas looks for empty cells."""


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


def parsing(separator: str, labels: Collection[str] = (), text: Collection[str] = ()) -> dict[str, Any]:
    """Return pandas' options for a table.

    Labels get a prefix, or pandas would take NA for an empty cell. Columns of text are never taken for
    numbers or truth values. The end of the file's name says how it is compressed.
    """
    return {
        "sep": separator,
        "dtype": {name: object for name in text if name not in labels},
        "converters": dict.fromkeys(labels, PREFIX.__add__),
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
    names: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return a table. Only regular files are opened.

    Args:
        setting: the one that names the file, for messages.
        labels: names one of which a column must have; it is read unchanged.
        text: columns that are text even if they look like numbers.
        names: those of the columns of a table without a header.

    Raises:
        InputError: there is no such file, or it is not a CSV file.
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
        options = parsing(separator, labels, text) | {"names": names}
        table: pd.DataFrame = pd.read_csv(file, **options)
    if labels and not {*labels} & {*table}:
        other = separator_in([*table])
        hint = f"; is \"dataset.separator='{other}'\" meant?" if other else ""
        raise InputError(
            f"dataset.label: {path} has no column {' or '.join(map(repr, labels))}; "
            f"{did_you_mean(labels[0], map(str, table))}{hint}"
        )
    return table.assign(**{name: table[name].str.removeprefix(PREFIX) for name in labels if name in table})


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


def separator_in(header: Sequence[str]) -> str | None:
    """Return the likely separator, as one types it, if a header is a single name that holds one."""
    likely = (typed for typed in (";", r"\t", "|", ",") if parse_separator(typed) in header[0])
    return next(likely, None) if len(header) == 1 else None


def file_sha256(path: str) -> str:
    """Return the SHA-256 of a file."""
    with open(os.path.expanduser(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
