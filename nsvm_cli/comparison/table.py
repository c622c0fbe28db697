"""A comparison as CSV, Markdown or LaTeX."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from nsvm_cli.comparison.cells import CAUTION, chooses_by_test
from nsvm_cli.comparison.compare import FEWEST_BLOCKS, Comparison, Ranking, shared_samples
from nsvm_cli.comparison.intervals import FEWEST_SEEDS
from nsvm_cli.output import printable
from nsvm_cli.storage.files import csv_text

HEAD = (
    *("settings", "seeds", "mean ± std", "95 % interval", "minus the reference", "p", "rank"),
    *("support vectors", "training, s"),
)


def to_csv(rows: Sequence[Comparison], ranks: Ranking | None, rest: str = "", escape: bool = False) -> str:
    """Return a line for each candidate on each data set, with all digits; for ``escape`` see ``csv_text``."""
    return csv_text([_figures(row) for row in rows], escape)


def _figures(row: Comparison) -> dict[str, Any]:
    cell, score, minus = row.cell, row.cell.score, row.minus
    figures = {
        "dataset": cell.dataset,
        "settings": cell.candidate,
        "split": cell.split,
        "unit": cell.scores.unit,
        "seeds": score.seeds,
        "failed": len(cell.failed),
        "mean": score.mean,
        "std": score.std,
        "low": score.low,
        "high": score.high,
        "minus_reference": minus and minus.mean,
        "minus_low": minus and minus.low,
        "minus_high": minus and minus.high,
        "pairs": minus and minus.seeds,
        "p": row.p,
        "rank": row.rank,
        "support_vectors": cell.mean("support_vectors"),
        "train_seconds": cell.mean("train_seconds"),
    }
    return {name: value if value == value else None for name, value in figures.items()}  # without NaN


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with these column heads."""
    lines = [head, ["---"] * len(head), *rows]
    cells = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def to_markdown(rows: Sequence[Comparison], ranks: Ranking | None, rest: str = "") -> str:
    """Return a table for each data set, and ``notes``."""
    parts = [f"{title}\n\n{markdown_table(HEAD, lines)}" for title, lines in tables(rows)]
    return "\n".join([*parts, f"{' '.join(notes(rows, ranks, rest))}\n"])


ESCAPES = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
ESCAPES |= {c: f"\\{c}" for c in "&%$#_{}"}
ESCAPES |= {"±": r"$\pm$", "²": "$^2$", "<": "$<$", ">": "$>$", "|": r"\textbar{}"}
ESCAPES |= {"[": "{[}", "*": "{*}"}  # at the beginning of a row, these would belong to the \\ before it


def latex(text: str) -> str:
    """Return LaTeX for a text; letters other than Latin ones need lualatex or xelatex."""
    return "".join(ESCAPES.get(c, c) for c in text)


def to_latex(rows: Sequence[Comparison], ranks: Ranking | None, rest: str = "") -> str:
    r"""Return a table for each data set, in the style of the package booktabs: \usepackage{booktabs}."""
    import pandas as pd  # slow to import, and needed only here

    parts = [r"% needs \usepackage{booktabs}", *(f"% {note}" for note in notes(rows, ranks, rest))]
    style = r"\centering\scriptsize\setlength{\tabcolsep}{3pt}"
    for title, lines in tables(rows):
        cells = [[latex(name), *(latex(n).replace("-", "$-$") for n in figures)] for name, *figures in lines]
        frame = pd.DataFrame(cells, columns=[*map(latex, HEAD)])
        columns = "l" + "r" * len(HEAD[1:])
        table = frame.to_latex(index=False, column_format=columns, caption=latex(title))
        parts.append(table.replace("\n", f"\n{style}\n", 1))
    return "\n".join(parts)


FORMATS: dict[str, Callable[[Sequence[Comparison], Ranking | None, str], str]] = {
    "markdown": to_markdown,
    "csv": to_csv,
    "latex": to_latex,
}


def tables(rows: Sequence[Comparison]) -> list[tuple[str, list[list[str]]]]:
    """Return a title for each data set, and the rows of its table as text below ``HEAD``."""
    return [(title, [*map(_line, group)]) for title, group in groupby(rows, lambda row: row.cell.title)]


def _line(row: Comparison) -> list[str]:
    cell = row.cell
    return [
        cell.candidate,
        cell.seeds,
        cell.score.spread,
        cell.score.interval(),
        "" if row.minus is None else f"{row.minus.signed}{_fewer_pairs(row)}".strip(),
        "< 0.001" if row.p < 0.001 else _known(row.p, ".3f"),
        _known(row.rank, "g"),
        _known(cell.mean("support_vectors"), ".0f"),
        _known(cell.mean("train_seconds"), ".1f"),
    ]


def _known(value: float, form: str) -> str:
    return "" if math.isnan(value) else f"{value:{form}}"


def _fewer_pairs(row: Comparison) -> str:
    """Return how many seeds a test compares, if it is not all of the row."""
    if row.minus is None or row.minus.seeds == len(row.cell.scores):
        return ""
    return f" (pairs: {row.minus.seeds})"


def notes(rows: Sequence[Comparison], ranks: Ranking | None, rest: str = "") -> list[str]:
    """Return what the columns mean, a sentence each, and the ``rest``: see ``not_counted``."""
    cells = [row.cell for row in rows if len(row.cell.scores)]
    found = [CAUTION] if chooses_by_test([row.cell for row in rows]) else []
    if repeats := sum(row.cell.repeats for row in rows):
        found.append(f"Left out, as they repeat another run with the same figures: {repeats}.")
    runs = [run for row in rows for run in row.cell.runs.values()]
    code = {str(sha256): run.path for run in runs if (sha256 := run.figures.get("plugins_sha256"))}
    if len(code) > 1:
        one, other, *_ = code.values()
        found.append(printable(f"The code of the plugins differs, as between {one} and {other}."))
    failed = [row.cell for row in rows if row.cell.failed]
    if any(None in cell.failed.values() for cell in failed):
        found.append(
            "Failed runs are left out of means and tests, which favours settings that fail; nsvm compare "
            "--failed guess scores them as guessing, where a finished run on the same data has guess_errors."
        )
    elif failed:
        found.append(
            "Guessed: failed runs, scored as the most frequent class of the training set, or R² = 0."
        )
    found += [rest] if rest else []
    if any(_fewer_pairs(row) for row in rows):
        found.append("Differences and tests take the seeds that have scores in both rows.")
    if any(len(row.cell.scores) < FEWEST_SEEDS for row in rows):
        found.append(f"Intervals and tests need {FEWEST_SEEDS} seeds.")
    if any(cell.scores.overlap for cell in cells):
        found.append(
            "Each seed splits the samples differently; intervals and tests allow for the overlap (Nadeau and "
            "Bengio, 2003)."
        )
    if any(cell.official_split for cell in cells):
        found.append(
            "On an official test set, intervals and tests cover initialisation and sampling, not its choice."
        )
    if not all(math.isnan(row.p) for row in rows):
        found.append(
            "p: paired t-test with the reference, seed by seed, adjusted (Holm) for all pairs on a data set, "
            "or for those with the reference if it was named. Each interval is for its row alone."
        )
    if len({cell.candidate for cell in cells}) >= FEWEST_BLOCKS and (why := shared_samples(cells)):
        found.append(f"No mean ranks: Friedman's test needs independent data sets, or seeds, and {why}.")
    if ranks is not None:
        order = ", ".join(f"{name} {r:.2f}" for name, r in ranks.ranks.items())
        found.append(f"Mean ranks over {ranks.over}: {order}.")
        found.append(f"{ranks.test}. Nemenyi's critical difference at the 5 % level: {ranks.critical:.2f}.")
    return found
