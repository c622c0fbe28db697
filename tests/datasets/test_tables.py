"""Tables as people write them: notations of numbers and dates, file layouts, and likely mistakes."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import re
import shlex
import zipfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

import nsvm_cli
from nsvm_cli.artifacts.prediction import predictions
from nsvm_cli.datasets import Data, load_data
from nsvm_cli.datasets.columns import Column, Survey, survey
from nsvm_cli.datasets.unlabelled import blocks
from nsvm_cli.errors import InputError
from nsvm_cli.estimators import NSVMClassifier
from tests.datasets.conftest import Write
from tests.datasets.helpers import load, refusal
from tests.small_runs import small_run

ROWS = 90
ROW = np.arange(ROWS)
RNG = np.random.default_rng(0)
WHOLE = np.array([2268, 355, 1268, 2964, 1066, 288, *RNG.integers(100, 3000, ROWS - 6)])
SMALL = np.array([50.5, 70.4, 8.4, 0.3, 45.5, 42.1, *(RNG.integers(1, 999, ROWS - 6) / 10)])
TABLE = pd.DataFrame({"age": SMALL, "label": RNG.permutation(np.resize(["no", "yes"], ROWS))})


Numbers = tuple[np.ndarray, Callable[[Any], str], np.ndarray]
"""Values, the function that writes a value, and the values that should be read."""


def german(text: str) -> str:
    return text.translate(str.maketrans(",.", ".,"))


def spelled(values: np.ndarray, spelling: Callable[[Any], str]) -> pd.Series:
    return pd.Series([spelling(value) for value in values.tolist()])


def columns(path: str, **written: Any) -> dict[str, Column]:
    return {column.name: column for column in survey(path, written, "label").columns}


def column(path: str, name: str = "x", **written: Any) -> Column:
    return columns(path, **written)[name]


def comma(spelling: str, base: np.ndarray = SMALL) -> Numbers:
    return base, lambda v: german(spelling.format(v)), base


def plain(spelling: str, base: np.ndarray = SMALL) -> Numbers:
    return base, spelling.format, base


def lakhs(value: int) -> str:
    """Format a number as in India, such as 12,34,567."""
    return re.sub(r"(?<=\d)(?=(\d\d)+,)", ",", f"{value // 1000},{value % 1000:03}")


def grouped(sign: str) -> Numbers:
    return WHOLE, lambda v: f"{v:,}".replace(",", sign), WHOLE


NUMBERS: dict[str, Numbers] = {
    "thousands": grouped(","),
    "thousands and cents": plain("{:,.2f}", WHOLE + 0.25),
    "millions": plain("{:,}", 1000 * WHOLE + 1),
    "lakhs": (1000 * WHOLE + 1, lakhs, 1000 * WHOLE + 1),
    "apostrophes": grouped("'"),
    "typographic apostrophes": grouped("\u2019"),
    "blanks": grouped(" "),
    "narrow blanks": grouped("\u202f"),
    "points and a comma": comma("{:,.2f}", WHOLE + 0.25),
    "comma": comma("{:.1f}"),
    "two digits behind a comma": comma("{:.2f}"),
    "signs and a comma": comma("{:+.1f}", -SMALL),
    "three digits behind a point": plain("{:.3f}"),
    "exponents": plain("{:.6e}", WHOLE.astype(float)),
    "a minus of typesetters": (SMALL, "\u2212{}".format, -SMALL),
    "dollars": plain("${:,.2f}", WHOLE + 0.25),
    "losses in dollars": (SMALL, "-${:.1f}".format, -SMALL),
    "euros": comma("{:.1f} €"),
    "a code of a currency": plain("USD {}", WHOLE),
    "pounds": plain("£{:,}", WHOLE),
    "per cent": plain("{}%"),
    "per cent after a blank": plain("{} %"),
    "per cent with a comma": comma("{}%"),
    "kilograms": plain("{:,} kg", WHOLE),
    "kilometres": plain("{}km"),
    "square metres": plain("{} m2", WHOLE),
    "minutes after ten": (WHOLE % 60, "10:{:02}".format, 36000 + 60.0 * (WHOLE % 60)),
    "with seconds": (WHOLE, lambda v: f"0:{v // 60:02}:{v % 60:02}", WHOLE),
    "fractions of seconds": (WHOLE % 60, "00:01:{:02}.5".format, 60.5 + WHOLE % 60),
    "in the afternoon": (WHOLE % 60, "1:{:02} PM".format, 46800 + 60.0 * (WHOLE % 60)),
    "after midnight": (WHOLE % 60, "12:{:02} a.m.".format, 60.0 * (WHOLE % 60)),
    "hours beyond a day": (WHOLE, "{}:30:00".format, WHOLE * 3600 + 1800),
    "times before a start": (WHOLE % 60, "-0:{:02}".format, -60.0 * (WHOLE % 60)),
}


def test_numbers_as_people_write_them(write: Write) -> None:
    """Each column has a different notation, which a trained model also applies to a single row."""
    cells = {name: spelled(base, spelling) for name, (base, spelling, _) in NUMBERS.items()}
    path = write(TABLE.assign(**{name: column.mask(ROW % 9 == 5, " ") for name, column in cells.items()}))
    surveyed = columns(path)
    data, known = load("csv", path=path), ROW % 9 != 5
    x = dict(zip(data.encoder.features, data.splits["all"].x.T, strict=True))
    new = pd.DataFrame({name: column.iloc[[7]] for name, column in cells.items()}).assign(age=1.0, label="no")
    later = {"name": "csv", "path": write(new, "new.csv")}
    [row] = load_data(later, 0, task=data.task, encoder=data.encoder).splits["all"].x.tolist()
    alone = dict(zip(data.encoder.features, row, strict=True))
    for name, (_, _, values) in NUMBERS.items():
        assert (name, surveyed[name].kind, surveyed[name].missing) == (name, "number", 10)
        assert surveyed[name].values == (*values[:5], None), name
        np.testing.assert_allclose(x[name][known], values[known], rtol=1e-15, err_msg=name)
        assert alone[name] == pytest.approx(values[7], rel=1e-15), name


GROUPS = ["1,308", "2,450", "3,001"]

DOUBTFUL: dict[str, tuple[list[str], dict[str, Any], list[float | None] | None]] = {
    "groups alone": (GROUPS, {"thousands": ","}, [1308, 2450, 3001]),
    "groups alone, decimal": (GROUPS, {"decimal": ","}, [1.308, 2.45, 3.001]),
    "groups beside thousands": (["1,308", "2450", "3,001"], {"thousands": ","}, [1308, 2450, 3001]),
    "groups with a sign": (["-1,308", "+2,450", "3,001"], {"decimal": ","}, [-1.308, 2.45, 3.001]),
    "groups of dollars": (["$1,308", "$2,450", "$3,001"], {"thousands": ","}, [1308, 2450, 3001]),
    **{
        f"{code!r} for missing": ([code, "7.5", "9"], {"missing": [code]}, [None, 7.5, 9])
        for code in ("?", "n.a.", "--", "(none)", "it's")
    },
    "codes": (["?", "-", "9", "8", "7"], {"missing": ["?", "-"]}, [None, None, 9]),
    "a number as a code": (["-999", "8", "9"], {"missing": ["-999"]}, [None, 8, 9]),
    "a typing error": ([*map(str, WHOLE[1:]), "35o"], {"missing": ["35o"]}, [355, 1268, 2964]),
    "categories": (["3", "4", "few"], {"text": ["x"]}, None),
}


@pytest.mark.parametrize(("cells", "settings", "values"), DOUBTFUL.values(), ids=DOUBTFUL)
def test_what_is_doubtful_goes_through_with_the_setting_that_decides(
    write: Write, cells: list[str], settings: dict[str, Any], values: list[float | None] | None
) -> None:
    path = write(TABLE[["label"]].assign(x=np.resize(cells, ROWS), n=ROW // 2))
    [(key, value)] = settings.items()
    assert any(f"dataset.{key}=" in remark for remark in column(path).remarks)
    if value != ["-999"]:
        message = refusal("csv", path=path)
        assert message.startswith(f"{path}: column x")
        assert f"dataset.{key}=" in message
    data = load("csv", path=path, **settings)
    known = data.encoder.columns["x"]
    if values is None:
        assert known == tuple(sorted({*cells}))
        return
    median = getattr(known, "median", known)
    assert data.splits["all"].x[:3, 0].tolist() == [median if v is None else v for v in values]
    assert column(path, **settings).values[:3] == tuple(values)


DATES = pd.Series(pd.Timestamp("2013-12-05") + pd.to_timedelta(RNG.integers(0, 2000, ROWS), "D"))


def test_dates_far_from_others_are_read_and_said(write: Write) -> None:
    forms = [("%Y-%m-%d", far) for far in ("", "9999-12-31", "0001-01-01")]
    forms += [("%m/%d/%y", ""), ("%d.%m.%Y", "9999-12-31"), ("%d %b %Y", "0001-01-01"), ("%Y/%m/%d", "")]
    days = [DATES.dt.strftime("%Y-%m-%d").where(ROW != 3, far or str(DATES[3])[:10]) for _, far in forms]
    cells = {
        f"x{n}": [f"{datetime.fromisoformat(day):{form.replace('%Y', day[:4])}}" for day in days[n]]
        for n, (form, _) in enumerate(forms)
    }
    surveyed = columns(write(TABLE.assign(**cells)))
    for n, (_, far) in enumerate(forms):
        found = surveyed[f"x{n}"]
        assert (found.kind, found.values) == ("date", tuple(days[n][:6]))
        assert [*found.remarks] == [f"{far} is far from all other dates"] * bool(far)


def test_a_number_above_blanks_is_no_date(write: Write) -> None:
    firsts = ("2500", "6223.8", "1850", "20140616", "7")
    surveyed = columns(write(TABLE.assign(**{f"x{first}": [first, " ", *SMALL[2:]] for first in firsts})))
    for first in firsts:
        found = surveyed[f"x{first}"]
        assert (found.kind, found.missing, found.values[0]) == ("number", 1, float(first))


WIDE = TABLE.assign(x=WHOLE, town=np.resize(["Köln", "Málaga", "Ulm"], ROWS))
TEXT = WIDE.to_csv(index=False)
HEADLESS = WIDE.to_csv(index=False, header=False)


PACK: Any = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def assert_wide(found: Survey, names: tuple[str, ...] = tuple(WIDE)) -> None:
    assert found.rows == ROWS
    columns = {column.name: column for column in found.columns}
    assert [*columns] == [*names]
    age, label, x, town = (columns[name] for name in names)
    assert [age.kind, x.kind, town.kind, label.kind] == ["number", "number", "text", "label"]
    assert (age.values, x.values) == (tuple(SMALL[:6].tolist()), tuple(WHOLE[:6].tolist()))
    assert town.values == ("Köln", "Málaga", "Ulm", "Köln", "Málaga", "Ulm")


LAYOUTS: dict[str, tuple[str, str]] = {
    **{f"separator {sign}": (TEXT.replace(",", sign), "") for sign in (";", "\t", "|", " ", "   ", ", ")},
    "separators at the ends": (TEXT.replace("\n", ",,\n"), "skipped 2 empty columns without a name"),
    "separators below the names": (TEXT.replace("\n", ",\n").replace("town,", "town"), "skipped 1 empty"),
    "a title": ("Towns of 2024\n\n" + TEXT, "skipped 2 lines above the column names"),
    "a title with separators": ("Towns,,,\n" + TEXT, "skipped 1 line above the column names"),
    "a line for Excel": ("sep=,\n" + TEXT, "skipped 1 line above the column names"),
    "comments": ("# a, b and c\n# d\n" + TEXT, "skipped 2 lines above the column names"),
    "names in a comment": ("# " + TEXT, ""),
    "quotes": (WIDE.to_csv(index=False, quoting=csv.QUOTE_ALL), ""),
    "lines of Windows": (TEXT.replace("\n", "\r\n"), ""),
    "empty lines": (TEXT.replace("\n", "\n\n"), ""),
    "units below the names": (
        TEXT.replace("town\n", "town\nyears,-,kg,\n"),
        "joined two lines of column names",
    ),
    "more names below the names": (
        TEXT.replace(",town\n", "\nyears,-,kg,town\n"),
        "joined two lines of column names",
    ),
}


BEGINNINGS = ("separator ;", "a title", "comments", "names in a comment", "quotes", "lines of Windows")
"""Layouts that differ in the first line, which the byte order mark precedes, or in line ends."""


@pytest.mark.parametrize(
    ("layout", "encoding"),
    [
        *((layout, "utf-8") for layout in LAYOUTS),
        *((layout, "utf-8-sig") for layout in BEGINNINGS),
        *((layout, "utf-16") for layout in ("comments", "names in a comment", "lines of Windows")),
        *((layout, "cp1252") for layout in ("separator ;", "quotes")),
    ],
)
def test_layouts(write: Write, layout: str, encoding: str) -> None:
    content, says = LAYOUTS[layout]
    joined = ("age years", "label -", "x kg", "town") if "joined" in says else tuple(WIDE)
    found = survey(write(content.encode(encoding)), {}, joined[1])
    assert_wide(found, joined)
    assert says in " ".join(found.lines)
    assert ("encoding" in found.lines[0]) == (encoding in ("utf-16", "cp1252"))


@pytest.mark.parametrize("separator", [",", "\t", "  "])
def test_a_table_without_names(write: Write, separator: str) -> None:
    path = write(HEADLESS.replace(",", separator))
    assert_wide(survey(path, {}, "c2"), ("c1", "c2", "c3", "c4"))
    assert "found no column names" in survey(path, {}, "c2").lines[0]
    data = load("csv", path=path, label="c2", header=False)
    assert [*data.encoder.columns] == ["c1", "c3", "c4"]
    assert not [line for line in data.remarks() if "found no column names" in line], "header=false is stated"


def test_compressed_tables(tmp_path: Path, write: Write) -> None:
    for ending, pack in PACK.items():
        assert_wide(survey(write(pack(TEXT.encode()), f"t.CSV{ending.upper()}"), {}, "label"))
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("inner/table.csv", TEXT)
    assert_wide(survey(str(tmp_path / "t.zip"), {}, "label"))


def test_tables_that_are_no_text(tmp_path: Path) -> None:
    sheets = {"notes": pd.DataFrame({"a": ["see the other sheet"]}), "data": WIDE}
    with pd.ExcelWriter(tmp_path / "t.xlsx") as book:
        for name, table in sheets.items():
            table.to_excel(book, sheet_name=name, index=False)
    WIDE.to_parquet(tmp_path / "t.parquet")
    WIDE.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    for name, how in {"t.xlsx": {"sheet": "data"}, "t.parquet": {}, "t.jsonl": {}}.items():
        assert_wide(survey(str(tmp_path / name), how, "label"))
    says = f"{tmp_path / 't.xlsx'} has no sheet 'dat'; did you mean data?"
    assert says in refusal("csv", path=str(tmp_path / "t.xlsx"), sheet="dat")


def test_types_of_arrow_are_taken_as_they_are(tmp_path: Path) -> None:
    """A folder of Parquet files may store a column in the names of its folders."""
    table = TABLE.assign(
        waited=pd.to_timedelta(WHOLE, unit="s"),
        code=[f"c{row % 7}" for row in ROW],
        share=pd.array(np.where(ROW % 9 == 5, None, SMALL), dtype="Float64"),
        year=np.where(ROW < 45, 2023, 2024),
        many=[[row] for row in ROW],
    )
    table.to_parquet(tmp_path / "t.parquet")
    table.to_feather(tmp_path / "t.feather")
    table.to_parquet(tmp_path / "parts", partition_cols=["year"])
    says = "column many: expected one value in each cell, got lists or records; add 'dataset.drop=[many]'"
    x = []
    for name in ("t.parquet", "t.feather", "parts"):
        path = str(tmp_path / name)
        assert says in refusal("csv", path=path)
        data = load("csv", path=path, drop=["many"], text=["year"])
        assert data.encoder.columns["code"] == tuple(f"c{n}" for n in range(7))
        assert data.encoder.columns["waited"] == np.median(WHOLE[data.splits.rows["train"]])
        assert data.encoder.columns["year"] == ("2023", "2024")
        again = [*blocks(Path(path), (data.samples.x.shape[1],), data.encoder)]
        np.testing.assert_array_equal(np.concatenate([part for part, _ in again]), data.samples.x)
        x.append(data.samples.x)
        [column] = [c for c in survey(path, {}, "label").columns if c.name == "share"]
        assert (column.kind, column.missing) == ("number", 10)
    np.testing.assert_array_equal(x[0], x[1])
    assert x[2].shape == x[0].shape


@pytest.mark.parametrize("blank", [" {}", "{} ", "  {}  ", "\t{}", "{}\u00a0"])
def test_blanks_around_labels(write: Write, blank: str) -> None:
    labels = TABLE["label"].where(ROW % 3 > 0, TABLE["label"].map(blank.format))
    found = survey(write(TABLE.assign(label=labels).to_csv(index=False, sep=";")), {}, "label")
    assert found.classes.keys() == {"no", "yes"}
    said = any("spaces around labels are ignored" in line for line in found.lines)
    assert said == (blank != " {}"), "only a blank after a separator is not part of the cell"


def test_codes_of_missing_values_among_labels_are_said(write: Write) -> None:
    path = write(TABLE.assign(label=TABLE["label"].mask(ROW < 5, "NA")))
    found = survey(path, {}, "label")
    assert found.classes.keys() == {"NA", "no", "yes"}
    [line] = [line for line in found.lines if "labels that are read as classes: NA" in line]
    assert "'dataset.missing={label:[NA]}' dataset.skip_unlabelled=true" in line
    data = load("csv", path=path, missing={"label": ["NA"]}, skip_unlabelled=True)
    assert (data.task.classes, data.splits.sizes["all"]) == (("no", "yes"), ROWS - 5)


def test_texts_too_many_for_categories_are_said(write: Write) -> None:
    """A column of many texts counts as an identifier unless it is the only column."""
    words = [f"w{row % 1200} x" for row in range(2400)]
    path = write(pd.DataFrame({"word": words, "label": ["a", "b"] * 1200}))
    lines = survey(path, {}, "label").lines
    says = "columns with more than 1000 different texts: word; add 'dataset.drop=[word]' to exclude them"
    assert says in lines
    assert "'dataset.drop=[word]'" in lines[-1]
    assert "expected at most 1000 different texts, got" in refusal("csv", path=path)


def test_lost_zeros_are_said(write: Write) -> None:
    path = write(TABLE.assign(zip=np.resize(["02208", "10115", "02139"], ROWS)))
    assert column(path, "zip").values[:2] == (2208, 10115)
    assert "numbers in zip lose leading zeros; add 'dataset.text=[zip]'" in survey(path, {}, "label").lines[0]
    assert load("csv", path=path, text=["zip"]).encoder.columns["zip"] == ("02139", "02208", "10115")


def test_a_word_far_below_numbers_makes_them_text(write: Write) -> None:
    rows = 200_000
    x = pd.Series(np.resize([1.5, 20, -3], rows)).astype(str).mask(np.arange(rows) == rows - 1, "?")
    path = write(pd.DataFrame({"x": x, "label": np.resize(["no", "yes"], rows)}))
    assert f"{path}: column x, row {rows}: expected numbers, found '?' in 1 cell" in refusal("csv", path=path)
    assert load("csv", path=path, missing=["?"]).samples.x[:2, 0].tolist() == [1.5, 20.0]


def test_rare_classes_are_named_at_once(write: Write) -> None:
    labels = TABLE["label"].mask(ROW < 3, pd.Series(["maybe", "y", "n"]))
    path = write(TABLE.assign(label=labels))
    message = refusal("csv", path=path)
    assert all(name in message for name in ("maybe", "y", "n", "dataset.min_count=3"))
    data = load("csv", path=path, min_count=3)
    assert (data.task.classes, data.splits.sizes["all"]) == (("no", "yes"), ROWS - 3)
    assert f"{path}: skipped 3 rows without a label or in rare classes" in data.remarks()
    data = load("csv", path=path, test_path=path, min_count=3)
    assert data.splits.sizes["test"] == ROWS - 3
    unlabelled = write(TABLE.assign(label=""), "unlabelled.csv")
    message = refusal("csv", path=path, min_count=3, test_path=unlabelled, skip_unlabelled=True)
    assert "the test set has no labelled samples" in message


def test_leaks_doubles_codes_and_identifiers_are_said(write: Write) -> None:
    table = TABLE.assign(
        outcome=TABLE["label"].map({"no": "alive", "yes": "dead"}),
        code=np.where(ROW % 8 == 0, -999, WHOLE),
        customer=[f"C{17 * row:05}" for row in ROW],
        counter=ROW + 1000,
        none="",
    )
    found = survey(write(pd.concat([table, table[:20]])), {}, "label")
    columns = {column.name: column for column in found.columns}
    assert any("alone predicts the label in 100 % of rows" in line for line in columns["outcome"].remarks)
    assert any("dataset.missing=[-999]" in line for line in columns["code"].remarks)
    assert "duplicate rows: 20; the training set" in " ".join(found.lines)
    for settings in ({}, {"drop": ["age"]}):
        data = load("csv", path=write(table), **settings)
        assert {"customer", "counter", "none"}.isdisjoint(data.encoder.columns)
        assert any(line.startswith("excluded because they are empty: none") for line in data.remarks())
    assert "counter" in load("csv", path=write(table), include=["counter"]).encoder.columns


NAMES = ["the label", "it's", 'a "b"', "[x]", "a,b", "Größe", "$x", "a=b", "100%", r"a\b", r"a\'b"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_columns_are_printed_as_they_are_typed(write: Write, name: str) -> None:
    path = write(TABLE.rename(columns={"label": name}).assign(**{f"{name} 2": ROW}))
    *lines, last = survey(path, {}, name).lines
    words = shlex.split(last.removeprefix("to train: "))
    time = next(line for line in lines if "looks like a row number" in line)
    [word] = shlex.split(time[time.index("add ") + 4 :])
    overrides = OverridesParser.create().parse_overrides([*words[2:], word])
    typed = {override.key_or_group: override.value() for override in overrides}
    found = (typed[f"dataset.{key}"] for key in ("path", "label", "time"))
    assert [value if isinstance(value, str) else value.text for value in found] == [path, name, f"{name} 2"]


def test_with_a_stated_comma_a_point_separates_thousands(write: Write) -> None:
    table = TABLE.drop(columns="age")
    path = write(table.assign(x=np.resize(["1.030", "2.100", "350"], ROWS)))
    assert column(path).values[:3] == (1.03, 2.1, 350.0), "a point is a decimal sign by default"
    assert column(path, decimal=",").values[:3] == column(path, thousands=".").values[:3] == (1030, 2100, 350)
    other = write(table.assign(x=np.resize(["50.5", "3.25"], ROWS)))
    assert "column x, row 1: expected numbers, found '50.5'" in refusal("csv", path=other, decimal=",")


def written(rng: np.random.Generator, table: pd.DataFrame) -> tuple[bytes, str, dict[str, bool]]:
    """Return a table in a random dialect, its file name, and whether it has column names."""
    separator, decimal = rng.choice([",", ";", "\t", "|"]), rng.choice([".", ","])
    thousands, header = rng.choice(["", "'", {".": ",", ",": "."}[decimal]]), bool(rng.random() < 0.7)

    def number(value: float, form: str) -> str:
        signs = str.maketrans({",": thousands, ".": decimal})
        return "" if np.isnan(value) else form.format(value).translate(signs)

    forms = {"money": "{:,.2f}", "count": "{:,.0f}", "share": "{:.3f}"}
    cells = table.assign(**{name: [number(v, form) for v in table[name]] for name, form in forms.items()})
    if code := rng.choice(["", "NA", "?", "-"]):
        cells["share"] = cells["share"].replace("", code)
    quoting = int(rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    text = cells.to_csv(index=False, sep=str(separator), header=header, quoting=quoting)
    ending = str(rng.choice([*PACK]))
    encoding = str(rng.choice(["utf-8", "utf-8-sig", "utf-16", "cp1252"]))
    return PACK[ending](text.encode(encoding)), f"t.csv{ending}", {"names": header}


def settled(path: str, label: str) -> Data:
    """Load a table. If it is refused, load it with the setting that the error message suggests."""
    try:
        return load("csv", path=path, label=label)
    except InputError as error:
        message = str(error)
    [code] = re.findall(r"add \"dataset\.missing=\['(.)'\]\" if they mean missing values", message)
    return load("csv", path=path, label=label, missing=[code])


def test_random_tables_are_read_back_with_the_settings_that_are_advised(write: Write) -> None:
    rng = np.random.default_rng(0)
    for _ in range(10):
        m = int(rng.integers(30, 60))
        table = pd.DataFrame(
            {
                "money": (rng.lognormal(7, 2, m)).round(2),
                "count": rng.integers(0, 10 ** int(rng.integers(2, 7)), m).astype(float),
                "share": np.where(rng.random(m) < 0.1, np.nan, rng.normal(size=m).round(3)),
                "town": rng.choice(["Köln", "Bad Ems", "Ulm; Süd", "Trier, West"], m),
                "day": (pd.Timestamp("2020-01-13") + pd.to_timedelta(rng.integers(0, 900, m), "D")),
                "label": np.resize(["yes", "no"], m),
            }
        )
        form = str(rng.choice(["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y"]))
        content, name, has = written(rng, table.assign(day=table["day"].dt.strftime(form)))
        names = [*table] if has["names"] else [f"c{k}" for k in range(1, 7)]
        data = settled(write(content, name), names[-1])
        x = dict(zip(data.encoder.features, data.splits["all"].x.T.numpy(), strict=True))
        for name, known in zip(names, table, strict=True):
            if known in ("money", "count", "share"):
                truth = table[known].fillna(data.encoder.kinds[name].median)
                np.testing.assert_allclose(x[name], truth, rtol=1e-12, err_msg=str(content[:200]))
        days = (table["day"] - pd.Timestamp(0)) / pd.Timedelta(days=1)
        np.testing.assert_array_equal(x[f"{names[4]}.days"], days)
        towns = [town for town in sorted({*table["town"]}) if f"{names[3]}={town}" in x]
        for town in towns:
            np.testing.assert_array_equal(x[f"{names[3]}={town}"], table["town"] == town)


def test_a_model_predicts_the_same_from_files_and_data_frames(tmp_path: Path, write: Write) -> None:
    raw = WIDE.assign(
        price=spelled(WHOLE + 0.25, "${:,.2f}".format).mask(ROW % 7 == 0, "?"),
        day=DATES.dt.strftime("%d.%m.%Y"),
        x=spelled(WHOLE, "{:,}".format),
    )
    settings = {"name": "csv", "path": write(raw), "missing": ["?"], "validation": 0}
    changes = {"network": {"name": "identity"}, "algorithm": {"name": "pegasos", "steps": 100}}
    small_run(tmp_path / "run", dataset=settings, **changes)
    model = nsvm_cli.load_model(tmp_path / "run")
    new = raw.drop(columns="label")
    held = new.assign(x=WHOLE, day=DATES, price=pd.Series(WHOLE + 0.25).mask(ROW % 7 == 0))
    files = [tmp_path / name for name in ("a.csv", "b.parquet", "c.xlsx", "d.parquet", "e.xlsx", "f.jsonl")]
    files[0].write_bytes(new.to_csv(index=False, sep=";").encode("utf-16"))
    new.to_parquet(files[1])
    new.to_excel(files[2], index=False)
    held.to_parquet(files[3])  # numbers and dates instead of text
    held.to_excel(files[4], index=False)
    new.to_json(files[5], orient="records", lines=True)
    frames = [NSVMClassifier.load(tmp_path / "run").decision_function(table) for table in (new, held)]
    scores = [[g for block in predictions(model, file) for g in block["score"]] for file in files]
    assert len(scores[0]) == ROWS
    for other in (*scores[1:], *frames):
        np.testing.assert_array_equal(np.float32(other), np.float32(scores[0]))
    new.head(1).to_csv(tmp_path / "one.csv", index=False)
    [block] = predictions(model, tmp_path / "one.csv")
    np.testing.assert_allclose(block["score"], scores[0][:1], rtol=1e-5)


def test_dates_that_are_lost_are_said(write: Write) -> None:
    """A remark explains why a column is not read as dates although most of its cells are dates."""
    both = [f"{day:02}/{month:02}/2024" for day in range(1, 13) for month in range(1, 13)]
    assert column(write(TABLE.assign(x=np.resize(both, ROWS)))).remarks == (
        "all cells are dates, but it is ambiguous whether the day or the month comes first",
    )
    some = DATES.dt.strftime("%Y-%m-%d").mask(ROW == 7, "in spring")
    assert column(write(TABLE.assign(x=some))).remarks == (
        "only 99% of the cells are dates in the same format",
    )
    short = DATES.dt.strftime("%d-%b-%y")
    assert column(write(TABLE.assign(x=short))).kind == "date"
