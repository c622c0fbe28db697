"""The runs below folders: their status, the settings that distinguish them, conditions and order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nsvm_cli
from nsvm_cli.comparison.records import distinguishing, find_runs, in_order, load_runs, matching, read_run
from nsvm_cli.errors import InputError
from nsvm_cli.storage.files import locked
from nsvm_cli.storage.run_directory import write_config, write_json, write_status


def settings(lam: float = 1e-4, kernel: str = "rbf", learn: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "algorithm": {"name": "alg1", "lam": lam},
        "kernel": {"name": kernel, "learn": list(learn)},
        "seed": 0,
    }


def finished(path: Path, accuracy: float = 0.9, overrides: tuple[str, ...] = (), **about: Any) -> Path:
    path.mkdir(parents=True)
    result = {"test_accuracy": accuracy, "settings": settings(**about), "overrides": list(overrides)}
    write_json(path / "result.json", result)
    return path


def started(path: Path) -> Path:
    path.mkdir(parents=True)
    write_config(path, settings())
    return path


def test_each_run_below_the_folders_once_in_natural_order(tmp_path: Path) -> None:
    for name in ("s/10", "s/9", "s/9/inside", "a"):
        finished(tmp_path / name)
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path)
    found = [record.path.relative_to(tmp_path) for record in find_runs([tmp_path, tmp_path / "s"])]
    assert [str(path) for path in found] == ["a", "s/9", "s/9/inside", "s/10"]


def test_status(tmp_path: Path) -> None:
    finished(tmp_path / "1")
    write_status(tmp_path / "2", "failed", "it diverged", overrides=["seed=2"], exit_code=1)
    write_status(started(tmp_path / "3"), "interrupted", "interrupted after step 7 of 9")
    write_status(killed := started(tmp_path / "4"), "running")
    write_config(killed, settings() | {"plugins": ["mine"]})
    (killed / "metrics.jsonl").write_text('{"step": 50, "violations": 1}\n{"st')
    write_status(started(tmp_path / "5"), "running")
    with locked(tmp_path / "5"):
        records = find_runs([tmp_path])
    assert [(record.status, record.message) for record in records] == [
        ("finished", ""),
        ("failed", "it diverged"),
        ("interrupted", "interrupted after step 7 of 9"),
        ("interrupted", f"interrupted at step 50; resume with nsvm train resume={killed} 'plugins=[mine]'"),
        ("running", ""),
    ]
    assert records[1].overrides == ["seed=2"]
    assert records[3].settings == settings() | {"plugins": ["mine"]}
    (killed / "step-00000040.safetensors").touch()
    assert read_run(killed).message.startswith("interrupted at step 40; resume with ")


@pytest.mark.parametrize("content", ["", "[" * 10**5, "[]", '{"settings": 1, "overrides": {}}', "\x00"])
def test_a_damaged_result(content: str, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(content)
    record = read_run(tmp_path)
    assert record.status == "failed"
    assert "result.json" in record.message or "config.yaml" in record.message


def test_telling_settings(tmp_path: Path) -> None:
    finished(tmp_path / "1", overrides=("kernel=rbf", "algorithm.lam=0.1"), lam=0.1)
    finished(tmp_path / "2", overrides=("kernel=linear", "algorithm.lam=0.1"), lam=0.1, kernel="linear")
    records = find_runs([tmp_path])
    assert distinguishing(records) == ["kernel.name"]
    finished(tmp_path / "3")
    assert distinguishing(find_runs([tmp_path])) == ["algorithm.lam", "kernel.name"]
    assert distinguishing(records[:1]) == []


def test_conditions(tmp_path: Path) -> None:
    finished(tmp_path / "1", 0.8, lam=0.1, learn=("gamma",))
    finished(tmp_path / "2", 0.9, kernel="linear")
    started(tmp_path / "3")
    records = find_runs([tmp_path])

    def found(condition: str) -> list[str]:
        return [record.path.name for record in matching(records, condition)]

    assert found("kernel=linear") == found("kernel.name=linear") == ["2"]
    assert found("kernel!=linear") == ["1", "3"]
    assert found("algorithm.lam=1e-1") == ["1"]
    assert found("algorithm.lam != 1e-1") == ["2", "3"]
    assert found("kernel.learn=[gamma]") == ["1"]
    assert found("status=finished") == ["1", "2"]
    assert found("test_accuracy=null") == ["3"]
    assert found(f"path!={tmp_path}/1") == ["2", "3"]
    for descending, order in ((False, ["1", "2", "3"]), (True, ["2", "1", "3"])):
        ordered = in_order(records, "test_accuracy", descending)
        assert [record.path.name for record in ordered] == order, "expected runs without the figure last"
    for wrong, message in {
        "test_accuracy>0.9": "expected KEY=VALUE or KEY!=VALUE",
        "test_acuracy=0": "did you mean test_accuracy",
    }.items():
        with pytest.raises(InputError, match=message):
            matching(records, wrong)


def test_load_runs(tmp_path: Path) -> None:
    finished(tmp_path / "1", lam=0.1)
    started(tmp_path / "2")
    assert nsvm_cli.load_runs is load_runs
    table = nsvm_cli.load_runs(str(tmp_path))
    assert table["algorithm.lam"].tolist() == [0.1, 1e-4]
    assert table["status"].tolist() == ["finished", "interrupted"]
    assert table["test_accuracy"].isna().tolist() == [False, True]
    assert json.loads(table.to_json(orient="records"))[0]["kernel.name"] == "rbf"
