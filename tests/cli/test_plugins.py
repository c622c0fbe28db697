"""Plugins: the examples of the how-to page, errors in plugins, and changes of their code."""

from __future__ import annotations

import json
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from nsvm_cli.storage.run_directory import checkpoints_in
from tests.cli.process import as_if_started, evaluated, killed, nsvm, refusal, trained
from tests.cli.test_help_and_completion import completions
from tests.cli.test_report import report
from tests.runs.test_train import bits

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "adding-parts.md"


def write_files_of(page: str, folder: Path) -> set[str]:
    """Write the files that the text of a page shows, verbatim, and return their names."""
    blocks = re.findall(r"`([\w/.]+)`:\n\n```\w+\n(.*?)```", page, flags=re.DOTALL)
    for name, text in blocks:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return {name for name, _ in blocks}


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """Return a folder with my_parts.py from the section "Adding parts"."""
    section = PAGE.read_text().split("## Adding parts", 1)[1].split("\n## ", 1)[0]
    assert write_files_of(section, tmp_path) == {"my_parts.py"}
    return tmp_path


MINE = ["plugins=[my_parts]", "curves=false"]


def test_a_part_of_ones_own_trains_and_evaluates(parts: Path) -> None:
    choice = ["kernel=cauchy", "network=wide", "network.width=32", "algorithm=perceptron", "dataset=moons"]
    run, result = trained(*MINE, *choice, cwd=parts)
    assert evaluated(run, "--plugins", "my_parts", cwd=parts)["errors"] == result["test_errors"]
    assert result["test_accuracy"] > 0.8
    assert result["settings"]["network"]["width"] == 32


def test_a_file_of_the_users_wins_over_the_defaults_of_a_constructor(parts: Path) -> None:
    (parts / "my_conf" / "kernel").mkdir(parents=True)
    (parts / "my_conf" / "kernel" / "cauchy.yaml").write_text("name: cauchy\ngamma: 7")
    words = [MINE[0], "kernel=cauchy", "--cfg", "job"]
    for folder in (["--config-dir", "my_conf"], [f"hydra.searchpath=['{parts}/my_conf']"]):
        shown = nsvm("train", *folder, *words, cwd=parts, code=0).stdout
        assert "  name: cauchy\n  gamma: 7\noptimizer:" in shown
    assert "  name: cauchy\n  gamma: 0.5\n  learn: []\n" in nsvm("train", *words, cwd=parts).stdout


def test_help_and_completion_know_the_parts_of_a_module_that_is_named(
    parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = nsvm("train", "plugins=[my_parts]", "--help", cwd=parts, code=0).stdout
    assert "\nkernel: cauchy, laplacian, linear, " in said
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    with as_if_started(parts, {"COMP_LINE": "", "HYDRA_FULL_ERROR": ""}):
        for words, expected in (
            ("nsvm train plugins=[my_parts] kernel=c", {"kernel=cauchy"}),
            ("nsvm train plugins=[my_parts] kernel=cauchy kernel.g", {"kernel.gamma=", "kernel.gradient="}),
        ):
            assert completions(words) == expected


MOONS = "dataset.noise? (known: dataset.augment, dataset.fold, dataset.name, dataset.noise, "


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train kernel=cauchy kernel.gamma=wide", "kernel.gamma should be a valid number, got 'wide'"),
        ("train dataset=moons dataset.validation=-1", "dataset.validation: expected a number of samples"),
        ("train network=wide network.width=many", "network=wide: "),
        ("train dataset=moons dataset.noise2=3", MOONS),
        ("tune dataset=moons dataset.noise2=3", "did you mean dataset.noise? (known: dataset.augment, "),
        ("train kernel=cauchy kernel.gama=3", "kernel.gamma? (known: kernel.ard, kernel.bias, "),
        ("train kernel=cauchi", "there is no such kernel; did you mean cauchy? (known: cauchy, laplacian, "),
        ("train kernel=needy", "kernel.gamma requires a value"),
    ],
)
def test_a_bad_setting_of_a_part_of_ones_own_is_one_line(words: str, said: str, parts: Path) -> None:
    with (parts / "my_parts.py").open("a") as file:
        file.write('KERNELS["needy"] = lambda gamma: Cauchy(gamma)')
    assert said in refusal(*words.split(), MINE[0], cwd=parts)


OWN, SPSA = "kernel=cauchy", "kernel=cauchy kernel.gradient=spsa"
CAUCHY = "1 / (1 + self.gamma * squared_distances(a, b))"
VALUES = f"({CAUCHY}).detach()"
GRADIENT = "returned values that require gradients for features without gradients"
NO_GRADIENT = "returned values without a gradient; set kernel.gradient=spsa or finite_difference"
ARRAYS = "expected x of float64 or uint8 and y of a numeric dtype, got <U32 and float64 (my_parts.py, line "


@pytest.mark.parametrize(
    ("part", "was", "now", "said"),
    [
        (OWN, "1 / (1", "torch.ones(1, 1, 1) / (1", "float32 on cpu, got (1, 3, 5) of torch.float32 on cpu"),
        (OWN, "1 / (1", "torch.ones(1, requires_grad=True) / (1", f"cauchy (my_parts.Cauchy) {GRADIENT}"),
        (OWN, CAUCHY, VALUES, f"kernel Cauchy {NO_GRADIENT}"),
        (SPSA, CAUCHY, f"{VALUES}.double()", "of torch.float32 on cpu, got (3, 5) of torch.float64 on cpu"),
        (SPSA, CAUCHY, f"{VALUES}.numpy()", "kernel cauchy: expected a return value of (3, 5)"),
        ("dataset=moons", "x + rng.normal(0, self.noise, x.shape)", "x.astype(str)", ARRAYS),
    ],
)
def test_a_part_that_returns_something_else(part: str, was: str, now: str, said: str, parts: Path) -> None:
    text = (parts / "my_parts.py").read_text()
    assert was in text
    (parts / "my_parts.py").write_text(text.replace(was, now))
    assert said in refusal("train", *MINE, *part.split(), cwd=parts)


@pytest.fixture
def callbacks(tmp_path: Path) -> Path:
    """Return a folder with my_callbacks.py from the section "Callbacks"."""
    section = PAGE.read_text().split("## Callbacks", 1)[1].split("\n## ", 1)[0]
    assert write_files_of(section, tmp_path) == {"my_callbacks.py"}
    return tmp_path


WATCHED = ["algorithm=alg2", "plugins=[my_callbacks]", "curves=false", "log_every=50", "checkpoint.every=100"]
WATCHED += ["dataset.samples=600", "engine=torch", "callbacks=[{name: margin, target: 0.9}]"]


def test_a_callback_of_ones_own_of_15_lines_resumes_after_a_kill_to_the_bit(callbacks: Path) -> None:
    lines = (callbacks / "my_callbacks.py").read_text().splitlines()
    assert len([line for line in lines if line]) <= 15
    whole, result = trained(*WATCHED, cwd=callbacks)
    records = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    shares = [record["outside"] for record in records]
    assert [r["best_outside"] for r in records] == [max(shares[: n + 1]) for n in range(len(shares))]
    assert [share >= 0.9 for share in shares] == [False] * (len(shares) - 1) + [True]
    assert result["stopped"] == f"a share of {shares[-1]:.3f} is outside"
    assert result["steps"] == records[-1]["step"]
    whole = whole.rename(callbacks / "whole")
    killed(*WATCHED, "hydra.run.dir=run", step=250, cwd=callbacks)
    assert "there is no callback 'margin'" in nsvm("train", "resume=run", cwd=callbacks, code=2).stderr
    said = nsvm("train", "resume=run", "plugins=[my_callbacks]", cwd=callbacks, code=0).stderr
    assert "resuming after step " in said
    assert bits(callbacks / "run") == bits(whole)
    again = nsvm("train", "resume=run", cwd=callbacks, code=0).stdout
    assert again == f"Finished already: {callbacks / 'run'}, stopped: {result['stopped']}\n"


def test_a_callback_that_fails_is_one_line_with_its_place(callbacks: Path) -> None:
    file = callbacks / "my_callbacks.py"
    file.write_text(file.read_text().replace("float((train.y * g >= 1).float().mean())", "train.z"))
    line = 1 + file.read_text().partition("train.z")[0].count("\n")
    said = nsvm("train", *WATCHED, cwd=callbacks, code=1).stderr.splitlines()[-1]
    assert said.startswith("nsvm: plugin my_callbacks failed: AttributeError: ")
    assert said.endswith(f" (my_callbacks.py, line {line}){HINT}")


def test_a_sweep_over_callbacks(tmp_path: Path) -> None:
    words = ["-m", "algorithm=pegasos", "algorithm.steps=300", "dataset=digits", "curves=false"]
    words += ["dataset.validation=50", "validation.every=10", "hydra.sweep.dir=sweep"]
    words += ["callbacks=[],[early_stopping],[{name: early_stopping, patience: 3}]"]
    assert "3 finished, 0 failed" in nsvm("train", *words, cwd=tmp_path, code=0).stdout
    results = [json.loads(file.read_text()) for file in tmp_path.glob("sweep/*/result.json")]
    ends = {str(r["settings"]["callbacks"]): (r["steps"], "stopped" in r) for r in results}
    usual, none, soon = (ends[key] for key in sorted(ends))
    assert none == (300, False)
    assert soon[0] < usual[0] < 300
    assert (soon[1], usual[1]) == (True, True)
    table = nsvm("compare", "sweep", cwd=tmp_path, code=0).stdout
    assert "callbacks=[{'name': 'early_stopping', 'patience': 3}]" in table


TINY = ["algorithm=pegasos", "kernel.gamma=1", "algorithm.steps=5", "dataset.samples=100", "curves=false"]

BAD = "raise SystemExit('this is no library')"


def test_a_plugin_imports_what_lies_beside_it_but_no_file_there_shadows_a_library(tmp_path: Path) -> None:
    files = {
        "mine.py": "import beside\nimport colorsys\nfrom parts.kernel import Mine\n",
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
        "colorsys.py": BAD,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(dedent(text))
    run, _ = trained("plugins=[mine]", "kernel.name=mine", *TINY, cwd=tmp_path)
    figures = evaluated(run, "--plugins", "mine", "dataset=ringnorm", "dataset.samples=50", cwd=tmp_path)
    assert figures["samples"] == 5


KERNEL = """
import os
from nsvm_cli.models.kernels import KERNELS, RBF
calls = []
from own.power import POWER
class Mine(RBF):
    def __call__(self, a, b):
        calls.append(1)
        if len(calls) == int(os.environ.get("CALLS", 0)):
            raise ValueError("it is broken")
        return super().__call__(a, b) ** POWER
KERNELS["mine"] = Mine
"""
RUN = ["--config-dir", "conf", "plugins=[mine]", "kernel=mine", "engine=literal", "checkpoint.every=5"]
RUN += ["algorithm=pegasos", "algorithm.steps=60", "dataset.samples=100", "curves=false"]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Return a folder with a plugin that imports a package in the same folder."""
    files = {"mine.py": KERNEL, "own/__init__.py": "", "own/number.py": "POWER = 1"}
    files["own/power.py"] = "from . import number\nPOWER = number.POWER"
    files["conf/kernel/mine.yaml"] = "name: mine\ngamma: 1"
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_run_resumes_and_is_evaluated_with_the_code_that_it_was_trained_with(mine: Path) -> None:
    nsvm("train", *RUN, "hydra.run.dir=run", cwd=mine, env={"CALLS": "40"}, code=2)
    assert checkpoints_in(mine / "run")
    (mine / "own" / "number.py").write_text("POWER = 1/3")
    resume = ["train", "resume=run", "plugins=[mine]"]
    refused = nsvm(*resume, cwd=mine, code=2).stderr
    assert re.search(r"cannot be resumed bit for bit: plugins_sha256 was \w+… and is \w+…; ", refused)
    nsvm(*resume, "allow_mismatch=true", cwd=mine, code=0)
    result = json.loads((mine / "run" / "result.json").read_text())
    assert (result["exact"], result["overrides"]) == (False, RUN[2:])
    command = "nsvm train --config-dir conf 'plugins=[mine]' kernel=mine "
    assert command in report("run", cwd=mine).sections["Settings"]
    said = "the code of plugins has changed since training, so"
    assert said not in nsvm("evaluate", "run", "--plugins", "mine", cwd=mine, code=0).stderr
    (mine / "own" / "number.py").write_text("POWER = 1")
    for path in ("run", *checkpoints_in(mine / "run")):
        assert said in nsvm("evaluate", path, "--plugins", "mine", cwd=mine, code=0).stderr
        refused = nsvm("evaluate", path, cwd=mine, code=2).stderr
        assert "there is no kernel 'mine'" in refused, "a model file must not load plugins"
        assert "plugins=[MODULE]" in refused


def test_a_sweep_keeps_finished_jobs_of_other_code_and_says_so_once(mine: Path) -> None:
    several = [*RUN, "algorithm.steps=5", "seed=0,1", "kernel=mine,rbf", "hydra.sweep.dir=sweep"]
    nsvm("train", "-m", *several, cwd=mine, code=0)
    (mine / "own" / "number.py").write_text("POWER = 1/3")
    again = nsvm("train", "-m", *several, cwd=mine, code=0)
    assert "4 finished, 0 failed" in again.stdout
    (line,) = [line for line in again.stderr.splitlines() if "code" in line]
    assert re.fullmatch(
        r"2 finished jobs, such as pegasos-0-\w+, were trained before the code of plugins changed: "
        "to train these jobs again, delete their folders; to keep them, set allow_mismatch=true",
        line,
    )
    one = ["train", "-m", *several, "seed=0", "kernel=mine"]
    assert "code" not in nsvm(*one, "allow_mismatch=true", cwd=mine, code=0).stderr
    (mine / "own" / "number.py").write_text("POWER = 1")
    assert "code" not in nsvm(*one, cwd=mine, code=0).stderr


def test_only_what_the_parts_of_a_run_import_is_its_code(mine: Path) -> None:
    (mine / "beside.py").write_text("import late\nfrom nsvm_cli.models.kernels import KERNELS, RBF\n")
    (mine / "late.py").touch()
    nsvm("train", *RUN, "plugins=[mine,beside]", "hydra.run.dir=run", cwd=mine, env={"CALLS": "40"}, code=2)
    for name, edit in (("mine.py", "\ncalls = [0]"), ("own/power.py", "\n\n# edited")):
        text = (mine / name).read_text()
        (mine / name).write_text(text + edit)
        refused = nsvm("train", "resume=run", "plugins=[mine,beside]", cwd=mine, code=2).stderr
        assert "plugins_sha256 was" in refused
        (mine / name).write_text(text)
    for name in ("beside.py", "late.py"):
        (mine / name).write_text((mine / name).read_text() + "\n# edited")
    done = nsvm("train", "resume=run", "plugins=[mine,beside]", cwd=mine, code=0)
    assert "plugins_sha256 was" not in done.stderr


def test_a_result_says_where_and_from_which_commit_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "node", lambda: "host-of-mine")
    (tmp_path / "tracked").touch()
    name = ["-c", "user.name=me", "-c", "user.email=me@here"]
    for words in (["init", "-q"], ["add", "tracked"], [*name, "commit", "-q", "-m", "Begin"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    for key in ("core.fsmonitor", "filter.mine.clean", "core.pager"):  # each may name a program
        subprocess.run(["git", "config", key, "touch marker; cat"], cwd=tmp_path, check=True)
    (tmp_path / ".gitattributes").write_text("* filter=mine")
    (tmp_path / "tracked").write_text("edited")
    run, result = trained(*TINY, cwd=tmp_path)
    assert len(result["git"]["commit"]) == 40
    assert not (tmp_path / "marker").exists(), "a program in the repository's configuration was run"
    assert (result["host"], result["plugins_sha256"]) == ("host-of-mine", None)
    assert b"host-of-mine" not in (run / "final.safetensors").read_bytes()


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


BROKEN = """
import builtins
import os
from nsvm_cli.datasets import DATASETS
from nsvm_cli.datasets.ringnorm import Ringnorm
from nsvm_cli.models.kernels import KERNELS, RBF
from nsvm_cli.models.networks import MLP, NETWORKS

def passing(place, value):
    failing, _, kind = os.environ.get("FAILS", "").partition(" ")
    if place == failing and kind:
        raise getattr(builtins, kind)("it is broken")
    return None if place == failing else value

class Mine(Ringnorm):
    def load(self, rng):
        return passing("Mine.load", super().load(rng))

class K(RBF):
    def __call__(self, a, b):
        return passing("K.__call__", super().__call__(a, b))

class Net(MLP):
    def __init__(self, *args, **settings):
        super().__init__(*passing("Net.__init__", args), **settings)

DATASETS["mine"], KERNELS["k"], NETWORKS["net"] = Mine, K, Net
"""
RAISED = f"it is broken (broken.py, line {BROKEN[: BROKEN.index('raise')].count(chr(10)) + 1})"
HINT = "; set HYDRA_FULL_ERROR=1 to show the traceback"
FAILING = ["plugins=[broken]", "dataset.name=mine", "kernel.name=k", "network.name=net", "network.widths=[2]"]
FAILING += ["algorithm=alg1", "algorithm.steps=5", "dataset.samples=60", "curves=false", "engine=torch"]


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Return a folder with a plugin that fails at the place in the environment variable FAILS."""
    (tmp_path / "broken.py").write_text(BROKEN)
    return tmp_path


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ("Mine.load ValueError", f"plugin broken failed: ValueError: {RAISED}"),
        ("Mine.load FileNotFoundError", f"plugin broken failed: {RAISED}"),
        ("Net.__init__ ValueError", f"network=net: {RAISED}"),
        ("Net.__init__ RuntimeError", f"network net cannot be built: {RAISED}"),
        ("Mine.load", "dataset mine: expected load() to return Samples or a Table, got NoneType"),
        ("K.__call__ KeyError", f"plugin broken failed: KeyError: {RAISED}{HINT}"),
    ],
)
def test_what_a_plugin_raises_is_one_line_with_its_place(fails: str, said: str, broken: Path) -> None:
    done = nsvm("train", *FAILING, cwd=broken, env={"FAILS": fails}, code=1 if HINT in said else 2)
    assert done.stderr.splitlines()[-1].replace("'it is broken'", "it is broken") == f"nsvm: {said}"
    assert "Traceback" not in done.stderr


def test_every_command_explains_a_plugin_that_fails(broken: Path, inline_workers: None) -> None:
    trained(*FAILING, cwd=broken)
    (broken / "x.csv").write_text(",".join("abcdefghijklmnopqrst") + "\n" + ",".join(20 * "1") + "\n")
    plugins, search = "--plugins=broken", ["tune.validation=10", "tune.trials=1", "tune.jobs=1"]
    bug = f"nsvm: plugin broken failed: RuntimeError: {RAISED}{HINT}"
    for words, fails, code, said in (
        (["evaluate", "run", plugins], "Mine.load ValueError", 2, f"broken failed: ValueError: {RAISED}"),
        (["predict", "run", "x.csv", plugins], "K.__call__ RuntimeError", 1, bug),
        (["tune", *FAILING, *search], "K.__call__ RuntimeError", 1, bug),
        (["train", *FAILING, "hydra.run.dir=new"], "K.__call__ RuntimeError", 1, bug),
        (["report", "run", plugins], "Mine.load OSError", 0, f"skipped: plugin broken failed: {RAISED}."),
    ):
        done = nsvm(*words, cwd=broken, env={"FAILS": fails, "HYDRA_FULL_ERROR": "1"}, code=code)
        assert done.stderr.splitlines()[-1].endswith(said)
        assert ("Traceback" in done.stderr) is bool(code)


FUNCTIONS = """
import torch
from nsvm_cli.datasets.augmentation import AUGMENTATIONS
from nsvm_cli.models.objectives import KERNEL_OBJECTIVES, alignment
from nsvm_cli.models.optimizers import SCHEDULES
from nsvm_cli.models.penalties import PENALTIES
from nsvm_cli.runs.loop import CALLBACKS, Callback

SCHEDULES["falls"] = lambda progress: 0.5 - progress
SCHEDULES["halves"] = lambda progress: 0.5 if progress > 0.5 else 1.0
KERNEL_OBJECTIVES["both"] = lambda K, c, centred, w: torch.stack([K.mean(), K.std()])
KERNEL_OBJECTIVES["fourth"] = lambda *args: (1 - alignment(*args)) ** 4
AUGMENTATIONS["noise"] = lambda x, std=0.1: x + std * torch.randn_like(x)
PENALTIES["detached"] = lambda K: K.detach().norm()
PENALTIES["absolute"] = lambda theta: sum(p.abs().sum() for p in theta)
PENALTIES["even"] = lambda K: (1 - K).square().mean()

@CALLBACKS.register("writes")
class Writes(Callback):
    def __init__(self, experiment):
        pass

    def on_train_start(self):
        (self.folder / "note.txt").write_text("begun")
"""


def test_functions_of_ones_own_are_settings_and_their_code_counts(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    words = ["algorithm=alg4", "algorithm.steps=20", "algorithm.solver_steps=40", "dataset.samples=100"]
    words += ["plugins=[mine]", "curves=false", "engine=literal"]
    _, plain = trained(*words, cwd=tmp_path)
    assert plain["plugins_sha256"] is None
    run, result = trained(*words, "optimizer.schedule=halves", "overwrite=true", cwd=tmp_path)
    assert result["plugins_sha256"]
    assert result["theta_change"] != plain["theta_change"]
    own = ["algorithm.loss=fourth", "callbacks=[writes]"]
    _, result = trained(*words, *own, "overwrite=true", cwd=tmp_path)
    assert result["plugins_sha256"]
    assert (run / "note.txt").read_text() == "begun"
    for word, said in (
        ("optimizer.schedule=third", "is no 'third'; expected one of: constant, cosine, falls, halves, "),
        ("penalties.evn=1", "did you mean penalties.even? (known: penalties.absolute, "),
        ("penalties.even=-1", "penalties.even should be greater than or equal to 0, got -1"),
        ("dataset.augment=[nose]", "there is no transform 'nose'; did you mean noise? (known: ColorJitter, "),
    ):
        assert said in refusal("train", *words, word, "overwrite=true", cwd=tmp_path)
    for word, said in (
        ("optimizer.schedule=falls", "optimizer.schedule=falls: expected a factor from 0, got -0.0"),
        ("algorithm.loss=both", "must return a single number, a tensor, got shape [2]"),
        ("penalties.detached=1", "detached does not depend on theta: compute it with torch, without"),
    ):
        assert said in nsvm("train", *words, word, "overwrite=true", cwd=tmp_path, code=2).stderr


def test_the_penalties_and_transforms_of_the_page(tmp_path: Path) -> None:
    section = PAGE.read_text().split("## Penalties and transforms", 1)[1].split("\n## ", 1)[0]
    assert write_files_of(section, tmp_path) == {"my_functions.py"}
    words = ["plugins=[my_functions]", "algorithm=alg3", "algorithm.steps=20", "dataset.samples=200"]
    own = ["penalties.l2=0.01", "penalties.constant=0.1", "dataset.augment=[scaled, {name: noise, std: 0.2}]"]
    run, result = trained(*words, *own, "curves=false", cwd=tmp_path)
    assert result["plugins_sha256"]
    assert evaluated(run, "--plugins=my_functions", cwd=tmp_path)["errors"] == result["test_errors"]


def test_the_schedule_sampler_maintenance_and_logger_of_the_page(tmp_path: Path) -> None:
    section = PAGE.read_text().split("## Schedules, samplers", 1)[1].split("\n## ", 1)[0]
    assert write_files_of(section, tmp_path) == {"my_choices.py"}
    words = shlex.split(section.split("```sh\nnsvm train ", 1)[1].split("```", 1)[0])
    run, result = trained(*words, "algorithm.steps=100", "dataset.samples=200", "curves=false", cwd=tmp_path)
    assert result["plugins_sha256"]
    assert result["support_vectors"] == 20
    last = (run / "lines.txt").read_text().splitlines()[-1]
    assert last.startswith("100 {")
    assert "support_vectors" in last
    assert evaluated(run, "--plugins=my_choices", cwd=tmp_path)["errors"] == result["test_errors"]


def test_penalties_and_transforms_of_ones_own_are_settings_and_resume(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    words = ["plugins=[mine]", "algorithm=alg3", "algorithm.steps=15", "dataset.samples=100", "curves=false"]
    words += ["engine=torch", "overwrite=true"]
    changes = {}
    for word in (
        *("seed=0", "penalties.l1=0.1", "penalties.absolute=0.1", "penalties.even=0.1"),
        *("penalties.even=0", "dataset.augment=[noise]", "dataset.augment=[{name: noise, std: 0.2}]"),
    ):
        _, result = trained(*words, word, cwd=tmp_path)
        changes[word] = result["theta_change"]
        own = word not in ("seed=0", "penalties.l1=0.1", "penalties.even=0")
        assert (result["plugins_sha256"] is not None) == own, word
    plain = changes.pop("seed=0")
    assert changes.pop("penalties.absolute=0.1") == changes.pop("penalties.l1=0.1") != plain
    assert changes.pop("penalties.even=0") == plain
    assert len({plain, *changes.values()}) == 4
    words += ["dataset.augment=[noise]", "penalties.even=0.1", "checkpoint.every=5"]
    whole = trained(*words, cwd=tmp_path)[0].rename(tmp_path / "whole")
    killed(*words, "hydra.run.dir=run", step=10, cwd=tmp_path)
    nsvm("train", "resume=run", "plugins=[mine]", cwd=tmp_path, code=0)
    assert bits(tmp_path / "run") == bits(whole)
