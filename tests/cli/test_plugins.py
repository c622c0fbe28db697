"""Parts added from outside the package: the examples of the how-to page."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.cli.process import evaluated, nsvm, refusal, trained

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


TINY = ["algorithm=pegasos", "kernel.gamma=1", "algorithm.steps=5", "dataset.samples=100", "curves=false"]

BAD = "raise SystemExit('this was not named')"


def test_only_what_was_named_comes_from_the_current_folder(tmp_path: Path) -> None:
    """Though libraries look for optional parts while it is imported, such as pandas for bottleneck."""
    files = {
        "mine.py": "import beside\nimport searching\nfrom parts.kernel import Mine\n",
        "beside.py": "def later():\n    import late\n    return late.LATE",
        "late.py": "LATE = 1",
        "parts/kernel.py": """
            import beside
            from nsvm_cli.models.kernels import KERNELS, RBF
            class Mine(RBF):
                def __init__(self, gamma):
                    super().__init__(gamma * beside.later())
            KERNELS["mine"] = Mine
        """,
        "lib/searching.py": """
            from contextlib import suppress
            with suppress(ImportError):
                import bottleneck
        """,
        "bottleneck.py": BAD,
        "hydra_plugins/__init__.py": BAD,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(dedent(text))
    sys.path.append(str(tmp_path / "lib"))
    try:
        run, _ = trained("plugins=[mine]", "kernel.name=mine", *TINY, cwd=tmp_path)
        figures = evaluated(run, "plugins=[mine]", "dataset=ringnorm", "dataset.samples=50", cwd=tmp_path)
    finally:
        sys.path.remove(str(tmp_path / "lib"))
    assert figures["samples"] == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n1 / 0", "ZeroDivisionError: division by zero (mine.py, line 2)"),
        ("def f(:", "SyntaxError: invalid syntax (mine.py, line 1)"),
        ("import beside", "KeyError: 'x' (beside.py, line 1)"),
    ],
)
def test_a_plugin_that_fails(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text)
    (tmp_path / "beside.py").write_text("{}['x']")
    message = refusal("train", "plugins=[mine]", cwd=tmp_path)
    assert message.startswith("plugin mine failed: ")
    assert said in message
    assert message.endswith("; HYDRA_FULL_ERROR=1 shows the traceback")


def test_the_traceback_of_a_plugin_that_fails(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("1 / 0")
    done = nsvm("train", "plugins=[mine]", cwd=tmp_path, env={"HYDRA_FULL_ERROR": "1"})
    assert done.returncode == 2
    assert 'mine.py", line 1, in <module>' in done.stderr
    assert done.stderr.splitlines()[-1].startswith("nsvm: plugin mine failed: ")
