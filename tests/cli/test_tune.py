"""Searches with ``nsvm tune``."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import signal
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from nsvm_cli.compose.composition import compose_settings
from nsvm_cli.config.settings import flat
from nsvm_cli.datasets import Splits
from tests.cli.process import nsvm, refusal, start, wait_for
from tests.conftest import InlineWorkers

SHORT = ["algorithm=alg4", "dataset.samples=400", "tune.validation=40", "algorithm.steps=20"]
SHORT += ["algorithm.solver_steps=100", "tune.seeds=2", "tune.finalists=2", "tune.final_seeds=2"]
SHORT += ["engine=literal"]
HERE = "tune.directory=search"


# A plugin that raises an error if the test set is requested.
GUARD = """
from nsvm_cli.datasets import Splits

take = Splits.__getitem__

def guarded(self, name):
    assert name not in ("test", "all"), "the test set was read"
    return take(self, name)

Splits.__getitem__ = guarded
"""


def trials(folder: Path) -> list[optuna.trial.FrozenTrial]:
    """Return the completed trials of the search."""
    file = folder / "search" / "study.log"
    if not (file.exists() and file.stat().st_size):
        return []
    return study_in(folder).get_trials(states=[optuna.trial.TrialState.COMPLETE])


def study_in(folder: Path) -> optuna.Study:
    file = str(folder / "search" / "study.log")
    return optuna.load_study(study_name=None, storage=JournalStorage(JournalFileBackend(file)))


@pytest.mark.usefixtures("inline_workers")
def test_it_never_reads_the_test_set_and_ends_with_overrides_that_train_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Splits.__getitem__
    monkeypatch.setattr(Splits, "__getitem__", take)  # to restore the method that the plugin replaces
    (tmp_path / "guard.py").write_text(GUARD)
    search = ["tune.trials=2", "tune.jobs=1", "plugins=[guard]", "optimizer.schedule=linear"]
    done = nsvm("tune", *SHORT, HERE, *search, cwd=tmp_path, code=0)
    assert len(trials(tmp_path)) == 2
    assert done.stderr.startswith("tune alg4 on ringnorm: trials=2 seeds=2 validation=40, in search\n")
    run = ["dataset.samples=400", "algorithm.steps=20", "plugins=[guard]", "curves=false"]
    # the guard works: nsvm train reads the test set
    assert "AssertionError: the test set was read" in nsvm("train", *run, cwd=tmp_path).stderr

    command = shlex.split(done.stdout.splitlines()[-1])
    assert command[:2] == ["nsvm", "train"]
    words = [word for word in (*SHORT, "plugins=[guard]") if not word.startswith("tune.")]
    assert command[2 : 2 + len(words)] == words, "expected the given words without searched keys"
    best = command[2 + len(words) :]
    assert {word.partition("=")[0] for word in best} >= {"optimizer.lr", "network.dropout", "algorithm.lam"}
    monkeypatch.setattr(Splits, "__getitem__", take)
    assert nsvm(*(word for word in command[1:] if "guard" not in word), cwd=tmp_path).returncode == 0
    finalists = (tmp_path / "search" / "finalists.csv").read_text().splitlines()
    assert finalists[0] == "candidate,accuracy,standard_error,search_accuracy,overrides"
    assert finalists[1].endswith(" ".join(best))

    other = refusal("tune", *SHORT, HERE, *search, "kernel.gamma=2", cwd=tmp_path)
    assert other == "search contains a different search: set tune.directory to a new folder"


@pytest.mark.usefixtures("inline_workers")
@pytest.mark.thorough
def test_interrupted_it_continues_where_it_was(tmp_path: Path) -> None:
    words = ["tune", *SHORT, HERE, "tune.trials=5", "tune.jobs=1", "plugins=[own]", "metric=cost"]
    (tmp_path / "own.py").write_text(COST)
    process = start(*words, cwd=tmp_path)
    wait_for(lambda: len(trials(tmp_path)) >= 2, process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in said
    before = trials(tmp_path)
    assert 2 <= len(before) < 5
    with (tmp_path / "search" / "study.log").open("a") as journal:
        journal.write('{"op_code": ')  # a line that a kill has cut off
    assert nsvm(*words, cwd=tmp_path).returncode == 0
    after = {trial.number: trial for trial in trials(tmp_path)}
    assert len(after) == 5
    rates = [trial.user_attrs["point"]["optimizer.lr"] for trial in after.values()]
    assert compose_settings(["algorithm=alg4"])["optimizer"]["lr"] in rates, "expected the default rate"
    for trial in before:
        assert after[trial.number].datetime_complete == trial.datetime_complete


@pytest.mark.usefixtures("inline_workers")
def test_the_command_that_it_ends_with_runs_though_its_words_need_validation_data(tmp_path: Path) -> None:
    """Pegasos does not train theta, so only lambda and settings of the kernel are searched."""
    words = ["algorithm=pegasos", "dataset.samples=400", "algorithm.steps=40", "calibration=sigmoid"]
    words += ["tune.validation=40", "tune.seeds=2", "tune.finalists=1", "tune.final_seeds=2", "tune.trials=3"]
    more = [
        "tune.jobs=1",
        "+tune.space.kernel.gamma={low:0.01,high:9}",
        "+tune.space.kernel.bias=[null,true]",
    ]
    done = nsvm("tune", *words, *more, HERE, cwd=tmp_path, code=0)
    keys = {"algorithm.lam", "kernel.gamma", "kernel.bias"}
    assert all(trial.user_attrs["point"].keys() == keys for trial in trials(tmp_path))
    first = trials(tmp_path)[0].user_attrs["point"]
    settings = flat(compose_settings(words[:3]))
    assert first == {**{key: settings[key] for key in keys}, "kernel.gamma": 1 / 20}, "null must become 1/n"
    command = done.stdout.splitlines()[-1]
    assert "dataset.validation=40" in command
    nsvm(*shlex.split(command)[1:], "curves=false", cwd=tmp_path, code=0)


@pytest.mark.usefixtures("inline_workers")
def test_a_validation_file_is_what_it_chooses_on(tmp_path: Path) -> None:
    for name, rows in (("train", 40), ("validation", 12)):
        lines = [f"{row},{-row},{'ab'[row % 2]}" for row in range(rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,z,label", *lines]))
    files = ["dataset=csv", "dataset.path=train.csv", "dataset.validation_path=validation.csv"]
    words = [word for word in SHORT if not word.startswith(("dataset", "tune.validation"))]
    done = nsvm("tune", *words, *files, "tune.trials=1", "tune.jobs=1", HERE, cwd=tmp_path, code=0)
    assert "validation=validation.csv" in done.stderr
    assert "dataset.validation=" not in done.stdout.splitlines()[-1]


SMALL = ["tune", *(word for word in SHORT if word != "dataset.samples=400"), "dataset=digits", "network=mlp"]
SMALL += ["network.widths=[4]", "~tune.space", "+tune.space.optimizer.schedule=[linear]"]
SMALL += ["tune.trials=1", HERE]


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("nsvm_cli.tuning.search.Workers", InlineWorkers)
        done = nsvm(*SMALL, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def searched(search: Path, tmp_path: Path, inline_workers: None) -> Path:
    """Return a copy of a folder with a finished search."""
    return Path(shutil.copytree(search, tmp_path, dirs_exist_ok=True))


def test_the_standard_error_allows_for_validation_sets_that_overlap(searched: Path) -> None:
    final = {"0 1002": 0.9, "0 1003": 0.8}
    with (searched / "search" / "study.log").open("a") as journal:
        entry = {"op_code": 2, "worker_id": "edited", "study_id": 0, "user_attr": {"final": final}}
        journal.write(json.dumps(entry) + "\n")
    assert nsvm(*SMALL, cwd=searched).returncode == 0
    (finalist,) = csv.DictReader((searched / "search" / "finalists.csv").read_text().splitlines())
    correction = 1 / 2 + 40 / 284  # 360 digits: 36 for the test, 40 for validation
    assert float(finalist["standard_error"]) == pytest.approx((0.005 * correction) ** 0.5, rel=0.02)


def test_a_damaged_search_is_refused(searched: Path) -> None:
    journal = searched / "search" / "study.log"
    journal.write_text(journal.read_text().replace("{", "[", 1))
    assert "search/study.log is damaged" in refusal(*SMALL, cwd=searched)


COST = """
from nsvm_cli.metrics import metric

@metric(greater_is_better=False)
def cost(y, predicted, weights):
    return ((y != predicted) * (1 + 4 * y)).mean()
"""
FEW = ["algorithm=pegasos", "algorithm.steps=60", "tune.finalists=2", "tune.final_seeds=2", "tune.jobs=1"]
FEW += ["tune.seeds=2", "engine=literal"]
OWN = ["plugins=[own]", "metric=cost", "dataset.samples=400", "tune.validation=40", "tune.trials=13"]


def finalists_of(folder: Path) -> list[dict[str, str]]:
    return [*csv.DictReader((folder / "search" / "finalists.csv").read_text().splitlines())]


@pytest.mark.usefixtures("inline_workers")
def test_killed_and_resumed_it_finds_the_same_by_a_metric_of_the_users(tmp_path: Path) -> None:
    outcomes, words = [], ["tune", *FEW, *OWN, HERE]
    for name in ("whole", "killed"):
        (folder := tmp_path / name).mkdir()
        (folder / "own.py").write_text(COST)
        before: list[optuna.trial.FrozenTrial] = []
        if name == "killed":
            process = start(*words, cwd=folder)
            wait_for(lambda folder=folder: len(trials(folder)) >= 11, process)  # type: ignore[misc]
            process.kill()
            process.communicate()
            assert 11 <= len(before := trials(folder)) < 13
        done = nsvm(*words, cwd=folder, code=0)
        after = trials(folder)
        assert [t.datetime_complete for t in after[: len(before)]] == [t.datetime_complete for t in before]
        found = [(t.number, t.user_attrs["point"], t.intermediate_values) for t in after]
        outcomes.append((found, finalists_of(folder), done.stdout, done.stderr))
    assert outcomes[0] == outcomes[1]
    expect_the_smallest("cost", tmp_path / "whole", *outcomes[0][2:])

    (folder / "own.py").write_text(f"{COST}\nUNITS = 'euros'\n")
    done = nsvm(*words, cwd=folder, code=0)
    assert done.stderr.startswith("search: the code of plugins has changed, and earlier scores are kept; ")
    (folder / "own.py").write_text(COST.replace("False", "True"))
    assert refusal(*words, cwd=folder).startswith("search contains a different search: ")


def expect_the_smallest(metric: str, folder: Path, said: str, shown: str) -> None:
    """Check that the candidate with the smallest mean is the best, and that the last command trains it."""
    assert study_in(folder).direction == optuna.study.StudyDirection.MINIMIZE
    means = [trial.values[0] for trial in trials(folder)]
    best, second = finalists_of(folder)
    assert sorted(float(row[f"search_{metric}"]) for row in (best, second)) == sorted(means)[:2]
    assert float(best[metric]) <= float(second[metric])
    numbers = re.findall(r"^candidate (\d+)", shown, re.MULTILINE)
    assert len(numbers) > 1
    falling = sorted({min(means[: n + 1]) for n in range(len(means))}, reverse=True)
    assert [means[int(number)] for number in numbers] == falling
    command = shlex.split(said.splitlines()[-1])
    assert " ".join(command).endswith(best["overrides"])
    nsvm(*command[1:], "curves=false", cwd=folder, code=0)


@pytest.mark.usefixtures("inline_workers")
@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("rmse", ["metric=rmse", "task=regression", "dataset=csv", "dataset.path=line.csv", "tune.trials=6"]),
        pytest.param(
            *("log_loss", ["metric=log_loss", "dataset.samples=400", "tune.validation=0.2", "tune.trials=6"]),
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_the_smallest_is_best_where_smaller_is_better(metric: str, words: list[str], tmp_path: Path) -> None:
    rows = [f"{x},{3 * x % 7},{2 * x - 3 * x % 7}" for x in range(60)]
    (tmp_path / "line.csv").write_text("\n".join(["x,z,label", *rows]))
    done = nsvm("tune", *FEW, *words, HERE, cwd=tmp_path, code=0)
    expect_the_smallest(metric, tmp_path, done.stdout, done.stderr)
