"""Files of metrics and times with damaged or incomplete lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nsvm_cli.errors import InputError
from nsvm_cli.page.curves import draw_curves
from nsvm_cli.storage import metrics_file

GOOD = b'{"step": 1, "violations": 1, "objective": null}\n'
DAMAGED = {
    "half": b'{"step": 2, "viol',
    "bytes": b"\xff\xfe\x00",
    "nested": b"[" * 100_000,
    "nan": b'{"step": 2, "violations": 1, "objective": NaN}',
    "digits": b'{"step": 2, "violations": 1, "objective": 1' + b"0" * 4000 + b"}",
    "incomplete": b'{"step": 2}',
    "step": b'{"step": 1, "violations": 1}',
}
SAID = "metrics.jsonl, line 2: expected a JSON object of numbers with the keys step and violations"


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_line_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(GOOD + DAMAGED[name] + b"\n" + GOOD)
    with pytest.raises(InputError, match=SAID):
        draw_curves(tmp_path)


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(GOOD + DAMAGED["half"])
    assert [record["step"] for record in metrics_file.read_metrics(tmp_path / "metrics.jsonl")] == [1]


def test_times_have_the_last_word_on_a_step_and_no_torn_lines(tmp_path: Path) -> None:
    file = tmp_path / "times.jsonl"
    assert metrics_file.read_times(file) == {}
    times = [(1, 0.5), (2, 1.0), (2, 7.0), (3, 8.0)]
    lines = [json.dumps({"step": step, "seconds": seconds}) for step, seconds in times]
    damaged = ['{"step": 4, "sec{"step": 4, "seconds": 9}', '{"step": 5, "seconds": NaN}', '{"step": 6', "[]"]
    file.write_text("\n".join([*lines, *damaged]))
    assert metrics_file.read_times(file) == {1: 0.5, 2: 7.0, 3: 8.0}
