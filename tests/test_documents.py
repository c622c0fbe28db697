"""The documentation: its commands run, with fewer steps, and its figures and names match their sources."""

from __future__ import annotations

import contextlib
import csv
import importlib
import json
import pkgutil
import re
import shlex
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import studentized_range

import nsvm_cli
from docs._ext import generated
from tests.cli.process import nsvm, signalled
from tests.compositions import ROOT, composed, together
from tests.patience import PATIENCE

RUN = ("README.md", "docs/tutorial.md")
"""Pages whose commands the tests run."""
PAGES = [*RUN, *(str(page.relative_to(ROOT)) for page in sorted(ROOT.glob("docs/howto/*.md")))]
FEWER = ["algorithm.steps=20"]
UNKNOWN = re.compile(r"RUN|resume=|[$]|plugins=")
"""Matches commands whose settings cannot be composed here: they name a run, a variable or a plugin."""
BLOCK = re.compile(r"(?:<!-- not run: (.+?) -->\n)?```(\w+)\n(.*?)```", re.DOTALL)


@dataclass
class Command:
    """A command on a page: its words, the output that the page shows, and the reason not to run it."""

    words: list[str]
    not_run: str
    output: list[str] = field(default_factory=list)


def commands(page: str) -> list[Command]:
    """Return the commands of a page; a block of Python counts as ``python -c``."""
    listed = []
    for not_run, language, text in BLOCK.findall((ROOT / page).read_text()):
        if language == "python":
            listed.append(Command(["python", "-c", text], not_run))
        elif language == "sh":
            lines = [shlex.split(line, comments=True) for line in text.replace("\\\n", "").splitlines()]
            listed += [Command(words, not_run) for words in lines if words]
        elif language == "console":
            for line in text.splitlines():
                if line.startswith("$ "):
                    listed.append(Command(shlex.split(line[2:]), not_run))
                elif not not_run:
                    listed[-1].output.append(line)
    return listed


@pytest.mark.parametrize("page", [RUN[0], pytest.param(RUN[1], marks=pytest.mark.thorough)])
def test_every_command_runs(page: str, tmp_path: Path) -> None:
    ran = 0
    for command in commands(page):
        if not command.not_run:
            with told_which(command):
                run(command, tmp_path)
            ran += 1
    assert ran > 5


@contextlib.contextmanager
def told_which(command: Command) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"the command: {shlex.join(command.words)}")
        raise


def run(command: Command, folder: Path) -> None:
    program, *words = command.words
    if program == "python":
        assert words[0] == "-c"
        with contextlib.chdir(folder):
            exec(words[1], {"__name__": "__main__"})
        return
    assert program == "nsvm", "expected nsvm or python, or a comment in the page that says why it is not run"
    if words[0] == "train" and not words[1].startswith("resume="):
        fewer = [] if "svc" in str(words) else FEWER  # svc has no setting for steps
        words[1:] = [*fewer, *(word.replace("seed=0,1,2", "seed=0,1") for word in words[1:]), "curves=false"]
    interrupted, refused = "^C" in command.output, "".join(command.output).startswith("nsvm: ")
    with signalled(signal.SIGINT) if interrupted else contextlib.nullcontext():
        done = nsvm(*words, cwd=folder)
    assert done.returncode == (130 if interrupted else 2 if refused else 0), done.stderr
    said = {*re.findall(r"[a-z]{3,}", done.stdout + done.stderr)}
    shown = {*re.findall(r"[a-z]{3,}", " ".join(command.output))}
    assert shown <= said, f"the page shows words that the command did not print: {shown - said}"


def first_value(word: str) -> str:
    """Return an override with only the first of its values in a sweep."""
    key, _, values = word.partition("=")
    if values.startswith(("[", "{", "'")):
        return word
    return f"{key}={'0' if values.startswith('range(') else values.split(',')[0]}"


def not_run() -> Iterator[dict[str, str]]:
    """Yield the overrides of each training command that is not run, with one name for all data files."""
    for command in (command for page in PAGES for command in commands(page)):
        train = command.words[:2] == ["nsvm", "train"]
        if train and command.not_run and not UNKNOWN.search(str(command.words)):
            words = [word for word in command.words[2:] if not word.startswith(("-", "hydra"))]
            pairs = (first_value(word).split("=", 1) for word in words)
            yield {key: "'a file'" if key == "dataset.path" else value for key, value in pairs}


@pytest.mark.parametrize("words", together(not_run()), ids=" ".join)
def test_commands_that_are_not_run_compose(words: list[str]) -> None:
    composed(sorted(words, reverse=True))  # data set first, as in other tests, which share compositions


def test_the_example_of_training_on_arrays(tmp_path: Path) -> None:
    (example,) = (
        command.words[2]
        for command in commands("docs/howto/python.md")
        if command.words[0] == "python" and "split_data" in command.words[2]
    )
    names: dict[str, Any] = {}
    with contextlib.chdir(tmp_path):
        exec(example, names)
    assert names["scores"]["accuracy"] > 0.7
    assert list(tmp_path.iterdir()) == []


def test_the_page_of_single_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The blocks run in order and print what the page shows, with fewer frames, pixels and steps."""
    names: dict[str, Any] = {}
    with contextlib.chdir(tmp_path):
        for _, language, text in BLOCK.findall((ROOT / "docs" / "howto" / "step-by-step.md").read_text()):
            if language == "python":
                for usual, fewer in (("range(5, 401, 5)", "(5, 6)"), ("150", "30"), ("000", "00")):
                    text = text.replace(usual, fewer)
                exec(text, names)
            else:
                assert capsys.readouterr().out == text
    names["plt"].close("all")
    assert {file.name for file in tmp_path.iterdir()} == {"steps.png", "steps.gif"}


def test_the_pages_name_files_that_are_there() -> None:
    for page in [*PAGES, *(file.name for file in ROOT.glob("*.md"))]:
        for link in re.findall(r"\]\(([^):#]+)(?:#[^)]*)?\)", (ROOT / page).read_text()):
            assert (ROOT / page).parent.joinpath(link).exists(), f"{page} links to the missing file {link}"


def test_the_readme_is_short_and_lists_every_option() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == nsvm_cli.__version__
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") <= 150
    for group in generated.GROUPS:
        (row,) = re.findall(rf"^\| `{group}` \|.*$", text, flags=re.M)
        options = {file.stem for file in (generated.CONF / group).glob("*.yaml")}
        assert options <= {*re.findall(r"`(\w+)`", row)}


def test_the_readmes_results_are_those_of_the_page() -> None:
    text = (ROOT / "README.md").read_text().partition("## Results")[2].partition("\n## ")[0]
    page = (ROOT / "RESULTS.md").read_text()
    figures = re.findall(r"[\d.]+ ± [\d.]+", text)
    assert len(figures) >= 16
    assert [figure for figure in figures if figure not in page] == []
    rows = published("paper")
    for number in range(1, 5):
        optimizer = composed(["dataset=mnist", f"algorithm=alg{number}"])["optimizer"]
        alike = rows[(rows["dataset"] == "mnist") & (rows["algorithm"] == f"alg{number}")]
        alike = alike[alike["optimizer.lr"].astype(float) == optimizer["lr"]]
        errors = alike[alike["optimizer.schedule"] == optimizer["schedule"]]["test_errors"].astype(int)
        shown = f"{errors.mean():.1f} ± {errors.std():.1f}"
        assert re.search(rf"^\| Algorithm {number} \|.*\| {shown} \| \d \|$", text, flags=re.M)
        assert re.search(rf"^\| Algorithm {number}, ours \|.*\| {shown} \| \d \|", page, flags=re.M)


def published(name: str) -> pd.DataFrame:
    return pd.read_csv(ROOT / "outputs" / name / "runs.csv", keep_default_na=False, na_values={"roc_auc": ""})


def spreads(name: str, columns: list[str], figure: str, scale: float, digits: int) -> set[str]:
    """Return "mean ± standard deviation" over seeds, for each combination of the columns."""
    rows = published(name)
    rows[figure] = pd.to_numeric(rows[figure], errors="coerce") * scale
    groups = rows.dropna(subset=figure).groupby(columns)[figure]
    return {f"{part.mean():.{digits}f} ± {part.std():.{digits}f}" for _, part in groups}


def test_each_mean_on_the_page_is_a_mean_of_published_rows() -> None:
    page = (ROOT / "RESULTS.md").read_text()
    cell = [*CHOSEN[:1], *CHOSEN[2:]]
    table = ["dataset.table", "algorithm", "network.name"]
    known = spreads("paper", cell, "test_accuracy", 100, 2) | spreads("paper", cell, "test_errors", 1, 1)
    known |= spreads("tables", table, "test_accuracy", 100, 2) | spreads("regression", table, "test_r2", 1, 4)
    image = ["algorithm", "algorithm.loss", *VARIANTS, "network.name"]
    known |= spreads("images", image, "test_accuracy", 100, 2)
    known |= spreads("ringnorm", ["algorithm", "optimizer.schedule"], "test_accuracy", 100, 2)
    known |= spreads("heads", ["data", "condition", "test", "head"], "accuracy", 100, 2)
    shown = {*re.findall(r"\d[\d.]* ± [\d.]+", page)}
    assert len(shown) > 50
    assert shown - known == set()


def test_the_page_shows_what_each_cell_of_the_paper_took() -> None:
    rows, cells = published("paper"), set()
    for (dataset, *_), part in rows.groupby([*CHOSEN[:1], *CHOSEN[2:]]):
        digits = 2 if dataset == "openml" else 1
        figure = 100 * part["test_accuracy"] if dataset == "openml" else part["test_errors"]
        moved, seconds = (part["theta_steps"].astype(int) > 0).all(), part["train_seconds"].mean()
        change = f"{pd.to_numeric(part['feature_change']).mean():.2f}" if moved else ""
        cells.add((f"{figure.mean():.{digits}f} ± {figure.std():.{digits}f}", change, f"{seconds:.1f}"))
    table = (ROOT / "RESULTS.md").read_text().partition("| change of the kernel |")[2].partition("\n\n")[0]
    shown = re.findall(r"\| ([\d.]+ ± [\d.]+) \| [\d.]* ?\| ([\d.]*) ?\| ([\d.]+) (?=\|)", table)
    assert len(shown) > 25
    assert {*shown} - cells == set()


def test_the_page_compares_heads_of_one_network() -> None:
    rows = published("heads").query("test != 'validation'")
    figures = ["accuracy", "log_loss", "calibration_error", "seconds"]
    rows = rows.astype(dict.fromkeys(figures, float))
    means = rows.groupby(["data", "condition", "test", "head"])[figures].mean()
    images = means.loc["mnist10"]
    expected = []
    for head in rows["head"].unique():
        full = images.loc[("full", "", head)]
        cells = [f"{full['log_loss']:.4f}", f"{100 * full['calibration_error']:.2f}"]
        parts = [(f"{labels} a class", "") for labels in (100, 30, 10)]
        parts = [("wrong labels", ""), *parts, ("full", "noise"), ("full", "rotation")]
        cells += [f"{100 * images['accuracy'][(*part, head)]:.2f}" for part in parts]
        expected.append(f" | {' | '.join(cells)} | {full['seconds']:.0f} |")
    tables = means.drop("mnist10").reset_index()
    lines = {head: f"| {head} |" for head in rows["head"].unique()}
    columns = [("full", "", "accuracy"), ("full", "", "log_loss"), ("wrong labels", "", "accuracy")]
    columns += [(f"{labels} a class", "", "accuracy") for labels in (30, 10)]
    for condition, test, figure in (*columns, ("full", "noise", "accuracy")):
        part = tables[(tables["condition"] == condition) & (tables["test"] == test)]
        scores = part.pivot_table(index="data", columns="head", values=figure)
        ranks = scores.round(5).rank(axis=1, ascending=figure == "log_loss").mean()
        for head in lines:
            mean = scores[head].mean()
            lines[head] += f" {mean:.3f} |" if figure == "log_loss" else f" {100 * mean:.2f} |"
            lines[head] += f" {ranks[head]:.2f} |"
    page = (ROOT / "RESULTS.md").read_text()
    assert [line for line in (*expected, *lines.values()) if line not in page] == []


def test_the_page_shows_where_the_courses_end() -> None:
    page = (ROOT / "RESULTS.md").read_text()
    for number, (_, course) in enumerate(published("courses").groupby("algorithm"), start=1):
        accuracy, theta, stale, vectors, objective, seconds = course.iloc[-1][
            ["accuracy", "theta_change", "staleness", "support_vectors", "objective", "seconds"]
        ].astype(float)
        cells = (
            f"{accuracy:.1f} | {theta:.2f} | {stale:.2f} | {vectors:.0f} | {objective:.3f} | {seconds:.1f}"
        )
        assert f"| Algorithm {number} | {cells} |" in page


def test_the_page_compares_the_default_for_tables() -> None:
    page = (ROOT / "RESULTS.md").read_text()
    every = published("choice")
    rows = every[every["method"] != "auto24"]
    new = 100 * rows[rows["tables"] == "new"].groupby("method")["score"].mean()
    readme = " ".join((ROOT / "README.md").read_text().split())
    sentence = (
        "the default for tables has a mean accuracy of {auto:.1f} %, tuned CatBoost {catboost:.1f} %, tuned "
        "boosted trees of scikit-learn {trees:.1f} %, RealMLP with its default settings {realmlp:.1f} % and "
        "a tuned SVC {svc:.1f} %"
    )
    assert sentence.format(**new) in readme
    assert set(rows.groupby("table")["seed"].nunique()) == {5}
    assert set(rows.groupby(["table", "seed"]).size()) == {rows["method"].nunique()}
    lines = {method: f"| {method} |" for method in rows["method"]}
    counts = {**lines}
    parts = [(tables, column) for tables in ("known", "new") for column in ("score", "roc_auc")]
    for tables, column in (*parts, ("real", "score")):
        part = rows[rows["tables"] == tables]
        scores = 100 * part.pivot_table(index="table", columns="method", values=column).dropna()
        ranks = scores.round(4).rank(axis=1, ascending=False).mean()
        for method in lines:
            lines[method] += f" {ranks[method]:.2f} | {scores[method].mean():.1f} |"
            better = np.sign((scores["auto"] - scores[method]).round(4))
            counts[method] += f" {'/'.join(str((better == sign).sum()) for sign in (1, 0, -1))} |"
    seconds = rows.groupby("method")["seconds"].median()
    expected = [f"{line} {seconds[method]:.1f} |" for method, line in lines.items()]
    expected += [line for method, line in counts.items() if method != "auto"]
    k, means = len(lines), 100 * rows.pivot_table("score", ["tables", "table"], "method")
    studentized = studentized_range.ppf(0.95, k, np.inf) / np.sqrt(2)
    known, new_ones = (studentized * np.sqrt(k * (k + 1) / 6 / len(means.loc[t])) for t in ("known", "new"))
    expected += [f"is {known:.2f} for the known tables and {new_ones:.2f} for the new"]
    below = means.max(axis=1) - means["auto"]
    expected += [f"at most {below.max():.1f} points ({below.idxmax()[1]}) below the best method"]
    mean = every.groupby(["tables", "method"])["score"].mean()
    assert mean["new", "auto24"] == mean["new", "auto"]
    expected += [f"auto has the same scores on the new files and {100 * mean['real', 'auto24']:.1f} %"]
    page = " ".join(page.split())
    assert [line for line in expected if line not in page] == []


CHOSEN = (
    *("dataset", "dataset.table", "algorithm", "network.name", "network.widths", "kernel.gamma"),
    *("optimizer.lr", "optimizer.schedule", "steps"),
)


VARIANTS = "algorithm.virtual", "dataset.augment"
"""Further settings by which the runs on images differ."""


@pytest.mark.parametrize(
    ("name", "counts"), [("paper", {10}), ("images", {5}), ("tables", {3}), ("regression", {3})]
)
def test_each_candidate_was_run_on_seeds_that_tuning_never_used(name: str, counts: set[int]) -> None:
    seeds: dict[tuple[str | None, ...], list[int]] = {}
    with (ROOT / "outputs" / name / "runs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            seeds.setdefault(tuple(map(row.get, (*CHOSEN, *VARIANTS))), []).append(int(row["seed"]))
    assert {tuple(sorted(some)) for some in seeds.values()} == {tuple(range(count)) for count in counts}


def test_the_reference_explains_every_setting() -> None:
    pages = [generated.group(name) for name in generated.GROUPS] + [generated.run_settings("")]
    rows = re.findall(r"^\| `([\w.]+)` \|.*\| (.*?) \|$", "\n".join(pages), flags=re.M)
    assert len(rows) > 40
    assert [name for name, meaning in rows if not meaning] == []


def test_the_page_on_files_names_every_field_of_a_result(tmp_path: Path) -> None:
    words = ["dataset=digits", "dataset.validation=20", "validation.every=10", *FEWER, "hydra.run.dir=run"]
    assert nsvm("train", *words, cwd=tmp_path).returncode == 0
    text = (ROOT / "docs" / "files.md").read_text()
    for file in (tmp_path / "run").iterdir():
        name = re.sub("step-[0-9]+", "step-00001000", file.name)
        assert f"`{name}`" in text
    for name in ("result.json", "status.json"):
        content: dict[str, Any] = json.loads((tmp_path / "run" / name).read_text())
        content |= {f"data.{key}": None for key in content.pop("data", {})}
        assert [key for key in content if f"`{key}`" not in text] == []
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        assert [key for key in json.loads(line) if f"`{key}`" not in text] == []


def test_the_names_in_the_pages_on_development_are_in_the_code() -> None:
    objects = {}
    for module in pkgutil.walk_packages(nsvm_cli.__path__, "nsvm_cli."):
        if module.name != "nsvm_cli.__main__":
            objects |= vars(importlib.import_module(module.name))
    text = "".join((ROOT / "docs" / f"{page}.md").read_text() for page in ("architecture", "development"))
    for file in (ROOT / "nsvm_cli").glob("*/__init__.py"):
        assert f"  {file.parent.name}/ " in text
    names = {*re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))}
    names -= {"FLOORS", "UV_DEFAULT_INDEX", "batch_size", "nsvm_cli"}
    assert len(names) > 100
    classes = [entry for entry in objects.values() if isinstance(entry, type)]
    for name in names:
        if re.fullmatch(r"[\w/]+\.py", name):
            assert (ROOT / name).exists() or (ROOT / "nsvm_cli" / name).exists(), name
        elif match := re.fullmatch(r"([A-Z]\w+)(?:\.(\w+))?", name):
            assert match[1] in objects, name
            assert hasattr(objects[match[1]], match[2] or "__doc__"), name
        elif re.fullmatch(r"[a-z]+_[a-z_]+", name):
            assert name in objects or any(hasattr(owner, name) for owner in classes), name


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "writes"), [("svm_head", "predictions.csv"), ("step_by_step", "steps.gif")])
def test_the_notebook_runs(name: str, writes: str, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    notebook = nbformat.read(ROOT / "docs" / "notebooks" / f"{name}.ipynb", as_version=4)
    shown = [cell.source for cell in notebook.cells if cell.get("outputs")]
    resources = {"metadata": {"path": str(tmp_path)}}
    client.NotebookClient(notebook, timeout=PATIENCE, kernel_name="python3", resources=resources).execute()
    assert [cell.source for cell in notebook.cells if cell.get("outputs")] == shown
    assert (tmp_path / writes).is_file()
