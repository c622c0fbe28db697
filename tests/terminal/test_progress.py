"""The progress of a run: a bar for each part and for the work after the last step, or lines."""

from __future__ import annotations

import contextlib
import re
import time
from types import SimpleNamespace
from typing import Any

import pytest

from nsvm_cli.terminal.progress import Progress
from nsvm_cli.trainers.alg4 import Alg4
from tests.patience import PATIENCE


def lines_of(capsys: pytest.CaptureFixture[str], solver: str, end: bool = False) -> list[str]:
    """Return the lines about a run of 10 steps in Part 1 and 3 in Part 2, interrupted unless ``end``."""
    progress = Progress("alg4")
    progress.trainer = Alg4(steps=10, solver_steps=20, solver=solver)
    with contextlib.suppress(KeyboardInterrupt), progress:
        progress.on_train_start()
        state: Any
        for part, t in ((1, 4), (1, 10), (2, 10), (2, 13)):
            state = SimpleNamespace(part=part, t=t)
            progress.on_step_end(state)
        progress.on_log(state, {"step": 13, "part": 2})
        if not end:
            raise KeyboardInterrupt
        progress.on_train_end(state, None)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err).replace("\r", "\n")
    return [line.rstrip() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("solver", "counts"), [("pegasos", r"3/20 +[\d:]+ +[\d:-]+"), ("svc", r"3/\? +[\d:]+")]
)
def test_each_part_has_its_bar(
    solver: str, counts: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remaining time is unknown for a solver that chooses its number of steps."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    *_, part_1, part_2 = lines_of(capsys, solver)
    assert re.match(r"alg4 +━+ +10/10 ", part_1)
    assert re.match(rf"Part 2 +[━╸╺]+ +{counts}( +[a-z].*)?$", part_2)
    *_, part_1, part_2, after = lines_of(capsys, solver, end=True)
    assert re.match(r"Part 2 +[━╸╺]+ +3/3 ", part_2)
    assert re.match(r"model and scores +━+ +1/1 ", after)


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    first, line = lines_of(capsys, "svc")
    assert first == "alg4: 110 steps"
    assert re.match(r"step 13/110  [\d:]+ elapsed", line)
    assert "left" not in line


@pytest.mark.parametrize("name", ["Part 2", "model and scores"])
def test_lines_about_what_has_no_steps(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Progress, "seconds", 0.01)
    told = ""
    with Progress("alg4") as progress:
        progress.trainer = Alg4(steps=10, solver="nystroem")
        progress.on_train_start()
        state: Any = SimpleNamespace(part=2, t=10)
        progress.on_step_end(state)
        if name != "Part 2":
            progress.on_train_end(state, None)
        deadline = time.monotonic() + PATIENCE
        while f"{name}: 0:00:" not in told and time.monotonic() < deadline:
            time.sleep(0.01)
            told += capsys.readouterr().err
    assert re.search(rf"^{name}: [\d:]+ elapsed$", told, re.MULTILINE)


CELL = """
from sklearn.datasets import make_moons
from nsvm_cli import NSVMClassifier

print("before")
NSVMClassifier(steps=200, verbose=True).fit(*make_moons(200, noise=0.2, random_state=0))
"""


@pytest.mark.thorough
def test_a_notebook_shows_bars_in_one_place() -> None:
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    updates = []

    class Client(client.NotebookClient):  # type: ignore[misc, name-defined]
        def process_message(self, message: Any, *given: Any) -> Any:
            if message["msg_type"] == "update_display_data":
                updates.append(message["content"]["data"]["text/plain"])
            return super().process_message(message, *given)

    (cell,) = cells = [nbformat.v4.new_code_cell(CELL)]
    Client(nbformat.v4.new_notebook(cells=cells), timeout=PATIENCE, kernel_name="python3").execute()
    printed, bars, result = cell.outputs
    assert printed["text"] == "before\n"
    assert result["output_type"] == "execute_result"
    assert len(updates) > 2
    assert bars["data"]["text/plain"] == updates[-1]
    assert "text/html" in bars["data"]
    first, *_, last = re.sub(r"\x1b\[[0-9;]*m", "", updates[-1]).splitlines()
    assert re.match(r"fit +━+ (\d+)/\1 .* (objective|support vectors) ", first)
    assert re.match(r"model and scores +━+ 1/1 ", last)
