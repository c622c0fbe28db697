"""The command ``nsvm compare``."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest

from nsvm_cli.storage.run_directory import write_config, write_status
from tests.cli.process import nsvm
from tests.comparison.test_compare import runs_of
from tests.comparison.test_figures import written


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Return a folder with finished runs of three algorithms and three seeds."""
    folder = tmp_path / "sweep"
    folder.mkdir()
    errors = {"alg1": [50, 62, 41], "alg2": [66, 71, 60], "alg3": [52, 60, 47]}
    for record in written(runs_of(errors), folder):
        result = {**record.figures, "settings": record.settings, "overrides": record.overrides}
        (record.path / "result.json").write_text(json.dumps(result))
    return folder


@pytest.mark.parametrize(
    ("format", "suffix", "magic", "table"),
    [
        ("markdown", "png", b"\x89PNG", "ring: test accuracy, %\n"),
        ("latex", "pdf", b"%PDF", r"% needs \usepackage{booktabs}"),
    ],
)
def test_the_table_goes_to_standard_output_and_the_names_of_figures_do_not(
    format: str, suffix: str, magic: bytes, table: str, sweep: Path
) -> None:
    words = "compare", "sweep", f"--format={format}"
    done = nsvm(*words, "--figures", "new/figures", cwd=sweep.parent)
    files = [f"new/figures/{name}.{suffix}" for name in ("curves", "ranks")]
    assert (done.returncode, done.stderr.splitlines()) == (0, files)
    assert done.stdout.startswith(table)
    assert (r"\toprule" in done.stdout) == (format == "latex")
    assert done.stdout == nsvm(*words, cwd=sweep.parent).stdout
    assert all((sweep.parent / file).read_bytes().startswith(magic) for file in files)


def test_a_failed_job_is_in_the_table_and_may_score_as_guessing(sweep: Path) -> None:
    for file in sweep.rglob("result.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "test_majority_accuracy": 0.5}))
    for name in ("ring-alg1-1", "ring-alg2-2"):
        settings = json.loads((sweep / name / "result.json").read_text())["settings"]
        (sweep / name / "result.json").unlink()
        write_config(sweep / name, settings)
        write_status(sweep / name, "failed" if "alg1" in name else "interrupted", "it ended")
    done = nsvm("compare", "sweep", cwd=sweep.parent)
    assert "| alg1 | 2 of 3 (1 failed) | 95.45 ± 0.64 |" in done.stdout
    assert "Excluded: 1 of 9 runs (" in done.stdout
    for n in (0, 1):
        file = sweep / f"ring-alg3-{n}" / "result.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "plugins_sha256": f"edit {n}"}))
    done = nsvm("compare", "sweep", "--failed=guess", "--format=csv", "--figures=.", cwd=sweep.parent)
    assert done.returncode == 0
    left_out, code, *rest = done.stderr.splitlines()
    assert left_out.startswith("Excluded: 1 of 9 runs (")
    assert code.startswith("The code of plugins differs between runs, such as ")
    assert rest == ["curves.png"]
    lines = csv.DictReader(StringIO(done.stdout))
    counts = [(line["settings"], line["seeds"], line["failed"]) for line in lines]
    assert counts == [("alg3", "3", "0"), ("alg2", "2", "0"), ("alg1", "3", "1")], "not ordered by rank"
