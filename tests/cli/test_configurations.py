"""The user's own configuration files, in which all features that Hydra documents work."""

from __future__ import annotations

import textwrap
from pathlib import Path

import hydra
import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra

from nsvm_cli.compose.composition import COMPOSE_OPTIONS, compose_settings
from nsvm_cli.errors import InputError
from tests.cli.process import as_if_started, nsvm, refusal


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


MINE = """\
    # @package _global_
    defaults:
      - ringnorm_alg4_wide
      - /shared
      - override /algorithm: alg3
      - override /kernel: theirs
    algorithm: {steps: 10}
    dataset: {samples: 300}
    seed: ${oc.decode:${oc.env:SEED}}
    plugins: [said]
    curves: false
    engine: literal
    hydra:
      run: {dir: "run_${oc.env:SEED}"}
      sweep: {dir: my_sweep}
      output_subdir: .hydra
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Return a folder with the configurations in conf and more, and a plugin that prints when imported."""
    kernel = "{name: rbf, gamma: 0.25, bias: true}"
    write(tmp_path, conf__experiment__mine=MINE, conf__shared="threads: 2\n", more__kernel__theirs=kernel)
    write(
        tmp_path,
        conf__primary="defaults: [train, _self_]\nhydra: {searchpath: [file://more]}\nlog_every: 4\n",
    )
    (tmp_path / "said.py").write_text("print('imported')")
    return tmp_path


def test_an_experiment_may_say_what_hydra_documents(mine: Path) -> None:
    """The experiment is in a folder that only the primary configuration adds to Hydra's search path."""
    (mine / "conf" / "experiment").rename(mine / "more" / "experiment")
    words = ["train", "--config-dir", "conf", "--config-name", "primary", "experiment=mine"]
    assert nsvm(*words, cwd=mine, env={"SEED": "7"}, code=0).stdout.startswith("imported\n")
    assert (mine / "run_7" / ".hydra" / "overrides.yaml").exists()
    recorded = yaml.safe_load((mine / "run_7" / "config.yaml").read_text())
    kernel = recorded["kernel"]
    assert (kernel["gamma"], kernel["bias"]) == (1.7e-3, True), "expected gamma of the experiment"
    assert recorded["algorithm"]["batch_size"] == 16
    recorded_keys = ("seed", "threads", "log_every", "plugins")
    assert [recorded[key] for key in recorded_keys] == [7, 2, 4, ["said"]]


OF_A_KIND = "# @package _global_\ndefaults: [ringnorm]\ntuned: mine\n"
TUNED = """\
    all: {network: {widths: [7, 5]}, optimizer: {lr: 0.5, warmup: 0.1}}
    alg3: {optimizer: {lr: 0.25, momentum: null}}
    identity+alg3: {optimizer: {lr: 0.125}}
    alg3+ringnorm+laplacian: {kernel: {gamma: 7}, optimizer: {lr: 1}}
"""


@pytest.mark.parametrize(
    ("words", "widths", "lr"),
    [
        ("algorithm=alg1", [7, 5], 0.5),
        ("algorithm=alg3", [7, 5], 0.25),
        ("algorithm=alg3 network=identity", None, 0.125),
        ("algorithm=alg3 kernel=laplacian", [7, 5], 1),
        ("algorithm=alg3 dataset=ringnorm", [40, 30, 20, 20], 3e-3),
    ],
)
def test_a_kind_of_data_of_ones_own(words: str, widths: list[int] | None, lr: float, tmp_path: Path) -> None:
    """Later entries take precedence. laplacian.yaml does not refer to kernel.gamma, which has no effect."""
    write(tmp_path, dataset__mine=OF_A_KIND, tuned__mine=TUNED)
    settings = compose_settings([f"hydra.searchpath=['{tmp_path}']", "dataset=mine", *words.split()])
    assert settings["network"].get("widths") == widths
    assert settings["optimizer"]["lr"] == lr
    assert settings["optimizer"]["momentum"] == (0.9 if widths == [40, 30, 20, 20] or lr == 0.5 else None)
    assert settings["kernel"]["gamma"] == (None if "laplacian" in words else 1.0)


@pytest.mark.parametrize("text", ["alg4: [\n", "alg4: 5\n", "[1]\n"])
def test_a_file_of_values_that_has_none(text: str, tmp_path: Path) -> None:
    write(tmp_path, dataset__mine=OF_A_KIND, tuned__mine=text)
    with pytest.raises(InputError, match=r"^/.*/tuned/mine.yaml: expected entries such as alg4: \{opt"):
        compose_settings([f"hydra.searchpath=['{tmp_path}']", "dataset=mine"])


def test_values_are_found_where_a_job_has_another_current_folder(tmp_path: Path) -> None:
    write(tmp_path, more__dataset__mine=OF_A_KIND, more__tuned__mine="alg4: {network: {widths: [7]}}\n")
    words = ["dataset=mine", "dataset.samples=300", "algorithm.steps=5", "engine=literal", "curves=false"]
    nsvm("train", "hydra.searchpath=[file://more]", *words, "hydra.job.chdir=true", cwd=tmp_path, code=0)
    (recorded,) = tmp_path.rglob("config.yaml")
    assert yaml.safe_load(recorded.read_text())["network"]["widths"] == [7]


def test_each_job_of_a_sweep_has_its_own_values(tmp_path: Path) -> None:
    words = ["dataset=digits", "dataset.classes=null,[0,1]", "algorithm=alg1", "algorithm.steps=2"]
    common = ["engine=literal", "curves=false", "hydra.sweep.dir=sweep"]
    nsvm("train", "-m", *words, *common, cwd=tmp_path, code=0)
    jobs = [yaml.safe_load(file.read_text()) for file in (tmp_path / "sweep").glob("*/config.yaml")]
    lams = {str(job["dataset"]["classes"]): job["algorithm"]["lam"] for job in jobs}
    assert lams == {"None": 1e-5, "[0, 1]": 1e-4}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed: [\n", r"experiment/mine.yaml, line 3: .*expected (the )?node content"),
        ("seed: !!python/object/apply:os.system [touch]", "could not determine a constructor for the tag"),
        ("[1, 2]", r"In 'experiment/mine': ConfigTypeError raised .*: Cannot merge "),
        ("defaults: [mine]", "configuration files include each other in a cycle, or are nested too deeply"),
        ("defaults: [nothing]", "In 'experiment/mine': Could not load 'experiment/nothing'"),
        (
            "defaults: [ringnorm_alg4_wide@experiment]",
            "Could not override 'dataset@experiment.dataset'|Invalid Defaults List override",
        ),
        ("tuned: table", r"^tuned=table: there is no such kind of data; did you mean tables\?"),
        ("seed: ${nothing}", "Interpolation key 'nothing' not found"),
        ("kernel: {gamma: 1, c: '${.d}'}", r"Interpolation key '\.?d' not found.* \(in kernel.c\)"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    write(tmp_path, experiment__mine=f"# @package _global_\n{text}")
    with pytest.raises(InputError, match=said) as caught:
        compose_settings([f"hydra.searchpath=['{tmp_path}']", "experiment=mine"])
    assert "\n" not in str(caught.value)


def test_a_run_directory_resolves_nothing_and_imports_nothing(tmp_path: Path) -> None:
    values = compose_settings(["dataset.samples=300", "algorithm=pegasos", "algorithm.steps=5"])
    (tmp_path / "evil.py").write_text("open('imported', 'w')")
    for key, value, said in [
        ("device", "${oc.env:SECRET}", "device should be 'auto', 'cpu' or 'cuda', got '${oc.env:SECRET}'"),
        ("kernel", {"name": "evil", "gamma": 1.0}, "there is no kernel 'evil'"),
    ]:
        write(tmp_path, run__config=yaml.safe_dump({**values, "plugins": ["evil"], key: value}))
        refused = refusal("train", "resume=run", cwd=tmp_path, env={"SECRET": "hush"})
        assert said in refused
        assert "hush" not in refused
    assert not (tmp_path / "imported").exists()


def test_composing_leaves_hydra_as_a_program_that_uses_it_has_it(tmp_path: Path) -> None:
    write(tmp_path, theirs="answer: 42\n")
    with hydra.initialize_config_dir(str(tmp_path), **COMPOSE_OPTIONS):
        before = GlobalHydra.instance().hydra
        compose_settings([])
        with pytest.raises(InputError):
            compose_settings(["kernel=rbff"])
        assert GlobalHydra.instance().hydra is before
        assert hydra.compose("theirs").answer == 42
    assert not GlobalHydra.instance().is_initialized()


DERIVED = """\
from nsvm_cli.datasets import CSV, DATASETS
from nsvm_cli.trainers import TRAINERS
from nsvm_cli.trainers.alg1 import Alg1

@DATASETS.register("of_ours")
class OfOurs(CSV):
    pass

@TRAINERS.register("derived")
class Derived(Alg1):
    pass
"""


def test_derived_classes_have_the_values_and_the_default_algorithm_of_their_bases(
    tmp_path: Path,
) -> None:
    (tmp_path / "derived_parts.py").write_text(DERIVED)
    with as_if_started(tmp_path, {}):
        own = compose_settings(["plugins=[derived_parts]", "algorithm=derived"], complete=False)
        words = ["dataset.path=x.csv", "dataset.label=y"]
        table = compose_settings(["plugins=[derived_parts]", "dataset=of_ours", *words], complete=False)
    assert table["algorithm"]["name"] == "auto"
    base, other = (compose_settings([f"algorithm={name}"]) for name in ("alg1", "pegasos"))
    assert own["optimizer"] == base["optimizer"] != other["optimizer"]
    assert own["network"] == base["network"]
