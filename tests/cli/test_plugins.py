"""Parts added from outside the package: the examples of the how-to page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.process import evaluated, nsvm, trained

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "adding-parts.md"


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """Return a folder with the files that the page shows under "Adding parts", to the letter."""
    section = PAGE.read_text().split("## Adding parts", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"`([\w/.]+)`:\n\n```\w+\n(.*?)```", section, flags=re.DOTALL)
    assert {"my_parts.py", "my_conf/kernel/cauchy.yaml"} <= {name for name, _ in blocks}
    for name, text in blocks:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


MINE = ["--config-dir", "my_conf", "plugins=[my_parts]", "curves=false"]


@pytest.mark.parametrize(
    "choice",
    [
        "kernel=cauchy algorithm=pegasos",
        "network=wide dataset=moons algorithm.steps=300 algorithm.solver_steps=300",
        "algorithm=perceptron network=identity kernel.gamma=0.05",
        "dataset=moons algorithm=alg3 algorithm.steps=300",
    ],
)
def test_a_part_of_ones_own_trains_and_evaluates(choice: str, parts: Path) -> None:
    run, result = trained(*MINE, *choice.split(), cwd=parts)
    assert evaluated(run, "plugins=[my_parts]", cwd=parts)["errors"] == result["test_errors"]
    assert result["test_accuracy"] > 0.8


def test_a_checkpoint_never_loads_code_by_itself(parts: Path) -> None:
    run, _ = trained(*MINE, "kernel=cauchy", "algorithm.steps=20", "algorithm.solver_steps=20", cwd=parts)
    done = nsvm("evaluate", run, cwd=parts)
    assert done.returncode == 2
    assert "there is no kernel 'cauchy'" in done.stderr
    assert "plugins=[MODULE]" in done.stderr


def test_every_part_at_once(parts: Path) -> None:
    words = [*MINE, "kernel=cauchy", "network=wide", "algorithm=perceptron", "dataset=moons"]
    trained(*words, cwd=parts)
