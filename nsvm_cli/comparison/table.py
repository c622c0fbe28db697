"""A comparison as CSV, Markdown or LaTeX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from nsvm_cli.comparison.compare import Cell, Comparison, Ranking, named_metrics, shared_samples
from nsvm_cli.comparison.intervals import FEWEST_SEEDS, LEVEL, known
from nsvm_cli.config.settings import flat
from nsvm_cli.output import printable
from nsvm_cli.storage.files import csv_text
from nsvm_cli.words import baseline_warning, decapitalised, generalisation


def to_csv(rows: Sequence[Comparison], escape: bool = False) -> str:
    """Return the comparison as CSV with all digits, one row for each candidate on each data set."""
    return csv_text([_figures(row) for row in rows], escape)


def _figures(row: Comparison) -> dict[str, Any]:
    cell, score, minus = row.cell, row.cell.score, row.minus
    figures = {
        "dataset": cell.dataset,
        "settings": cell.candidate,
        "split": cell.split,
        "unit": cell.unit,
        "seeds": score.seeds,
        "failed": len(cell.failed),
        **{name: getattr(score, name) for name in ("mean", "std", "low", "high")},
        "minus_reference": minus and minus.mean,
        "minus_low": minus and minus.low,
        "minus_high": minus and minus.high,
        "pairs": minus and minus.seeds,
        "p": row.p,
        "rank": row.rank,
        **{name: cell.mean(name) for name in ("support_vectors", "train_seconds", "theta_steps")},
        "part_steps": cell.part_steps,
    }
    return {name: value if value == value else None for name, value in figures.items()}  # without NaN


def to_markdown(rows: Sequence[Comparison], notes: Sequence[str] = ()) -> str:
    """Return a Markdown table for each data set, followed by the notes."""
    parts = []
    for title, frame in tables(rows).items():
        lines = [frame.columns, ["---"] * frame.shape[1], *frame.to_numpy()]
        cells = ([cell.replace("|", r"\|") for cell in line] for line in lines)
        parts.append("".join([f"{title}\n\n", *(f"| {' | '.join(line)} |\n" for line in cells)]))
    return "\n".join([*parts, f"{' '.join(notes)}\n"])


def to_latex(rows: Sequence[Comparison], notes: Sequence[str] = ()) -> str:
    """Return a LaTeX table for each data set, in the style of the package booktabs; notes are comments."""
    parts = [r"% needs \usepackage{booktabs}", *(f"% {note}" for note in notes)]
    style = r"\centering\scriptsize\setlength{\tabcolsep}{3pt}"
    for title, frame in tables(rows).items():
        frame = frame.map(latex).rename(columns=latex)
        # an empty group, since a [ after the \\ of the line above would be its option
        frame.iloc[:, 0] = "{}" + frame.iloc[:, 0]
        frame.iloc[:, 1:] = frame.iloc[:, 1:].replace("-", "$-$", regex=True)
        columns = "l" + "r" * (frame.shape[1] - 1)
        table = frame.to_latex(index=False, column_format=columns, caption=latex(title))
        parts.append(table.replace("\n", f"\n{style}\n", 1))
    return "\n".join(parts)


ESCAPES: dict[str, str | int | None] = {c: f"\\{c}" for c in "&%$#_{}"}
ESCAPES |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
ESCAPES |= {"±": r"$\pm$", "²": "$^2$", "<": "$<$", ">": "$>$", "|": r"\textbar{}"}
"""LaTeX for characters that pandas would escape, and for characters that the usual fonts lack."""


def latex(text: str) -> str:
    """Escape a text for LaTeX. Non-Latin letters are kept; they need lualatex or xelatex."""
    return text.translate(str.maketrans(ESCAPES))


def tables(rows: Sequence[Comparison]) -> dict[str, pd.DataFrame]:
    """Return a table of text for each data set, by title. Columns of equal step counts are dropped."""
    frames = {}
    for title, group in groupby(rows, lambda row: row.cell.title):
        frame = pd.DataFrame(map(_texts, group))
        constant = [name for name in ("steps of theta", "steps of each part") if frame[name].nunique() == 1]
        frames[title] = frame.drop(columns=constant)
    return frames


def _texts(row: Comparison) -> dict[str, str]:
    cell, minus = row.cell, row.minus
    pairs = f" (pairs: {minus.seeds})" if minus and minus.seeds < len(cell.scores) else ""
    return {
        "settings": cell.candidate,
        "seeds": cell.seeds,
        "mean ± std": cell.score.spread,
        "95 % interval": cell.score.interval(),
        "minus the reference": f"{minus.signed}{pairs}".strip() if minus else "",
        "p": "< 0.001" if row.p < 0.001 else known(row.p, ".3f"),
        "rank": known(row.rank, "g"),
        "support vectors": known(cell.mean("support_vectors"), ".0f"),
        "training, s": known(cell.mean("train_seconds"), ".1f"),
        "steps of theta": known(cell.mean("theta_steps"), ".0f"),
        "steps of each part": cell.part_steps,
    }


EXPLANATIONS = {
    "test": "These are test scores. To choose settings, train with dataset.validation=N and compare "
    "validation scores.",
    "failed": "Failed runs are excluded from means and tests, although this favours settings that fail. To "
    "give failed runs the score of guessing, use nsvm compare --failed guess. A finished run on the same "
    "data must have recorded this score.",
    "guessed": "Each failed run marked as guessed gets the score of always predicting the most frequent "
    "training class, or R² = 0.",
    "few": f"Intervals and tests require at least {FEWEST_SEEDS} seeds.",
    "overlap": "Each seed splits the samples differently. Intervals and tests are corrected for the overlap "
    "of the splits (Nadeau and Bengio, 2003).",
    "official": "If all seeds use the same held-out data, intervals and tests include the variance from "
    "initialisation and sampling, but not from the choice of the data.",
    "p": "p is the p-value of a t-test against the reference, paired by seed. Holm's method adjusts it for "
    "all pairs on a data set or, with --against, for the pairs with the reference. Intervals are not "
    "adjusted.",
    "shared": "Mean ranks are omitted, because Friedman's test requires independent data sets or seeds, but "
    "these data sets or seeds share samples.",
}


def answers(rows: Sequence[Comparison]) -> list[str]:
    """Return sentences on the best candidate of each data set, its lead, and overfitted candidates."""
    sentences = []
    for title, group in groupby(rows, lambda row: row.cell.title):
        scored = [row for row in group if row.cell.scores]
        if len(scored) < 2 or scored[0].minus is not None:
            continue
        best, *rest = scored
        worse = [row for row in rest if row.p < 1 - LEVEL and row.minus is not None]
        equal = [row.cell.candidate for row in rest if row.p >= 1 - LEVEL]
        leads = (f"{row.cell.candidate} (by {row.minus.magnitude})" for row in worse if row.minus is not None)
        parts = [f"better than {', '.join(leads)}"] * bool(worse)
        parts += [f"no significant difference from {', '.join(equal)}"] * bool(equal)
        score = f"{title}: {best.cell.candidate} has the best score, {best.cell.score.spread}"
        sentences.append(f"{score}{': ' * bool(parts)}{'; '.join(parts)}.")
        for row in scored:
            name, runs = row.cell.candidate, [run.figures for run in row.cell.runs.values()]
            scores = [key for key in row.cell.figures if all(isinstance(run.get(key), float) for run in runs)]
            mean = {**row.cell.figures, **{key: row.cell.mean(key) for key in scores}}
            if runs and all(baseline_warning(run, row.cell.split) for run in runs):
                sentences.append(f"{name}: {decapitalised(baseline_warning(mean, row.cell.split))}")
            elif runs and all(generalisation(run, row.cell.split) for run in runs):
                sentences.append(f"{name} is overfitted: {generalisation(mean, row.cell.split)}.")
    return sentences


def notes(rows: Sequence[Comparison], ranks: Ranking | None, runs: int) -> list[str]:
    """Return the conclusions, warnings and explanations that are printed below a comparison."""
    cells = [row.cell for row in rows]
    scored = [cell for cell in cells if cell.scores]
    with_failures = [cell for cell in cells if cell.failed]
    applies = {
        "test": cells[0].split == "test" and len({cell.candidate for cell in cells}) > 1,
        "failed": any(len(cell.scores) == len(cell.runs) for cell in with_failures),
        "guessed": any(len(cell.scores) > len(cell.runs) for cell in with_failures),
        "few": any(len(cell.scores) < FEWEST_SEEDS for cell in cells),
        "overlap": any(cell.overlap for cell in scored),
        "official": any(not c.overlap and not c.figures["data"]["generated"] for c in scored),
        "p": not all(math.isnan(row.p) for row in rows),
        "shared": shared_samples(scored),
    }
    sentences = [*answers(rows), *cautions(cells, runs)]
    sentences += [sentence for name, sentence in EXPLANATIONS.items() if applies[name]]
    if ranks is not None:
        order = ", ".join(f"{name} {r:.2f}" for name, r in ranks.ranks.items())
        critical = f"Nemenyi's critical difference at the 5 % level: {ranks.critical:.2f}."
        sentences.append(f"Mean ranks over {ranks.over}: {order}. {ranks.test}. {critical}")
    return sentences


def cautions(cells: Sequence[Cell], runs: int) -> list[str]:
    """Return warnings about skipped runs, different metrics, and different versions of plugin code."""
    compared = [run for cell in cells for run in cell.runs.values()]
    sentences = []
    if skipped := runs - len(compared) - sum(len(cell.failed) for cell in cells):
        why = "they have not finished, failed before recording settings, or repeat a run's settings and seed"
        sentences.append(f"Excluded: {skipped} of {runs} runs ({why}).")
    if len(metrics := named_metrics(compared)) > 1:
        names = ", ".join(sorted(metric or "none" for metric in metrics))
        sentences.append(
            f"The runs set different metrics ({names}): the table shows the default metric of the task."
        )
    paths_by_code: dict[str, dict[str, str]] = {}  # runs with different components load different plugins
    for run in compared:
        parts = [value for key, value in flat(run.settings).items() if key.endswith((".name", "callbacks"))]
        if code := run.figures.get("plugins_sha256"):
            paths_by_code.setdefault(str(parts), {})[str(code)] = str(run.path)
    if differ := [[*paths.values()] for paths in paths_by_code.values() if len(paths) > 1]:
        first, second, *_ = differ[0]
        sentences.append(
            printable(f"The code of plugins differs between runs, such as {first} and {second}.")
        )
    return sentences
