"""Notations of numbers in tables: separators of thousands, currencies, units and times of day."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from nsvm_cli.config.overrides import override
from nsvm_cli.config.registry import STRICT

if TYPE_CHECKING:
    import pandas as pd

ASCII = str.maketrans({"\u2212": "-", "\u2019": "'", "\u00a0": " ", "\u202f": " ", "\u2009": " "})
"""Maps typographic minus signs, apostrophes and blanks to ASCII."""

CURRENCY = "$€£¥₹₽₩₺₪₫₦฿"

NUMBER = re.compile(
    rf"(?P<before>[+-]?)(?P<prefix>(?:[A-Z]{{0,3}}[{CURRENCY}]|[A-Z]{{2,3}}(?=\s)|Rs\.?)?)\s*(?P<sign>[+-]?)"
    r"(?P<core>(?:\d(?:[\d.,' ]*\d)?[.,]?|[.,]\d+)(?:[eE][+-]?\d+)?)"
    r"\s*(?P<suffix>(?:\+|[^\d\s.,'+-][^\d]{0,15}(?:(?<=m)[23])?)?)"
)
"""Matches a number with a currency or unit, but not names such as C00017 and Ward 1."""

CLOCK = re.compile(r"(-?)(\d{1,4}):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?(?:\s*([AP])\.?M\.?)?", re.IGNORECASE)

FEW = 20
"""Maximum number of distinct cells that may be codes, such as ratings or missing values."""

Decimal = Literal[".", ","]
Thousands = Literal["", ".", ",", "'", " "]


@functools.lru_cache(2**16)
def number_parts(text: str) -> tuple[tuple[str, str], str, str] | None:
    """Return (prefix, suffix), the sign and the digits of a number; None if the text is not a number."""
    match = NUMBER.fullmatch(text.translate(ASCII).strip())
    if match is None or (match["before"] and match["sign"]):
        return None
    return (match["prefix"], match["suffix"].strip()), match["before"] + match["sign"], match["core"]


MOST_CATEGORIES = 1000
"""Maximum number of categories in a column of text, and of codes in a column of numbers."""


@dataclass(frozen=True, config=STRICT)
class NumberFormat:
    """The notation of the numbers in a column, and their median in the training rows, which fills gaps.

    The numbers in ``codes`` are also one-hot encoded. With ``clock``, the numbers are times of day or
    durations, which are read as seconds.
    """

    decimal: Decimal = "."
    thousands: Thousands = ""
    prefix: Annotated[str, Field(max_length=16)] = ""
    suffix: Annotated[str, Field(max_length=32)] = ""
    clock: bool = False
    median: float = 0.0
    codes: Annotated[tuple[float, ...], Field(max_length=MOST_CATEGORIES)] = ()

    @functools.cached_property
    def form(self) -> re.Pattern[str]:
        """The pattern of a number without its sign and unit. Digits may be grouped as in India: 1,00,000."""
        between, point = re.escape(self.thousands), re.escape(self.decimal)
        groups = rf"[1-9]\d{{0,2}}(?:{between}\d{{3}})+|[1-9]\d?(?:{between}\d{{2}})+{between}\d{{3}}"
        whole = rf"\d+|{groups}" if self.thousands else r"\d+"
        return re.compile(rf"(?:(?:{whole})(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?")

    @property
    def is_plain(self) -> bool:
        """Whether numbers are written as in Python."""
        return replace(self, median=0.0, codes=()) == NumberFormat()

    @property
    def rescales(self) -> bool:
        """Whether a number without its unit may be on another scale, for example 0.05 instead of 5 %."""
        return self.clock or self.suffix in ("%", "‰")

    def number(self, text: str) -> float | None:
        """Return the value of a number in this notation; None for other text."""
        if self.clock:
            if (time := CLOCK.fullmatch(text.translate(ASCII).strip())) is None:
                return None
            hours = int(time[2]) if time[5] is None else int(time[2]) % 12 + 12 * (time[5] in "Pp")
            seconds = hours * 3600 + int(time[3]) * 60 + float(time[4] or 0)
            return -seconds if time[1] else seconds
        affix, sign, core = number_parts(text) or (None, "", "")
        if not _has_affix(affix, core, (self.prefix, self.suffix)) or not self.form.fullmatch(core):
            return None
        return float(sign + core.replace(self.thousands, "").replace(self.decimal, "."))

    def __call__(self, texts: pd.Series) -> pd.Series:
        """Return cells of text as float64, with NaN for empty cells and text that is not a number."""
        import pandas as pd

        def numbers(texts: pd.Series) -> pd.Series:
            x = pd.Series(np.nan, texts.index)
            if self.is_plain:
                x = pd.to_numeric(texts, errors="coerce").astype("float64")
            others = texts[x.isna()]  # for example with a typographic minus sign
            return x.fillna(pd.Series([*map(self.number, others)], others.index, "float64"))

        return map_values(texts, numbers)

    def __str__(self) -> str:
        """Return how this notation differs from Python's notation."""
        lines = [f"decimal sign {self.decimal!r}"] * (self.decimal != ".")
        lines += [f"thousands separated by {self.thousands!r}"] * bool(self.thousands)
        lines += [f"{affix!r} is ignored" for affix in (self.prefix, self.suffix) if affix]
        return "times are converted to seconds" if self.clock else ", ".join(lines)


NO_VALUE = {"na", "n/a", "nan", "null", "none", "unknown", "missing"}
"""Words that usually mean a missing value, in lower case."""

READINGS = (
    NumberFormat(),
    NumberFormat(thousands=","),
    NumberFormat(decimal=","),
    NumberFormat(decimal=",", thousands="."),
    *(NumberFormat(decimal, thousands) for decimal in (".", ",") for thousands in ("'", " ")),
)
"""Candidate notations, which differ in the decimal and thousands separators, in order of preference."""


@plain_dataclass(frozen=True)
class Doubt:
    """A column that may or may not hold numbers.

    ``cells`` counts the cells that are not numbers, most frequent first. If it is empty, the comma in
    ``example`` is ambiguous.
    """

    cells: Mapping[str, int]
    example: str = ""

    def __str__(self) -> str:
        if not self.cells:
            return f"the comma in {self.example!r} may be a decimal sign or a thousands separator"
        (cell, count), *others = self.cells.items()
        first, rest = (f"{n} cell{'s' * (n > 1)}" for n in (count, sum(n for _, n in others)))
        return f"expected numbers, found {cell!r} in {first}" + f" and other text in {rest}" * bool(others)


def remedies(doubts: Mapping[str, Doubt]) -> list[tuple[str, Any, str]]:
    """Return (setting, value, meaning) for each data-set setting that would resolve the doubts."""
    cells = dict.fromkeys(cell for doubt in doubts.values() for cell in doubt.cells)
    columns = {name: [*doubt.cells] for name, doubt in doubts.items() if doubt.cells}
    settings: list[tuple[str, Any, str]] = []
    if 0 < len(cells) <= 8:  # more codes would not fit in the advice
        everywhere = all(not any(map(str.isalnum, cell)) or cell.lower() in NO_VALUE for cell in cells)
        settings.append(("missing", [*cells] if everywhere else columns, "they mean missing values"))
    if columns:
        settings.append(("text", [*columns], "the column contains categories"))
    if len(columns) < len(doubts):
        settings.append(("thousands", ",", "commas separate thousands"))
        settings.append(("decimal", ",", "commas are decimal signs"))
    return settings


def remedy(doubts: Mapping[str, Doubt]) -> str:
    """Return advice on settings that would resolve the doubts."""
    words = [f"{override(f'dataset.{key}', value)} if {use}" for key, value, use in remedies(doubts)]
    return f"add {', or '.join(words)}"


def is_number(text: str) -> bool:
    """Return whether pandas reads the text as a finite number."""
    import pandas as pd

    return math.isfinite(pd.to_numeric(text, errors="coerce"))


def map_values(cells: pd.Series, function: Callable[[pd.Series], pd.Series]) -> pd.Series:
    """Return ``function(cells)``, evaluated once for each distinct value, with NaN for empty cells."""
    import pandas as pd

    codes, unique = pd.factorize(cells)
    values = pd.Series(unique)
    results = function(values)
    return cells if results.equals(values) else results.reindex(codes).set_axis(cells.index)


def notations(
    columns: Mapping[str, pd.Series], decimal: Decimal | None = None, thousands: Thousands | None = None
) -> dict[str, NumberFormat | Doubt | None]:
    """Return the notation of the numbers in each column of text; None for columns that hold no numbers.

    A decimal sign that is certain in one column applies to all columns. ``decimal`` and ``thousands`` are
    signs that the user has set.
    """
    read = {name: _Column.of(cells.dropna()) for name, cells in columns.items()}
    if decimal is None and thousands in (".", ","):
        decimal = "," if thousands == "." else "."
    proven = {column.proven for column in read.values() if column} - {None}
    if decimal is None and len(proven) == 1:
        decimal = proven.pop()
    return {name: column.notation(decimal, thousands) if column else None for name, column in read.items()}


def _has_affix(affix: tuple[str, str] | None, core: str, wanted: tuple[str, str]) -> bool:
    """Return whether a number has the prefix and suffix ``wanted``; the number 0 may lack both."""
    return affix == wanted or (affix == ("", "") and not core.strip("0."))


@plain_dataclass(frozen=True)
class _Column:
    """A column of text: counts of its cells, and shapes of its numbers, in which 9 stands for any digit."""

    counts: Mapping[str, int]
    affix: tuple[str, str]
    shapes: Mapping[str, str]
    clock: bool = False

    @classmethod
    def of(cls, cells: pd.Series) -> _Column | None:
        """Return the column with the affixes of most cells; None if most cells are not numbers."""
        counts: dict[Any, int] = cells.groupby(cells, sort=False).size().to_dict()
        clocks = [text for text in counts if ":" in text and CLOCK.fullmatch(text.translate(ASCII).strip())]
        if clocks and 2 * len(clocks) >= len(counts):
            return cls(counts, ("", ""), dict.fromkeys(clocks, ""), clock=True)
        numbers = {text: parts for text in counts if (parts := number_parts(text))}
        share = sum(map(counts.__getitem__, numbers)) / sum(counts.values())
        if min(share, len(numbers) / len(counts)) < 0.5:
            return None
        affix, _ = Counter(parts[0] for parts in numbers.values()).most_common(1)[0]
        cores = {text: core for text, (beside, _, core) in numbers.items() if _has_affix(beside, core, affix)}
        # a leading zero is kept, because groups of thousands do not begin with it
        return cls(counts, affix, {text: re.sub("(?!^0)[0-9]", "9", core) for text, core in cores.items()})

    def best(self, among: Sequence[NumberFormat] = READINGS) -> list[NumberFormat]:
        """Return the candidate notations that match the maximum number of cells."""
        shapes = Counter(self.shapes.values())
        fits = [sum(n for shape, n in shapes.items() if way.form.fullmatch(shape)) for way in among]
        return [way for way, count in zip(among, fits, strict=True) if count == max(fits)]

    @property
    def proven(self) -> Decimal | None:
        """The decimal sign, if only one sign suits the cells."""
        decimals = {way.decimal for way in self.best()}
        return decimals.pop() if not self.clock and len(decimals) == 1 else None

    def notation(self, decimal: Decimal | None, thousands: Thousands | None) -> NumberFormat | Doubt | None:
        """Return how numbers are written, a ``Doubt`` if that is ambiguous, or None for text."""
        if self.clock:
            return self._unless_others(NumberFormat(clock=True), {*self.shapes})
        among = [
            way for way in READINGS if decimal in (None, way.decimal) and thousands in (None, way.thousands)
        ]
        best = self.best(among)
        shapes = {*self.shapes.values()}
        if not any(way.form.fullmatch(shape) for way in READINGS for shape in shapes):  # for example 1,2,3
            return None
        notation: NumberFormat | Doubt = replace(best[0], prefix=self.affix[0], suffix=self.affix[1])
        if best[0] == NumberFormat(thousands=",") and NumberFormat(decimal=",") in best:
            # the comma of 1,308 separates thousands if all whole numbers are below 1,000
            whole = [len(shape) for shape in self.shapes.values() if shape.isdecimal()]
            if max(whole, default=4) > 3:
                notation = Doubt({}, next(text for text in self.shapes if "," in text))
        numbers = {text for text, shape in self.shapes.items() if best[0].form.fullmatch(shape)}
        return self._unless_others(notation, numbers)

    def _unless_others(
        self, notation: NumberFormat | Doubt, numbers: Set[str]
    ) -> NumberFormat | Doubt | None:
        """Return ``notation`` if all cells are ``numbers``, None if they are text, otherwise a ``Doubt``."""
        others = Counter({text: n for text, n in self.counts.items() if text not in numbers})
        if not others:
            return notation
        mixed = [text for text in others if text not in self.shapes and any(map(str.isdecimal, text))]
        affixes = {parts[0] for text in mixed if (parts := number_parts(text))} - {("", "")}
        named = [
            text
            for text in mixed
            if any(map(str.isalpha, text)) and not (number_parts(text) and len(affixes) < 4)
        ]
        # ratings such as 3+, many words, and many cells of letters and digits are text
        often = sum(others[text] for text in named) >= 0.05 * sum(self.counts.values())
        words = [text for text in others if not any(map(str.isdecimal, text))]
        if often or (mixed and len(numbers) <= FEW) or len(words) > FEW:
            return None
        return Doubt(dict(others.most_common()))
