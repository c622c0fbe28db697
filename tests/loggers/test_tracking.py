"""What a logger is told, and what becomes of a run whose logger fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from nsvm_cli.cli.pictures import draw
from nsvm_cli.config.settings import plain
from nsvm_cli.errors import InputError, Interrupted, RunError
from nsvm_cli.loggers import LOGGERS, Logger, LoggerConfig, TrackedRun
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.storage.run_directory import RunDirectory, Status
from tests.cli.process import nsvm
from tests.loggers.runs import Stop, go, settings_with

pytestmark = pytest.mark.usefixtures("unchecked")


CONTENT = ["config.yaml", "result.json"]


class Notebook(LoggerConfig):
    """Notes what it is told; raises at one of its calls."""

    told: ClassVar[list[Any]] = []
    fails: ClassVar[str] = ""

    def start(self, run: TrackedRun) -> Logger:
        note("start", run)
        return Notes()


class Notes(Logger):
    def log(self, step: int, figures: Mapping[str, float]) -> None:
        note("log", step, figures)

    def add_files(self, files: Sequence[Path]) -> None:
        note("add_files", [file.name for file in files if file.stat().st_size])

    def finish(self, status: Status, figures: Mapping[str, float]) -> None:
        note("finish", status, figures)


def note(call: str, *what: Any) -> None:
    Notebook.told.append((call, *what))
    if call == Notebook.fails:
        raise ConnectionError("the server\nhas gone.")


@pytest.fixture(autouse=True)
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    monkeypatch.setitem(LOGGERS, "notebook", Notebook)
    monkeypatch.setattr(Notebook, "told", told := [])
    return told


@pytest.fixture(scope="module")
def untracked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("untracked") / "run"
    go(path, settings_with("none"))
    return path


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_logger_is_told_the_settings_each_record_and_the_figures(
    notebook: list[Any], tmp_path: Path
) -> None:
    settings = settings_with("notebook")
    result = go(tmp_path / "run", settings)
    start, *logs, files, (_, status, figures) = notebook
    assert start == ("start", TrackedRun(tmp_path / "run", plain(settings), "a-sweep", step=0))
    assert logs == [
        ("log", record.pop("step"), {name: value for name, value in record.items() if value is not None})
        for record in records(tmp_path / "run")
    ]
    assert files == ("add_files", [*CONTENT, "curves.png", "report.html", "final.safetensors"])
    assert status == "finished"
    assert figures["train_accuracy"] == result["train_accuracy"]
    assert not figures.keys() & {"violations", "seed", "exact", "test_accuracy"}, "told before, or no number"


def test_a_logger_is_told_how_a_run_ends_and_where_it_resumes(notebook: list[Any], tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        go(tmp_path, settings_with("notebook"), Stop(step=30))
    assert notebook[-1] == ("finish", "interrupted", {})
    del notebook[:]
    go(tmp_path, settings_with("notebook"))
    (_, run), *logs, _, (_, status, _) = notebook
    assert [run.step, *(step for _, step, _ in logs)] == [30, 40, 50]
    assert status == "finished"


def test_a_logger_is_told_of_a_failure(notebook: list[Any], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="diverged"):
        go(tmp_path, settings_with("notebook", optimizer={"name": "sgd", "lr": 1e300}))
    assert notebook[-1] == ("finish", "failed", {})


def test_a_logger_that_cannot_take_the_files_learns_that_the_run_has_finished(
    notebook: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Notebook, "fails", "add_files")
    go(tmp_path, settings_with("notebook"), said=(said := []))
    assert said == ["warning: logger=notebook could not keep the files of the run: the server has gone"]
    assert notebook[-1][:2] == ("finish", "finished")


@pytest.mark.parametrize(("keeps", "pages"), [(True, ["report.html"]), (False, [])])
def test_the_pictures_of_a_job_are_there_for_its_logger_and_a_report_if_it_keeps_files(
    keeps: bool, pages: list[str], notebook: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures of other sweeps are drawn once all jobs have ended."""
    monkeypatch.setattr(Notebook, "keeps_files", keeps, raising=False)
    monkeypatch.setattr("nsvm_cli.page.trained.load_data", lambda *_: 1 / 0)  # the data are loaded already
    (tmp_path / "conf" / "logger").mkdir(parents=True)
    (tmp_path / "conf" / "logger" / "notebook.yaml").write_text("name: notebook\n")
    words = ["--config-dir", "conf", "logger=notebook", "dataset=ringnorm", "dataset.samples=300"]
    words += ["algorithm=pegasos", "algorithm.steps=2", "engine=torch", "hydra.sweep.dir=sweep"]
    done = nsvm("train", "-m", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("warning")) == (0, 0)
    ((_, files),) = [told for told in notebook if told[0] == "add_files"]
    assert files == [*CONTENT, "curves.png", "confusion.png", *pages, "final.safetensors"]
    for page in pages:
        text = (tmp_path / "sweep" / "0" / page).read_text()
        assert all(f">{title}</h2>" in text for title in ("Confusion", "Kernel matrix"))
        assert "sweep/0: finished on " in text


@pytest.mark.parametrize(
    ("write", "warning"),
    [
        (lambda: 1 / 0, "the report could not be written: ZeroDivisionError: division by zero"),
        (lambda: ["Model: This part is left out."], "report: Model: This part is left out."),
    ],
)
def test_what_is_wrong_with_a_report_is_a_warning(
    write: Callable[[], Any],
    warning: str,
    untracked: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for part in ("mistakes.draw_mistakes", "confusion_picture.draw_confusion", "curves.draw_curves"):
        monkeypatch.setattr(f"nsvm_cli.page.{part}", lambda *_: None)
    monkeypatch.setattr("nsvm_cli.comparison.pages.write_report", lambda *_, **__: write())
    draw(untracked, report=True)
    assert capfd.readouterr().err == f"nsvm: warning: {warning}\n"


@pytest.mark.parametrize("fails", ["log", "finish"])
def test_a_logger_that_fails_costs_one_warning_and_nothing_else(
    fails: str, notebook: list[Any], untracked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Notebook, "fails", fails)
    result = go(tmp_path, settings_with("notebook"), said=(said := []))
    assert said == [
        "warning: logger=notebook failed and is disabled for the rest of the run: the server has gone"
    ]
    assert notebook[-1][0] == fails
    assert result["exact"] is True
    assert records(tmp_path) == records(untracked)


def test_a_logger_that_cannot_start_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Notebook, "fails", "start")
    with pytest.raises(RunError, match="logger=notebook could not start: the server has gone; logger=none"):
        go(tmp_path, settings_with("notebook"))


def test_a_missing_package_is_named_before_the_data_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Notebook, "package", "no_such_package")
    settings = settings_with("notebook", dataset={"name": "csv", "path": "missing.csv"})
    with pytest.raises(InputError, match=r"needs no_such_package: pip install 'nsvm\[notebook\]'"):
        prepare(settings)


def test_the_logger_is_no_part_of_what_a_result_depends_on(
    notebook: list[Any], untracked: Path, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        go(tmp_path, settings_with("none"), Stop(step=30))
    assert go(tmp_path, settings_with("notebook"))["exact"] is True
    assert [step for _, step, _ in notebook[1:-2]] == [40, 50]
    assert records(tmp_path) == records(untracked)


@pytest.mark.parametrize("damaged", ['{"notebook": "../x"}', '{"notebook": 3}', "[]", "{"])
def test_a_damaged_record_of_a_tracked_run_is_refused(damaged: str, tmp_path: Path) -> None:
    (tmp_path / "tracking.json").write_text(damaged)
    with pytest.raises(InputError, match=r"tracking\.json cannot be read"):
        TrackedRun(tmp_path, {}, None, 0).recorded_id("notebook")


def test_a_recorded_run_is_found_again_and_forgotten_when_it_starts_over(tmp_path: Path) -> None:
    run = TrackedRun(tmp_path, {}, None, 0)
    assert run.recorded_id("notebook") is None
    run.record_id("notebook", "abc-1")
    run.record_id("another", "2")
    assert (run.recorded_id("notebook"), run.recorded_id("another")) == ("abc-1", "2")
    with RunDirectory(tmp_path, plain(settings_with("none")), "overwrite"):
        assert run.recorded_id("notebook") is None


def test_a_job_of_a_sweep_names_the_sweep(notebook: list[Any], tmp_path: Path) -> None:
    words = [
        "algorithm=pegasos",
        "dataset=digits",
        "algorithm.steps=3",
        "curves=false",
        "logger.name=notebook",
    ]
    assert nsvm("train", "-m", *words, "hydra.sweep.dir=sweep", cwd=tmp_path).returncode == 0
    _, run = notebook[0]
    assert run.sweep.startswith("algorithm_pegasos_dataset_digits")
    assert run.name == "sweep/0"


def test_a_run_directory_does_not_choose_the_logger(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunDirectory(run, plain(settings_with("mlflow"))):
        pass
    refused = nsvm("train", "resume=run", cwd=tmp_path)
    asked = f"nsvm: {run} asks for logger=mlflow: if that is intended, add logger=mlflow\n"
    assert (refused.returncode, refused.stderr) == (2, asked)
    assert nsvm("train", "resume=run", "logger=none", "curves=false", cwd=tmp_path).returncode == 0
    assert not (tmp_path / "mlflow.db").exists()


def test_a_run_directory_whose_logger_has_no_name_is_refused(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", {**plain(settings_with("none")), "logger": {}}):
        pass
    done = nsvm("train", "resume=run", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "logger" in done.stderr
