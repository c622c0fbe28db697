"""Suites of sweeps: run, resumed and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsvm_cli.engines.numba.code import code_folder
from tests.cli.process import nsvm, refusal, run_files, start, wait_for

LINES = """\
# two sweeps
- dataset=digits algorithm=logistic,majority seed=range(2)
- dataset=digits algorithm=svc algorithm.grid={C:[1,10]} seed=range(2)
"""


def table(output: str) -> list[str]:
    """Return the rows of a comparison without the training times."""
    rows = [line for line in output.splitlines() if line.startswith("| ")][2:]
    return [row.removesuffix(" |").rpartition("|")[0] for row in rows]


def test_a_suite_is_run_once_and_compared_though_a_sweep_of_it_fails(tmp_path: Path) -> None:
    """Overrides on the command line replace the suite's overrides of the same key."""
    file, words = tmp_path / "mine.yaml", ["reproduce", "mine.yaml", "seed=3", "curves=false"]
    file.write_text(f"- dataset=digits algorithm=svc algorithm.grid={{c:[1]}}\n{LINES}")
    done = nsvm(*words, cwd=tmp_path, code=2)
    assert "algorithm.grid.c: svc cannot search this" in done.stderr.splitlines()[-1]
    written = run_files(tmp_path / "outputs" / "reproduce" / "mine")
    assert len({run.parent for run in written}) == 3
    assert {row.split()[1] for row in table(done.stdout)} == {"logistic", "majority", "svc"}
    file.write_text(LINES)
    again = nsvm(*words, cwd=tmp_path, code=0)
    assert written == run_files(tmp_path)
    assert table(again.stdout) == table(done.stdout)
    file.write_text("- dataset=digits algorithm=majority seed=range(2)\n")
    nsvm("reproduce", "mine.yaml", "--output", "it's here", cwd=tmp_path, code=0)
    assert len({run.parent for run in run_files(tmp_path / "it's here")}) == 2


@pytest.mark.parametrize("text", ["dataset=digits", "- 3", "- {a: b}", "- [", ""])
def test_a_file_that_is_no_suite_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    assert "mine.yaml: expected a YAML list of sweeps, such as" in refusal(
        "reproduce", "mine.yaml", cwd=tmp_path
    )


@pytest.mark.thorough
def test_killed_it_repeats_nothing_and_ends_with_the_same_table(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
        (folder / "mine.yaml").write_text("- dataset=digits algorithm=alg4,cross_entropy,svc seed=0\n")
    # share the compiled code, because the engine of a run depends on what is compiled
    environment = {"XDG_CACHE_HOME": str(code_folder().parents[2])}
    process = start("reproduce", "mine.yaml", cwd=cut, env=environment)
    wait_for(lambda: bool([*cut.rglob("result.json")]), process)
    process.kill()
    process.communicate()
    finished = {file: time for file, time in run_files(cut).items() if file.name == "result.json"}
    assert len(finished) < 3, "the suite ended before it was killed"

    expected = table(nsvm("reproduce", "mine.yaml", cwd=whole, code=0).stdout)
    assert table(nsvm("reproduce", "mine.yaml", cwd=cut, code=0).stdout) == expected
    assert finished.items() <= run_files(cut).items()
