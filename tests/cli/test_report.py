"""``nsvm report`` on runs and sweeps, even if they are unfinished or damaged, and ``nsvm diagnose``."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from nsvm_cli.storage.run_directory import write_json, write_status
from tests.cli.process import nsvm, refusal, trained
from tests.page.reader import Reader
from tests.page.test_document import HOSTILE

TINY = ["algorithm=alg4", "algorithm.steps=12", "algorithm.batch_size=4", "algorithm.solver_steps=30"]
TINY += ["algorithm.solver=pegasos", "curves=false", "engine=torch"]


def report(*words: str | Path, cwd: Path) -> Reader:
    """Return the page that ``nsvm report`` writes. Check it, and the warnings about skipped sections."""
    done = nsvm("report", *words, cwd=cwd, code=0)
    reader = Reader((cwd / done.stdout.strip()).read_text())
    reader.check()
    sentences = {
        f"warning: {title}: {text}" for title, text in reader.sections.items() if " skipped: " in text
    }
    assert sentences == {*done.stderr.splitlines()}
    return reader


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run on a table with HTML in the names of columns and classes."""
    folder = tmp_path_factory.mktemp("report")
    label = '"{}"'.format(HOSTILE.replace('"', '""'))
    colours, labels = ("blue", "red", "red", "red", "red"), ("good",) * 4 + (label,) * 3
    rows = [f"{n % 7 - 3},{n % 5 - 2},{colours[n % 5]},{labels[n % 7]}" for n in range(60)]
    (folder / "table.csv").write_text("\n".join(["<b>,<i>&amp;,colour,label", *rows]))
    trained(*TINY, "dataset=csv", "dataset.path=table.csv", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def sweep(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with runs of two seeds and a failed run."""
    sweep = tmp_path_factory.mktemp("sweep")
    for seed in (0, 1):
        shutil.copytree(folder / "run", sweep / str(seed))
        result = json.loads((folder / "run" / "result.json").read_text())
        settings = {**result["settings"], "seed": seed}
        write_json(sweep / str(seed) / "result.json", {**result, "seed": seed, "settings": settings})
    write_status(sweep / "2", "failed", "training diverged")
    return sweep


def test_a_run(folder: Path) -> None:
    page = report("run", cwd=folder)
    assert page.all("h1")[0].text == "alg4 on csv, seed 0"
    assert [*page.sections] == [
        *("Diagnosis", "Result", "Training", "Confusion", "Columns", "Settings"),
        *("ROC and precision-recall", "Worst mistakes", "Strongest support vectors"),
        *("Kernel matrix", "Features", "All settings", "Data and computation"),
    ]
    result = json.loads((folder / "run" / "result.json").read_text())
    assert f"{100 * result['test_accuracy']:.2f} %" in page.sections["Result"]
    assert "feature change" not in {element.text for element in page.all("dt")}, "must be below the scores"
    assert "of kernel and labels, from -1 to 1" in page.sections["Result"]
    assert "on all 6 test samples" in page.sections["Diagnosis"]
    assert re.search(
        r"run: finished on \d{4}-\d\d-\d\d at \d\d:\d\d UTC$", page.all("header")[0].text.strip()
    )
    assert "algorithm.steps 12" in page.sections["Settings"]
    assert "algorithm.lam" not in page.sections["Settings"]
    assert "nsvm train algorithm=alg4" in page.sections["Settings"]
    counts = [cell.text for cell in page.all("td") if "--shade" in cell.attributes.get("style", "")]
    confusion = [str(count or ".") for row in result["confusion"] for count in row]
    assert [count for count in counts if "%" not in count] == confusion
    assert HOSTILE in page.sections["Data and computation"].replace("\\", "")
    assert {"<b>", "<i>&amp;"} <= {head.text for head in page.all("th")}
    assert (folder / "run" / "report.html").is_file()


def test_a_sweep_and_some_of_several_folders(sweep: Path, tmp_path: Path) -> None:
    page = report(sweep, cwd=sweep)
    assert (sweep / "report.html").is_file()
    assert page.all("h1")[0].text == sweep.name
    assert "2 finished, 1 failed" in page.all("header")[0].text
    assert "mean ± std" in page.sections["Comparison"]
    assert "Figures" not in page.sections, "one setting without scores during training has no figures"
    assert "training diverged" in page.sections["Runs"]
    assert [cell.text for cell in page.all("th") if cell.attributes["scope"] == "row"][-3:] == ["0", "1", "2"]
    page = report(sweep / "0", sweep / "1", sweep / "2", "--filter", "status=finished", cwd=tmp_path)
    assert (tmp_path / "report.html").is_file()
    assert "failed" not in page.sections["Runs"]


def test_runs_that_have_not_finished(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "run", tmp_path / "run")
    for name in ("result.json", "step-00000042.safetensors"):
        (tmp_path / "run" / name).unlink()
    write_status(tmp_path / "run", "interrupted", f"interrupted {HOSTILE}", overrides=[HOSTILE])
    page = report("run", cwd=tmp_path)
    assert [*page.sections] == ["Training", "Settings", "All settings"]
    assert f"interrupted, interrupted {HOSTILE}" in page.all("header")[0].text
    assert "choose another file" in refusal("report", "run", "--output", "run/config.yaml", cwd=tmp_path)
    shutil.copytree(folder / "run", tmp_path / "without")
    (tmp_path / "without" / "metrics.jsonl").unlink()
    assert "Result" in report("without", cwd=tmp_path).sections
    write_status(tmp_path / "early", "failed", HOSTILE)
    page = report("early", cwd=tmp_path)
    assert page.all("h1")[0].text == "early"
    assert [*page.sections] == ["Training"]
    assert "no metrics.jsonl" in page.sections["Training"]


@pytest.mark.parametrize(
    "changes",
    [
        {"confusion": HOSTILE, "recall": [HOSTILE], "data": {"classes": 7}},
        {"data": HOSTILE, "versions": [HOSTILE], "test_accuracy": {}, "date": HOSTILE},
        {"train_seconds": "\ud800", "steps": [[HOSTILE]], "settings": {HOSTILE: {"\x1b": HOSTILE}}},
        {"settings": {"seed": [], "dataset": {"name": "\ud800"}, "algorithm": {"name": HOSTILE}}, "data": 1},
    ],
)
def test_a_result_that_anyone_may_have_written(changes: dict[str, Any], sweep: Path, tmp_path: Path) -> None:
    for n in (0, 1):
        shutil.copytree(sweep / str(n), tmp_path / str(n))
        (tmp_path / str(n) / "final.safetensors").unlink()
    result = json.loads((tmp_path / "0" / "result.json").read_text())
    write_json(tmp_path / "0" / "result.json", {**result, **changes})
    assert "is damaged, or was written by an earlier version of nsvm" in " ".join(
        report("0", cwd=tmp_path).sections.values()
    )
    assert "Runs" in report("0", "1", cwd=tmp_path).sections


def test_bad_input(sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no run matches" in refusal("report", sweep, "--filter", "seed=7", cwd=tmp_path)
    message = refusal("report", sweep / "2", "--output", "empty", cwd=tmp_path)
    assert "--output: expected a file in an existing folder, got empty" in message


DIAGNOSIS = {
    *("alignment_train", "alignment_test", "entropy", "distance_identity", "distance_ones", "duality_gap"),
    *("test_accuracy", "refit_accuracy", "frozen_accuracy", "refreshed_accuracy", "verdict"),
}


def test_a_diagnosis(folder: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in (folder / "run").iterdir()}
    *table, verdict = nsvm("diagnose", "run", cwd=folder, code=0).stdout.splitlines()
    assert all(len(line) <= 80 for line in table), "a line is too long for a terminal"
    assert all(line.strip() and not line.startswith(" ") for line in table), "a line is wrapped"
    assert ": " in verdict
    of_run, of_file = (
        json.loads(nsvm("diagnose", path, "--json", cwd=folder, code=0).stdout)
        for path in ("run", "run/final.safetensors")
    )
    assert {*of_run} >= DIAGNOSIS
    result = json.loads((folder / "run" / "result.json").read_text())
    assert of_run["test_accuracy"] == result["test_accuracy"]
    assert of_run["alignment_train"] == pytest.approx(result["alignment"], rel=1e-5)
    assert of_file == of_run
    assert {file: file.stat().st_mtime_ns for file in (folder / "run").iterdir()} == before


def test_a_diagnosis_of_data_that_have_changed_is_one_line(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "run", tmp_path / "run")
    (tmp_path / "table.csv").write_text((folder / "table.csv").read_text().replace("red", "green"))
    said = "table.csv or its test set has changed since the run: restore the data"
    assert refusal("diagnose", "run", cwd=tmp_path) == said
