"""Configurations of a stranger: nothing of them runs, is imported, connects or writes."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from nsvm_cli.cli.hydra_app import compose_settings
from tests.cli.process import nsvm
from tests.cli.witness import Answer, expect_refusal, witnessed

MARK = "touch marker"
PAYLOAD = f"{{_target_: os.system, command: {MARK}}}"
CONSTRUCTED = f"{{'()': os.system, command: {MARK}}}"
LAUGHS = "\n".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 12))
WHOLE = "defaults: [ringnorm_alg4@experiment, _self_]"
DOUBLED = "\n".join(f"  l{i}: {{a: '${{..l{i - 1}}}', b: '${{..l{i - 1}}}'}}" for i in range(1, 60))
CASES = [
    ("hydra.callbacks", f"hydra: {{callbacks: {{mine: {PAYLOAD}}}}}"),
    ("hydra.job_logging", f"hydra: {{job_logging: {{version: 1, formatters: {{f: {CONSTRUCTED}}}}}}}"),
    ("hydra.hydra_logging", f"hydra: {{hydra_logging: {{version: 1, handlers: {{h: {CONSTRUCTED}}}}}}}"),
    ("hydra.launcher", f"hydra: {{launcher: {PAYLOAD}}}"),
    ("hydra.sweeper", f"hydra: {{sweeper: {PAYLOAD}}}"),
    ("hydra.run", "hydra: {run: {dir: ../elsewhere}}"),
    ("hydra.sweep", "hydra: {sweep: {dir: ../elsewhere, subdir: x}}"),
    ("hydra.job", "hydra: {job: {chdir: true, env_set: {PYTHONPATH: .}, env_copy: [SECRET]}}"),
    ("hydra.output_subdir", "hydra: {output_subdir: ../../x}"),
    ("hydra.searchpath", "hydra: {searchpath: ['pkg://evil']}"),
    ("hydra.mode", "hydra: {mode: MULTIRUN}"),
    ("hydra: set on the command line only", "hydra: ???"),
    ("defaults: expected one entry", "defaults: [a, b]"),
    ("hydra: set on the command line only", "defaults: [{override /hydra/launcher: basic}]"),
    ("hydra: set on the command line only", "defaults: ['other@_global_.hydra.callbacks']"),
    ("name of a configuration, got", "defaults: [{override /dataset: ../../x}]"),
    ("name of a configuration, got", "defaults: [{override /dataset: [mnist, ../x]}]"),
    ("name of a configuration, got", "defaults: [{'optional override /dataset': .}]"),
    ("name of a configuration, got", "defaults: [3: x]"),
    ("lead back to themselves", "defaults: [theirs]"),
    ("plugins: name modules on the command line", "plugins: [evil]"),
    ("${oc.env:SECRET}: expected a value", "device: ${oc.env:SECRET}"),
    ("expected a value, or a reference", "device: ${${x}:SECRET}"),
    ("${oc.decode", "seed: ${oc.decode:'1'}"),
    ("apply:os.system: expected plain values", "seed: !!python/object/apply:os.system [touch]"),
    ("the alias *l0", f"l0: &l0 [1]\n{LAUGHS}"),
    ("too many values: expected at most 2000", f"seed: [{'1,' * 30_000}1]"),
    ("too long: expected", "seed: [" + "1," * 500_000 + "1]"),
    ("nested too deeply", f"seed: {'[' * 10_000}{']' * 10_000}"),
    ("too many values: expected at most 20000", f"{WHOLE}\nexperiment:\n  l0: 1\n{DOUBLED}"),
    ("expected one reference", "experiment: {a: '${.b}${.b}'}"),
    ("too long a value", f"seed: 0x{'f' * 20_000}"),
    ("expected printable characters", 'device: "\\x1b[2Jcpu"'),
    ("experiment/theirs.yaml: ", "seed: [\n"),
    ("KEY: VALUE", "[evil]"),
]


ELSEWHERE = {
    # how it gets there
    "tune --config-dir conf experiment=theirs": "hydra.callbacks: set on the command line only",
    "train -cd conf -m experiment=theirs seed=1,2": "hydra.callbacks: set",
    "train hydra.searchpath=[conf] experiment=theirs": "hydra.callbacks: set",
    "train --config-dir conf experiment=theirs --cfg job --resolve": "hydra.callbacks: set",
    "train --config-dir conf experiment=theirs --info": "hydra.callbacks: set",
    "train --config-path conf/experiment -cn theirs": "no --config-path; expected --config-dir FOLDER",
    "train --config-dir conf -cn experiment/theirs": "nsvm takes no --config-name",
    "train --experimental-rerun evil.py": "nsvm takes no --experimental-rerun",
    # by the place of the file
    "train --config-dir conf +hydra/callbacks=theirs": "hydra: set on the command line only",
    "train --config-dir conf kernel=theirs": "hydra: set on the command line only",
    "train --config-dir conf kernel=listed": "plugins: set on the command line only",
    # on the command line
    "train dataset=../dataset/mnist": "dataset/../dataset/mnist: expected the name of a configuration",
    "train --config-dir conf dataset=../../evil": "expected the name of a configuration, without ..",
    "evaluate x dataset=../dataset/csv": "expected the name of a configuration, without ..",
    "train device=${oc.env:SECRET}": "device=${oc.env:SECRET}: expected a value",
    "train -m device=cpu,${oc.env:SECRET}": "expected a value, or a reference",
    "tune device=${oc.env:SECRET}": "expected a value, or a reference",
    "tune --config-dir conf dataset=away": "/../../../away_alg4: name a folder outside outputs/",
}
FILES = {
    "conf/experiment/theirs.yaml": f"# @package _global_\n{CASES[0][1]}\n",
    "conf/dataset/away.yaml": "name: ../../../away\nvalidation: 0\n",
    "conf/hydra/callbacks/theirs.yaml": f"mine: {PAYLOAD}\n",
    "conf/kernel/theirs.yaml": f"# @package hydra.callbacks\nmine: {PAYLOAD}\n",
    "conf/kernel/listed.yaml": "# @package plugins\n- evil\n",
    "evil.yaml": "name: mnist\n",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    folder = tmp_path_factory.mktemp("strangers")
    commands = []
    for n, (_, text) in enumerate(CASES):
        place = folder / str(n)
        write(place, {"conf/experiment/theirs.yaml": f"# @package _global_\n{text}\n"})
        commands.append((place, ["train", "--config-dir", "conf", "experiment=theirs"]))
    for n, line in enumerate(ELSEWHERE):
        write(place := folder / f"elsewhere {n}", FILES)
        commands.append((place, line.split()))
    return witnessed(commands, folder)


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize("n", range(len(CASES)))
def test_an_experiment_of_a_stranger(n: int, answers: list[Answer]) -> None:
    expect_refusal(answers[n])
    assert CASES[n][0] in answers[n].said


@pytest.mark.parametrize("n", range(len(ELSEWHERE)))
def test_by_another_way(n: int, answers: list[Answer]) -> None:
    answer = answers[len(CASES) + n]
    expect_refusal(answer)
    assert ELSEWHERE[" ".join(answer.words)] in answer.said


def test_a_target_is_an_unknown_setting(tmp_path: Path) -> None:
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "theirs.yaml").write_text(
        f"name: ringnorm\n_target_: os.system\ncommand: {MARK}\n"
    )
    words = ["train", "--config-dir", ".", "dataset=theirs"]
    done = nsvm(*words, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "ringnorm has no such setting" in done.stderr
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and file.name != "theirs.yaml"]


def test_what_an_honest_folder_says_is_read(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    text = """\
        # @package _global_
        defaults:
          - ringnorm_alg1@experiment
          - override /dataset: ringnorm
          - override /kernel: laplacian
        seed: ${experiment.validation}
    """
    (tmp_path / "experiment" / "mine.yaml").write_text(textwrap.dedent(text))
    values = compose_settings([f"hydra.searchpath=['{tmp_path}']", "experiment=mine"])
    assert (values["kernel"]["name"], values["seed"]) == ("laplacian", 200)
