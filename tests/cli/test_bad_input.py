"""Bad input is refused with one line and exit code 2, and leaves no files."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsvm_cli.compose.composition import compose_settings
from nsvm_cli.storage.run_directory import write_config
from tests.cli.process import nsvm, refusal, start
from tests.patience import PATIENCE

CASES = [
    ("trian", "there is no command 'trian'; did you mean train?"),
    ("train datset=mnist", "datset: there is no such setting; did you mean dataset?"),
    ("train dataset=mnst", "dataset=mnst: there is no such dataset; did you mean mnist?"),
    ("train +sed=3", "sed: there is no such setting; did you mean seed?"),
    ("train algorithm", "the override 'algorithm' cannot be read"),
    ("train --confg-dir x", "there is no flag --confg-dir; did you mean --config-dir?"),
    ("train --cfg everything", "there is no cfg 'everything'; expected one of: all, hydra, job"),
    ("train algorithm.lr=0.1", "did you mean optimizer.lr? (known: algorithm.average, "),
    ("train dataset=my/table.csv", "dataset=my/table.csv: there is no such dataset; did you mean csv?"),
    (
        "train +experiment=ringnorm_alg4_wide",
        "expected experiment=OPTION, without + or nested lists (known: ",
    ),
    ("train -m dataset=digits,[a,[b]]", "dataset=digits,[a,[b]]: expected dataset=OPTION, without"),
    ("train algorithm={nix:1}", "algorithm.nix: there is no such setting; expected one of: algorithm."),
    ("train kernel.gradient=spsa engine=numba", "engine=numba does not support kernel.gradient"),
    ("train seed=0,1", "seed=0,1 has several values: to train with each value, add -m"),
    ("evaluate x --splits val", "there is no flag --splits; did you mean --split? (known: "),
    ("train hydra.run.dir=", "hydra.run.dir=: expected a folder; to use a new folder in outputs, remove"),
    ("train -m hydra.sweep.dir='' seed=1", "hydra.sweep.dir='': expected a folder"),
    ("train seed=${oc.env:NOWHERE}", "Environment variable 'NOWHERE' not found\" (in seed)"),
    (f"train seed=0x{'f' * 20_000}", "seed should be a valid integer, got '0xfff"),
    ("train dataset.validation=7000", "dataset.validation=7000: expected fewer than 6660, the number"),
    ("train algorithm=cross_entropy loss=hinge", "loss=hinge requires an SVM"),
    ("train dataset=csv dataset.path=nowhere.csv", "dataset.path=nowhere.csv does not exist"),
    ("train dataset=mnist dataset.root=nowhere", "nowhere: nowhere/MNIST/raw/train-images-idx3-ubyte"),
    ("train plugins=[nowhere]", "plugins: there is no module 'nowhere'"),
    *(
        (f"{command} --plugins nowhere", "there is no module 'nowhere'")
        for command in ("evaluate run", "predict run x.csv", "report run", "export run --onnx")
    ),
    ("evaluate x --plugins 1", "plugins: expected names of modules such as my_parts, got '1'"),
    ("evaluate", "evaluate requires PATH; see nsvm evaluate --help"),
    ("evaluate x datset=a", "or an override of the data set; did you mean dataset? (known: dataset,"),
    ("evaluate x --split tests", "there is no split 'tests'; did you mean test?"),
    ("completion tcsh", "there is no shell 'tcsh'; expected one of: bash, fish, zsh"),
    ("tune algorithm=alg3 --config-dir", "argument --config-dir: expected one argument"),
    ("tune dataset.samples=400 dataset.validation=0", "set tune.validation above 0"),
    ("tune metric=acuracy", "metric=acuracy: there is no such metric; did you mean accuracy"),
    ("tune tune.trails=3", "tune.trails: there is no such setting; did you mean tune.trials?"),
    ("tune +tune.space.network.droput=[0.1]", "network.droput: mlp has no such setting"),
    ("train --estimate -m seed=0,1", "--estimate cannot be combined with -m"),
    ("train --estimate dataset=csv", "dataset.path requires a value"),
    ("train -m hydra/launcher=rya", "hydra/launcher=rya: there is no such hydra/launcher; did you mean ray?"),
    ("train resume=nothing", "resume=nothing: expected a run directory, which contains config.yaml"),
    ("train resume=run experiment=ringnorm_alg4_wide", "override single settings, such as optimizer.lr="),
    ("train resume=run -m", "to resume a sweep, run its command again"),
    ("train resume=run overwrite=true", "overwrite=true cannot be combined with resume=RUN"),
    ("train resume=run allow_mismatch=maybe", "allow_mismatch: expected true or false, got 'maybe'"),
    ("train resume=run algorithm=alg1", "algorithm=alg1 cannot be combined with resume=RUN: override "),
    ("train resume=run sed=1", "sed: there is no such setting; did you mean seed?"),
    ("train resume=run ~seed", "~seed cannot be combined with resume=RUN"),
    ("train overwrite=maybe", "overwrite: expected true or false, got 'maybe'"),
    ("compare .", "there is no run in this folder"),
    ("compare . --format pdf", "there is no format 'pdf'"),
    ("report missing", "there is no such folder"),
    ("export run", "export requires --onnx; see nsvm export --help"),
    ("reproduce", "reproduce requires SUITE"),
    ("reproduce papr", "papr: there is no such suite; did you mean paper"),
    ("reproduce nowhere.yaml", "nowhere.yaml: there is no such suite"),
]


@pytest.mark.parametrize(("line", "said"), CASES, ids=[line[:60] for line, _ in CASES])
def test_is_refused_in_one_line(line: str, said: str, tmp_path: Path) -> None:
    if "resume=run" in line:
        (tmp_path / "run").mkdir()
        write_config(tmp_path / "run", compose_settings(["algorithm=alg2"]))
    assert said in refusal(*line.split(), cwd=tmp_path)
    assert not [*(tmp_path / "outputs").glob("*_*")], "the command left an empty folder in outputs"


def test_a_process_ends_with_the_same_line_and_code(tmp_path: Path) -> None:
    process = start("trian", cwd=tmp_path)
    out, errors = process.communicate(timeout=PATIENCE)
    done = nsvm("trian", cwd=tmp_path, code=2)
    assert (process.returncode, out, errors) == (2, done.stdout, done.stderr)
