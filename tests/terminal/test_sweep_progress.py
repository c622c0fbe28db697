"""The progress of a sweep, with made-up jobs."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from nsvm_cli.terminal.console import sweep_progress
from nsvm_cli.words import score_of
from tests.patience import PATIENCE


def test_the_score_of_a_job_is_by_its_metric_or_that_of_the_task() -> None:
    result = {"metric": "f1", "validation_accuracy": 0.9, "validation_f1": 0.3, "test_f1": 0.2}
    assert score_of(result, by=result["metric"]) == ("validation", "f1", 0.3)
    assert score_of(result) == ("validation", "accuracy", 0.9)
    assert score_of({**result, "validation_f1": None}, by="f1") == ("validation", "accuracy", 0.9)
    assert score_of({"test_r2": 0.5}, by=[]) == ("test", "r2", 0.5)


@pytest.mark.parametrize("terminal", [True, False])
def test_news_are_lines_and_a_terminal_shows_a_bar(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an OSError, the display continues to look for news."""
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("nsvm_cli.terminal.console.INTERVAL", 0.0)
    looks: Any = iter([OSError("gone"), (["job 0: half way"], 0), (["job 0: finished; 2/6 ended"], 2)])
    seen = threading.Event()

    def look() -> tuple[list[str], int]:
        if isinstance(news := next(looks, None), OSError):
            raise news
        if news is None:
            seen.set()
        return news or ([], 2)

    with sweep_progress(look, total=6):
        assert seen.wait(PATIENCE)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err).replace("\r", "\n")
    lines = [line.rstrip() for line in text.splitlines()]
    news = ["job 0: half way", "job 0: finished; 2/6 ended"]
    assert [line for line in lines if line.startswith("job ")] == news
    assert any(re.match("jobs ━+.* 2/6 ", line) for line in lines) == terminal
