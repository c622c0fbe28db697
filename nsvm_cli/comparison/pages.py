"""Reports on one run, or on a comparison of several runs, as HTML pages."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from nsvm_cli.comparison.compare import Comparison, Ranking, cells, compare, ranking
from nsvm_cli.comparison.figures import figures as charts
from nsvm_cli.comparison.records import RunRecord, figures_shown, overridden, runs_table
from nsvm_cli.comparison.table import notes, tables
from nsvm_cli.config.settings import flat
from nsvm_cli.errors import InputError
from nsvm_cli.page.document import Blocks, Command, Section, Table, left_out, render, section
from nsvm_cli.page.plotting import to_picture
from nsvm_cli.page.sections import pairs, run_sections, settings_tables
from nsvm_cli.storage.files import write_atomically
from nsvm_cli.storage.run_directory import damage_errors

LABELS = {
    "curves": "Scores during and after training: the mean over the seeds, and the range of the seeds",
    "ranks": "Mean ranks of the settings; settings whose bars overlap do not differ significantly",
}
"""Captions of the charts of a comparison, by the names that ``comparison.figures.figures`` gives them."""


def write_report(
    file: Path, records: Sequence[RunRecord], runtime: Mapping[str, Any], named: bool = False
) -> list[str]:
    """Write an HTML report on one run with its model, or on a comparison of several runs.

    Return a line for each section that could not be written, with the reason. ``named`` is whether the user
    chose the name of the file, and ``runtime`` are runtime settings for the model (see ``load_trained``).
    """
    title, subtitle, sections = _of_run(records[0], runtime) if len(records) == 1 else _of_several(records)
    write_atomically(file, render(title, subtitle, sections).encode(), named)
    return [f"{section.title}: {section.lacks}" for section in sections if section.lacks]


def _of_run(record: RunRecord, runtime: Mapping[str, Any]) -> tuple[str, str, list[Section]]:
    title, settings = os.path.basename(os.path.abspath(record.path)), flat(record.settings)
    if {"algorithm.name", "dataset.name", "seed"} <= settings.keys():
        title = f"{settings['algorithm.name']} on {settings['dataset.name']}, seed {settings['seed']}"
    date = str(record.figures.get("date", ""))[:16].replace("T", " at ")
    details = (date and f" on {date} UTC") + (record.message and f", {record.message}")
    all_settings = [settings_tables(record.settings)] if record.settings else []
    settings_sections = [
        *section("Settings", _settings(record)),
        *section("All settings", all_settings, folded=True),
    ]
    sections = run_sections(record.path, record.figures, settings_sections, runtime)
    return title, f"{record.path}: {record.status}{details}", sections


def _settings(record: RunRecord) -> Blocks:
    folder = [] if record.config_dir is None else ["--config-dir", record.config_dir]
    if record.settings and record.overrides:
        yield Command(shlex.join(["nsvm", "train", *folder, *record.overrides]))
    keys, settings = overridden([record]), flat(record.settings)
    if changed := {key: settings[key] for key in settings if key in keys}:
        yield pairs("overridden settings", changed)


def _of_several(records: Sequence[RunRecord]) -> tuple[str, str, list[Section]]:
    folder, count, columns = runs_table(records)
    metric_names = figures_shown(records)
    numbers = [n for n, head in enumerate(columns) if head in metric_names]
    table = Table(count, [*columns], [*zip(*columns.values(), strict=True)], numbers)
    sections = [*_comparison_sections(records), Section("Runs", [table])]
    return folder.name, f"{folder}: {count}", sections


def _comparison_sections(records: Sequence[RunRecord]) -> list[Section]:
    try:
        with damage_errors("the result of one of these runs"):
            candidates = cells(records)
            rows, ranks = compare(candidates), ranking(candidates)
    except InputError as error:
        return [left_out("Comparison", "This section is", error)]
    comparison = _comparison(rows, notes(rows, ranks, len(records)))
    return [*section("Comparison", comparison), *section("Figures", _charts(rows, ranks))]


def _comparison(rows: Sequence[Comparison], sentences: Sequence[str]) -> Blocks:
    best: dict[str, str] = {}
    for title, group in groupby((row for row in rows if row.cell.scores), lambda row: row.cell.title):
        first, *rest = group
        names = [row.cell.candidate for row in (first, *rest) if row.rank == first.rank]
        best |= {f"{first.cell.dataset}: best settings": " or ".join(names), title: first.cell.score.spread}
    yield best
    for title, frame in tables(rows).items():
        yield Table(title, [*frame], frame.to_numpy().tolist(), range(1, frame.shape[1]))
    yield " ".join(sentences)


def _charts(rows: Sequence[Comparison], ranks: Ranking | None) -> Blocks:
    with damage_errors("a metrics file of one of these runs"):
        yield from [to_picture(chart, LABELS[name]) for name, chart in charts(rows, ranks).items()]
