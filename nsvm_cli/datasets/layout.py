"""The layout of a table in a text file: its encoding, separator and line of column names."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import csv
import gzip
import io
import lzma
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count, islice, zip_longest
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt
from pydantic.dataclasses import dataclass

from nsvm_cli.config.overrides import override
from nsvm_cli.config.registry import STRICT, shown
from nsvm_cli.datasets.notation import NO_VALUE, Decimal, Thousands, number_parts
from nsvm_cli.errors import InputError

WHITESPACE = "whitespace"
"""The separator of columns that are separated by any number of blanks."""

HEAD, FEWEST_LINES, HEAD_ROWS = 2**18, 20, 1000
"""A layout is recognised from this many characters, at least this many lines, and at most this many rows."""

csv.field_size_limit(2**31 - 1)  # long names are rejected later


def parse_separator(typed: str) -> str:
    """Return the separator that a user typed, or raise an InputError if it is invalid."""
    separator = "\t" if typed == r"\t" else typed  # a tab is hard to type in a shell
    if separator != WHITESPACE and (len(separator) != 1 or not separator.isascii() or separator in '"\r\n'):
        expected = rf"expected a separator such as ; or \t (one ASCII character, no quote), or {WHITESPACE}"
        raise InputError(f"{expected}, got {shown(typed)}")
    return separator


Code = Annotated[str, BeforeValidator(str), Field(max_length=256)]
"""A text that means a missing value; it may be typed as a number, such as -999."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Dialect:
    """How a table is written. A setting that is None is recognised from the file.

    ``header`` is the line number of the column names, from 1; true for the first line, false for none.
    ``missing`` lists codes of missing values, for all columns or by column name.
    """

    separator: Annotated[str, AfterValidator(parse_separator)] | None = None
    encoding: str | None = None
    decimal: Decimal | None = None
    thousands: Thousands | None = None
    header: bool | PositiveInt | None = None
    comment: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    sheet: Annotated[str, Field(coerce_numbers_to_str=True)] | None = None
    missing: tuple[Code, ...] | dict[str, tuple[Code, ...]] | None = None

    def __post_init__(self) -> None:
        if self.decimal is not None and self.decimal == self.thousands:
            raise ValueError(
                f"expected different signs for decimal and thousands, got {self.decimal!r} for both"
            )

    @property
    def signs(self) -> dict[str, Any]:
        """The decimal and thousands separators that are set."""
        stated = {"decimal": self.decimal, "thousands": self.thousands}
        return {name: sign for name, sign in stated.items() if sign is not None}

    def codes(self, column: object) -> tuple[str, ...]:
        """Return the codes of missing values in a column."""
        return self.missing.get(str(column), ()) if isinstance(self.missing, dict) else self.missing or ()


def written_as(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a data set that also apply to tables from which its model predicts."""
    return {key: settings[key] for key in ("decimal", "thousands", "missing") if key in settings}


class Layout(NamedTuple):
    """How a table is written. ``rows`` is the number of rows before the first sample.

    ``content`` is the data frame or pyarrow Dataset of a file that is not text.
    """

    names: list[str]
    rows: int = 0
    remarks: Sequence[str] = ()
    separator: str = ","
    encoding: str = "utf-8"
    content: Any = None


def opened(file: Path) -> Any:
    """Open a file for reading, and decompress it according to its suffix."""
    suffix = file.suffix.lower()
    if suffix == ".zip":
        archive = zipfile.ZipFile(file)
        members = [name for name in archive.namelist() if name[-1] != "/" and not name.startswith("__MACOSX")]
        if len(members) != 1:
            raise InputError(
                f"{file}: expected an archive with one file, found {len(members)} files; unpack the archive"
            )
        return archive.open(members[0])
    unpack: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    return unpack.get(suffix, open)(file, "rb")


def recognise(file: Path, dialect: Dialect) -> Layout:
    """Return the layout of a text file; raise an InputError or UnicodeDecodeError if it is not text."""
    encoding = dialect.encoding or _encoding(file)
    with opened(file) as stream, io.TextIOWrapper(stream, encoding, newline="") as text:
        lines = text.readlines(HEAD)
        lines += islice(text, max(0, FEWEST_LINES - len(lines)))
    separator = dialect.separator or _separator(lines, dialect.comment)
    head = find_names([*_rows(lines, separator, dialect.comment)], dialect.header)
    remarks = [] if separator in ",\t" else [f"separator {separator!r}"]
    remarks += [] if encoding in ("utf-8", "utf-8-sig") else [f"encoding {encoding}"]
    return head._replace(remarks=[*remarks, *head.remarks], separator=separator, encoding=encoding)


def _encoding(file: Path) -> str:
    """Return the first of several encodings in which the whole file can be decoded."""
    with opened(file) as stream:
        start = stream.read(2**12)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in start:
        advice = "for Parquet or Excel, use the suffix .parquet or .xlsx; predict arrays in Python"
        raise InputError(f"{file}: expected text, got binary data; {advice}")
    for encoding in ("utf-8-sig" if start.startswith(codecs.BOM_UTF8) else "utf-8", "cp1252"):
        decoder = codecs.getincrementaldecoder(encoding)()
        with contextlib.suppress(UnicodeDecodeError), opened(file) as stream:
            while block := stream.read(2**20):
                decoder.decode(block)
            decoder.decode(b"", final=True)
            return encoding
    return "latin-1"


def _rows(lines: Sequence[str], separator: str, comment: str | None) -> Iterator[list[str]]:
    """Yield the cells of each line, and an empty list for an empty line or a comment."""
    if separator == WHITESPACE:
        rows: Iterator[list[str]] = (
            [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|(\S+)', line)] for line in lines
        )
    else:
        rows = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    for row in islice(rows, HEAD_ROWS):
        cells = [cell.strip() for cell in row]
        yield [] if not any(cells) or cells[0].startswith(comment or "\n") else cells


def _separator(lines: Sequence[str], comment: str | None) -> str:
    """Return the separator with which most lines have the same number of cells, at least two."""

    def alike(separator: str) -> tuple[float, int]:
        widths = [len(row) for row in _rows(lines, separator, comment or "#") if row]
        widths = widths[1:] or widths  # the line of names may lack the first name
        width, count = Counter(widths).most_common(1)[0] if widths else (1, 0)
        return (count / len(widths), width) if width > 1 else (0.0, 1)

    best = max("\t;|,", key=lambda separator: alike(separator)[0])  # in a tie, the rarest in cells
    (share, width), (aligned, columns) = alike(best), alike(WHITESPACE)
    padded = 2 * sum("  " in line.strip() for line in lines) > len(lines)
    if aligned > 0.9 and (not share or (padded and columns > width)):
        return WHITESPACE
    return best if share else ","


def find_names(rows: Sequence[list[str]], header: bool | int | None) -> Layout:
    """Return the layout of a table, given the first rows of its file (an empty list for an empty row).

    Short rows at the top are titles. The next row holds names, unless it has numbers in columns of numbers.
    The row below continues the names if it has words in columns of numbers.
    """
    filled = [at for at, row in enumerate(rows) if any(row)]
    if not filled:
        return Layout([])
    width = max(Counter(len(rows[at]) for at in filled).items(), key=lambda item: (item[1], item[0]))[0]
    if isinstance(header, int) and not isinstance(header, bool):
        if header > len(rows):
            raise InputError(f"dataset.header={header}: expected a line number of at most {len(rows)}")
        start = filled.index(header - 1) if header - 1 in filled else 0
    else:
        start = next((k for k in range(len(filled)) if _begins(rows, filled[k:], width)), 0)
    above, *others = filled[start:]
    first, below = rows[above], [rows[at] for at in others]
    remarks = [f"skipped {above} line{'s' * (above > 1)} above the column names"] * (above > 0)
    first = [" ".join(name.split()) for name in (first[0].removeprefix("#"), *first[1:])]
    end = above + 1
    if header is False or (header is None and not _are_names(first, below)):
        remarks += ["found no column names, so the columns are called c1, c2, ..."] * (header is None)
        first, end, below = [f"c{k}" for k in range(1, width + 1)], above, [first, *below]
    elif header is None and len(below) > 2 and _are_more_names(below[0], below[1:]):
        first = [" ".join(filter(None, pair)) for pair in zip_longest(first, below[0], fillvalue="")]
        end, remarks = others[0] + 1, [*remarks, "joined two lines of column names"]
    if len(first) == width - 1:  # lines end with a separator, or begin with row names
        last_empty = not any(row[-1] for row in below if len(row) == width)
        first = [*first, ""] if last_empty else ["", *first]
    names = _unique(first)
    cells = zip_longest(*below, fillvalue="")
    zeros = re.compile(r"0\d+")  # for example in postal codes
    codes = [name for name, column in zip(names, cells, strict=False) if any(map(zeros.fullmatch, column))]
    if codes:
        keep = override("dataset.text", codes)
        remarks = [*remarks, f"numbers in {', '.join(codes)} lose leading zeros; add {keep} to keep them"]
    return Layout(names, end, remarks)


def _begins(rows: Sequence[list[str]], filled: Sequence[int], width: int) -> bool:
    """Return whether a table with ``width`` columns begins at the first of the ``filled`` rows."""
    row, below = rows[filled[0]], [len(rows[at]) for at in filled[1:2]]
    if (row[0].startswith("#") and len(row) != width) or row[0].startswith("sep="):  # a line for Excel
        return False
    if len(row) == width - 1 > 0 and below == [width]:
        return not any(map(number_parts, row))
    return len(row) >= width and (width < 3 or sum(map(bool, row)) > 1)


def _numeric(rows: Sequence[list[str]]) -> set[int]:
    columns = enumerate(zip_longest(*rows, fillvalue=""))
    numbers = {c: [number_parts(cell) is not None for cell in cells if cell] for c, cells in columns}
    return {c for c, are_numbers in numbers.items() if 2 * sum(are_numbers) > len(are_numbers)}


def _are_names(first: list[str], below: Sequence[list[str]]) -> bool:
    """Return whether a row holds the names of the columns in the rows below."""
    cells = [(c, first[c]) for c in _numeric(below) if c < len(first)]
    numbers = [(c, cell) for c, cell in cells if (parts := number_parts(cell)) and parts[0] == ("", "")]
    if numbers:  # for example years, or pandas' numbers for columns without names
        whole = [int(cell) if cell.isdecimal() else -1 for _, cell in numbers]
        counted = whole == [*range(whole[0], whole[0] + len(whole))] and whole[0] in (0, 1)
        among = {row[c] for row in below for c, _ in numbers if len(row) > c}
        are_years = all(1900 <= year < 2100 for year in whole) and not among & {cell for _, cell in numbers}
        return len({*whole}) == len(whole) > 1 and (counted or are_years)
    seen = [{row[c] for row in below if len(row) > c} for c in range(len(first))]
    return not below or any(cell and cell not in cells for cell, cells in zip(first, seen, strict=True))


def _are_more_names(second: list[str], below: Sequence[list[str]]) -> bool:
    """Return whether a second row continues the names, with words where the rows below have numbers."""
    numeric = _numeric(below)
    words = [second[c] for c in numeric if c < len(second)]
    seen = {(c, cell) for row in below for c, cell in enumerate(row) if cell}
    years = [word for word in words if re.fullmatch(r"(19|20)\d\d", word)]
    named = len({*words}) > 1 and all(
        word in years or (re.search(r"[^\W\d_]", word) and not number_parts(word)) for word in words
    )
    return named and not {word.lower() for word in words} & NO_VALUE and not seen & {*enumerate(second)}


def _unique(names: Sequence[str]) -> list[str]:
    """Return the names, made unique in the same way as in pandas."""
    unique: list[str] = []
    for k, name in enumerate(names):
        name = name or f"Unnamed: {k}"
        numbered = chain([name], (f"{name}.{n}" for n in count(1)))
        unique.append(next(other for other in numbered if other not in unique))
    return unique
