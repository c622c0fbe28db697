"""Tables in CSV, Excel, Parquet, Feather and JSON files, read with pandas."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from pydantic.dataclasses import dataclass

from nsvm_cli.config.overrides import override
from nsvm_cli.config.registry import STRICT, Count, Text, shown
from nsvm_cli.datasets.base import Table, TableSource, expect_column
from nsvm_cli.datasets.encoding import is_nested, texts
from nsvm_cli.datasets.layout import HEAD_ROWS, WHITESPACE, Dialect, Layout, find_names, opened, recognise
from nsvm_cli.datasets.notation import is_number, map_values
from nsvm_cli.errors import InputError, did_you_mean, out_of_memory
from nsvm_cli.memory import expect_room
from nsvm_cli.storage.files import file_sha256

if TYPE_CHECKING:
    import pandas as pd

MISSING_CODES = ("", "#N/A", "#NA", "<NA>", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null")
"""Texts that mean a missing value in all columns except labels: most of pandas' defaults."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CSV(Dialect, TableSource):
    """A table in a file: delimited text, Excel, Parquet, Feather or JSON, according to its suffix.

    Labels are class names or real targets. Features are numbers, dates or text, and cells may be empty.

    Attributes:
        skip_unlabelled: whether to skip rows without a label instead of raising an error.
        min_count: minimum number of rows of a class; classes with fewer rows are removed.
        test_path, validation_path: tables with the test set and the validation set.
    """

    path: str
    label: Text = "label"
    skip_unlabelled: bool = False
    min_count: Count = 1
    test_path: str | None = None
    validation_path: str | None = None

    def load(self, rng: np.random.Generator) -> Table:
        """Return the rows of ``path``, ``validation_path`` and ``test_path``, in this order."""
        import pandas as pd  # slow to import, and most runs read no table

        files = {"path": self.path, "validation_path": self.validation_path, "test_path": self.test_path}
        paths = {name: path for name, path in files.items() if path is not None}
        tables: list[pd.DataFrame] = []
        remarks, text, left_out = list[str](), [*self.text], [""] * self.skip_unlabelled
        for name, path in paths.items():
            cells, lines = read_cells(path, f"dataset.{name}", self, self.label, text)
            if not tables:
                counts = cells[self.label].value_counts().drop("", errors="ignore")
                left_out += [*counts.index[counts < self.min_count]]
            kept = cells[~cells[self.label].isin(left_out)] if left_out else cells
            tables.append(kept)
            remarks += lines
            if skipped := len(cells) - len(kept):
                remarks += [f"{path}: skipped {skipped} rows without a label or in rare classes"]
            text = [*text, *tables[0].select_dtypes(exclude="number")]
            self._expect_columns(tables[0], kept, f"dataset.{name}={path}")
        starts = dict(zip(paths, np.cumsum([0, *map(len, tables)]).tolist(), strict=False))
        return Table(
            pd.concat(tables)[[*tables[0]]] if tables[1:] else tables[0],
            tuple(paths.values()),
            self.label,
            self,
            starts.get("test_path"),
            tuple(map(file_sha256, paths.values())),
            starts.get("validation_path"),
            self.signs,
            tuple(remarks),
        )

    def _expect_columns(self, first: pd.DataFrame, other: pd.DataFrame, what: str) -> None:
        """Raise an InputError unless two tables have the same columns; fill missing weights with 1."""
        if self.weight in first and self.weight not in other:
            other[self.weight] = 1.0
        different = first.columns.symmetric_difference(other.columns).difference([*self.drop])
        if len(different):
            raise InputError(
                f"{what}: expected the same columns as in {self.path}, but only one of the two files has "
                f"{', '.join(different)}; to exclude columns, add dataset.drop=[...]"
            )


def read_cells(
    path: str, setting: str, dialect: Dialect, label: str | None = None, text: Collection[str] = ()
) -> tuple[pd.DataFrame, list[str]]:
    """Return the cells of a table file and remarks about its format, or raise an InputError.

    The columns ``label`` and ``text`` are read as text. ``setting`` is the setting that holds the path.
    """
    what, file = f"{setting}={path}" if setting else path, Path(os.path.expanduser(path))
    labels = [] if label is None else [label]
    with pandas_errors(what, file):
        kind = kind_of(file)
        if not (file.is_file() or (file.is_dir() and kind == "Parquet")):
            problem = "is not a file" if file.exists() else "does not exist"
            advice = f"; set {setting} to a path relative to the current folder"
            relative = setting and not file.is_absolute()
            raise InputError(f"{what} {problem}: expected a CSV file{advice if relative else ''}")
        # checked before reading, because settings from a stranger may name any file
        if (size := file.stat().st_size) == 0:  # endless files in /proc have size 0, too
            raise InputError(f"{what} cannot be read as {kind}, because it is empty")
        expect_room(size, what)
        layout = layout_of(file, dialect)
        table, remarks = layout.content, layout.remarks
        if table is None:
            table = _read_text(file, layout, dialect, labels, text)
        else:
            if kind in ARROW:
                expect_room(8 * table.count_rows() * len(layout.names), str(file))  # files are compressed
                table = table.to_table().to_pandas(ignore_metadata=True)  # pandas' metadata may set an index
            table = table.assign(**{name: texts(table[name]) for name in labels if name in table})
        if label is not None:
            expect_column("dataset.label" if setting else "--label", path, label, table)
        cells = tidied(table, dialect, labels)
    nameless = [name for name in cells if str(name).startswith("Unnamed: ") and cells[name].isna().all()]
    if nameless:
        remarks = [*remarks, f"skipped {len(nameless)} empty columns without a name"]
    lines = [f"{path}: {'; '.join(remarks)}"] * bool(remarks)
    for name in labels:
        written = {*table[name].dropna().unique()}
        if any(label != label.strip() for label in written):
            lines.append(f"{path}: spaces around labels are ignored")
        if codes := {*MISSING_CODES} & {label.strip() for label in written} - {"", *dialect.codes(name)}:
            advice = f"{override('dataset.missing', {name: sorted(codes)})} dataset.skip_unlabelled=true"
            what = f"labels that are read as classes: {', '.join(sorted(codes))}"
            lines.append(f"{path}: {what}; to read them as missing labels, add {advice}")
    return cells.drop(columns=nameless), lines


def _read_text(
    file: Path, layout: Layout, dialect: Dialect, labels: Collection[str], text: Collection[str]
) -> pd.DataFrame:
    """Return the cells of a text file; columns that pandas may have read wrongly are read again as text."""
    import pandas as pd

    def read(text: Collection[str]) -> pd.DataFrame:
        with opened(file) as stream:
            cells: pd.DataFrame = pd.read_csv(stream, **parsing(layout, dialect, labels, text))
        return cells

    table = read(text)
    mixed = [*map(str, table.columns[table.dtypes == "object"])]  # only some blocks were numeric
    # 1.200 may mean 1,200 if another column has decimal commas
    fractions = table.select_dtypes("float")
    pointed = [str(name) for name, cells in fractions.items() if _are_thousandths(cells.to_numpy())]
    words = [cells for name, cells in table.items() if cells.dtype == "str" and name not in labels]
    if not any(cells.str.contains(r"\d,\d|\d\.\d+\.\d").any() for cells in words if pointed):
        pointed = []
    return read([*text, *mixed, *pointed]) if mixed or pointed else table


@np.errstate(over="ignore")
def _are_thousandths(x: np.ndarray) -> bool:
    """Return whether all numbers have at most three decimals, so that 1.200 may mean 1,200."""
    blocks = (x[start : start + 2**16] * 1000 for start in range(0, len(x), 2**16))
    return all(np.allclose(block, block.round(), 0, 1e-6, equal_nan=True) for block in blocks)


def tidied(table: pd.DataFrame, dialect: Dialect, labels: Collection[str] = ()) -> pd.DataFrame:
    """Strip cells of text, and replace codes of missing values with NaN or, in labels, with ""."""
    new: dict[Any, pd.Series] = {}
    for name, cells in table.items():
        codes: set[Any] = {"", *dialect.codes(name)}
        gap = "" if name in labels else np.nan
        if cells.dtype == "str":
            new[name] = cells = map_values(cells, lambda texts: texts.str.strip())
        elif cells.dtype.kind == "m":
            new[name] = cells.dt.total_seconds()
        elif cells.dtype != "object":  # the code 1 does not match True
            codes = {float(code) for code in codes if is_number(code) and cells.dtype.kind in "iuf"}
        if codes and not is_nested(cells) and (missing := cells.isin(codes)).any():
            new[name] = cells.mask(missing, gap)
    return table.assign(**new)


KINDS = {
    ".parquet": "Parquet",
    ".feather": "Feather",
    ".arrow": "Feather",
    ".xlsx": "Excel",
    ".xls": "Excel",
    ".json": "JSON",
    ".jsonl": "JSON",
    ".ndjson": "JSON",
}
ARROW = ("Parquet", "Feather")


def kind_of(file: Path) -> str:
    """Return the format of a table by its file's suffix. A folder of Parquet files is one table."""
    if os.path.isdir(file) and any(chain(file.glob("*.parquet"), file.glob("*=*/**/*.parquet"))):
        return "Parquet"
    return KINDS.get(file.suffix.lower(), "CSV")


def write_parquet(file: BinaryIO, blocks: Iterable[Mapping[str, Sequence[Any]]]) -> int:
    """Write blocks of columns to a Parquet file and return the number of rows."""
    import pandas as pd

    table = pd.concat(map(pd.DataFrame, blocks))
    table.to_parquet(file, engine="pyarrow", index=False)
    return len(table)


def layout_of(file: Path, dialect: Dialect) -> Layout:
    """Return the layout of a table file, with the content of a file that is not text."""
    import pandas as pd

    if (kind := kind_of(file)) == "CSV":
        return recognise(file, dialect)
    if kind == "Excel":
        return _read_excel(file, dialect)
    if kind in ARROW:
        from pyarrow import dataset

        folder = {"partitioning": "hive", "exclude_invalid_files": True} if file.is_dir() else {}
        content = dataset.dataset(file, format=kind.lower(), **folder)
        return Layout(content.schema.names, content=content)
    how: Any = {"dtype": False, "precise_float": True, "encoding": dialect.encoding or "utf-8"}
    with opened(file) as stream:
        how["lines"] = stream.read(100).lstrip()[:1] != b"["  # an array of records
    content = pd.read_json(file, **how)
    return Layout([*map(str, content)], content=content)


def _read_excel(file: Path, dialect: Dialect) -> Layout:
    import pandas as pd

    if file.suffix.lower() == ".xls":
        raise InputError(f"{file}: the format .xls is not supported; save the file as .xlsx")
    try:
        import openpyxl  # noqa: F401
    except ImportError:
        raise InputError("Excel files require openpyxl; run pip install 'nsvm[excel]'") from None
    with pd.ExcelFile(file, engine="openpyxl") as book:
        sheets = [*map(str, book.sheet_names)]
        sheet = dialect.sheet or sheets[0]
        if sheet not in sheets:
            raise InputError(f"{file} has no sheet {sheet!r}; {did_you_mean(sheet, sheets)}")
        cells = pd.read_excel(book, sheet_name=sheet, header=None, dtype=object)
    rows = cells.iloc[:HEAD_ROWS].apply(texts).to_numpy().tolist()
    head = find_names([row if any(row) else [] for row in rows], dialect.header)
    table = cells.iloc[head.rows :].reset_index(drop=True).infer_objects()
    remarks = [f"read only sheet {sheet!r} of {len(sheets)} sheets"] * (
        len(sheets) > 1 and dialect.sheet is None
    )
    content = table.set_axis(head.names, axis="columns")
    return head._replace(remarks=[*remarks, *head.remarks], content=content)


def blocks_of_cells(
    file: Path, layout: Layout, dialect: Dialect, labels: Collection[str], text: Collection[str], rows: int
) -> Iterator[pd.DataFrame]:
    """Yield the cells of a file in blocks of at most ``rows`` rows; see ``layout_of`` and ``read_cells``."""
    import pandas as pd

    if layout.content is None:
        options = parsing(layout, dialect, labels, text)
        with opened(file) as stream, pd.read_csv(stream, **options, chunksize=rows) as chunks:
            yield from (tidied(cells, dialect, labels) for cells in chunks)
    elif isinstance(layout.content, pd.DataFrame):
        table = tidied(layout.content, dialect)
        yield from (table[start : start + rows] for start in range(0, len(table), rows))
    else:
        for batch in layout.content.to_batches(batch_size=rows):
            yield tidied(batch.to_pandas(ignore_metadata=True), dialect)


def parsing(
    layout: Layout, dialect: Dialect, labels: Collection[str], text: Collection[str]
) -> dict[str, Any]:
    """Return arguments of ``pandas.read_csv`` that keep labels and text columns verbatim."""
    names = layout.names
    if dialect.decimal == "," or dialect.thousands == ".":  # pandas expects a decimal point
        text = names
    return {
        "sep": r"\s+" if layout.separator == WHITESPACE else layout.separator,
        "encoding": layout.encoding,
        "header": None,
        "names": names,
        "skiprows": layout.rows,
        "comment": dialect.comment,
        "skipinitialspace": True,
        "dtype": dict.fromkeys({*text, *labels} & {*names}, "str"),
        "keep_default_na": False,
        "na_values": {name: [*MISSING_CODES, *dialect.codes(name)] for name in names if name not in labels},
        "index_col": False,  # otherwise the first column may become row names
    }


@contextmanager
def pandas_errors(what: str, file: Path) -> Iterator[None]:
    """Context manager: turn pandas' errors and warnings into an InputError, or a RunError about memory."""
    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows with more cells than the header
            warnings.simplefilter("ignore", pd.errors.DtypeWarning)  # see ``_read_text``
            yield
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(
            f"{what}: expected {error.encoding}, got bytes such as {shown(error.object[:20])}; set "
            "dataset.encoding=NAME or --encoding NAME, where NAME is for example cp1252, latin-1 or utf-16"
        ) from None
    except Exception as error:
        reason = f"{what} cannot be read as {kind_of(file)}: {error}"
        raise out_of_memory(error) or InputError(reason) from None
