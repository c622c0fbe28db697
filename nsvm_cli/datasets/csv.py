"""CSV files: read by pandas, one column of labels, all others features."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import AfterValidator
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT, shown
from nsvm_cli.datasets.base import Table, TableSource
from nsvm_cli.errors import InputError, did_you_mean, out_of_memory
from nsvm_cli.memory import expect_room
from nsvm_cli.storage.files import file_sha256

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "="
"""What labels begin with while pandas looks for empty cells."""


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


Separator = Annotated[str, AfterValidator(parse_separator)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CSV(TableSource):
    """A CSV file with a header.

    Labels are numbers or text, the names of the classes, which are sorted in ascending order; or real
    targets. Features are numbers or text, and may be missing. The rows of ``test_path`` and
    ``validation_path``, if they are given, are the test set and the validation set.
    """

    path: str
    label: str = "label"
    separator: Separator = ","
    test_path: str | None = None
    validation_path: str | None = None

    def load(self, rng: np.random.Generator) -> Table:
        files = {name: getattr(self, name) for name in ("path", "validation_path", "test_path")}
        paths = {f"dataset.{name}": path for name, path in files.items() if path is not None}
        return read_table(paths, self.separator, (self.label,), self)


def read_table(files: Mapping[str, str], separator: str, labels: Sequence[str], source: TableSource) -> Table:
    """Return the rows of a file, followed by those of the files of the validation and test sets, if any.

    The files are given by the settings that name them; ``labels`` are the names that the column of labels may
    have. A column of the first file that holds text is text in the others, too.
    """
    import pandas as pd  # slow to import, and most runs read no table

    def read(text: Collection[str]) -> list[pd.DataFrame]:
        tables: list[pd.DataFrame] = []
        for setting, path in files.items():
            tables.append(read_csv(path, setting, separator, labels, text))
            text = [*text, *tables[0].select_dtypes(exclude="number")]
        return tables

    first, *rest = tables = read(())
    paths = tuple(files.values())
    for (setting, path), other in zip([*files.items()][1:], rest, strict=True):
        different = first.columns.symmetric_difference(other.columns).difference([*source.drop])
        if len(different):
            raise InputError(
                f"{setting}={path}: expected the columns of {paths[0]}, but only one of the two "
                f"has {', '.join(different)}; leave out what is no feature with dataset.drop=[...]"
            )
    starts = dict(zip(files, np.cumsum([0, *map(len, tables)]).tolist(), strict=False))
    return Table(
        pd.concat(tables)[[*first]],
        paths,
        next(name for name in labels if name in first),
        source.drop,
        official_test=starts.get("dataset.test_path"),
        official_validation=starts.get("dataset.validation_path"),
        with_text=lambda text: pd.concat(read(text)),
        origins=tuple(map(file_sha256, paths)),
        roles=source.roles,
    )


def read_csv(
    path: str,
    setting: str,
    separator: str = ",",
    labels: Sequence[str] = (),
    text: Collection[str] = (),
    names: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return the cells of a regular file.

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

    what, file = f"{setting}={path}", Path(os.path.expanduser(path))
    with reading_csv(what):
        if not file.is_file():
            problem = "is not a file" if file.exists() else "does not exist"
            advice = f", relative to the folder where the command is run; name it with {setting}=FILE"
            raise InputError(f"{what} {problem}: expected a CSV file{'' if file.is_absolute() else advice}")
        # before it is read: a stranger's settings may name any file
        if (size := file.stat().st_size) == 0:  # as of those of /proc, which may be endless
            raise InputError(f"{what} cannot be read as CSV: it is empty")
        expect_room(size, what)
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


@contextmanager
def reading_csv(what: str) -> Iterator[None]:
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
            f"{what} cannot be read as CSV: expected UTF-8, got bytes such as {shown(error.object[:20])}; "
            "convert the file, for instance with iconv -f cp1252 -t utf-8, or -f utf-16"
        ) from None
    except Exception as error:
        raise out_of_memory(error) or InputError(f"{what} cannot be read as CSV: {error}") from None


def separator_in(header: Sequence[str]) -> str | None:
    """Return the likely separator, as one types it, if a header is a single name that holds one."""
    likely = (typed for typed in (";", r"\t", "|", ",") if parse_separator(typed) in header[0])
    return next(likely, None) if len(header) == 1 else None


def is_number(text: str) -> bool:
    """Return whether text is a finite number in the form that columns of numbers may hold."""
    import pandas as pd

    return math.isfinite(pd.to_numeric(text, errors="coerce"))
