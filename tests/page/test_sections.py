"""The sections of a report: results, mistakes, support vectors and features."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from nsvm_cli.artifacts.diagnosis import random_samples
from nsvm_cli.artifacts.model_file import save_model
from nsvm_cli.artifacts.prediction import explain
from nsvm_cli.datasets import Data
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.models.nsvm import NSVM, Expansion
from nsvm_cli.models.objectives import theta_change
from nsvm_cli.page.document import Picture, Section
from nsvm_cli.page.sections import (
    confusion_table,
    features,
    image,
    mistakes,
    model_sections,
    run_sections,
    support_vectors,
)
from nsvm_cli.runs.open_model import load_trained
from tests.page.models import load, split, stub, trained
from tests.small_runs import small_run
from tests.small_tables import small_table

IMAGES = torch.tensor([[0.0, 255.0], [255.0, 0.0], [51.0, 102.0]], dtype=torch.float64).reshape(3, 1, 1, 2)
OTHERS = split([[[[0.0, 255.0]]], [[[204.0, 0.0]]]], [-1, 1])


def pixels(image: Picture) -> Any:
    return np.asarray(Image.open(io.BytesIO(image.png))).tolist()


def left_minus_right(x: torch.Tensor) -> torch.Tensor:
    return x[:, 0, 0, 0] - x[:, 0, 0, 1]


def test_a_report_says_that_one_answer_for_all_is_as_good(tmp_path: Path) -> None:
    result = small_run(tmp_path, algorithm={"name": "majority"}, network={"name": "identity"})
    shown = run_sections(tmp_path, result, (), {"device": "cpu"})[0]
    assert shown.title == "Result"
    assert "No better than always predicting the most frequent class" in str(shown.blocks)


def worst_mistakes(model: Any, data: Any) -> list[Any]:
    return [*mistakes(model, data, lambda: model.decision_function(data.held_out.x))]


def test_a_mistake_is_shown_with_its_class_its_decision_and_its_image() -> None:
    (block,) = worst_mistakes(*stub(IMAGES, [1, -1, -1], ["hen", "owl"], left_minus_right, train=OTHERS))
    assert block.caption == "The worst 2 of 2 mistakes on the test set: class → decision"
    assert [image.text for image in block.images] == ["owl → hen", "hen → owl"]
    assert [pixels(image) for image in block.images] == [[[0, 255]], [[255, 0]]]
    x = torch.arange(60.0).double().reshape(1, 3, 5, 4)
    colour = image(x[0], "x", (0.0, 59.0))
    assert pixels(colour)[0][0] == [0, round(255 * 20 / 59), round(255 * 40 / 59)]


@pytest.mark.parametrize(
    ("g", "y", "classes", "worst"),
    [
        ([0.5, -3.0, 2.0, 1.0], [-1, 1, 1, -1], "ab", ["1 b → a", "3 a → b", "0 a → b"]),
        ([[1.0, 2.0, 0.0], [5.0, 0.0, 4.0], [0.0, 1.0, 0.0]], [0, 2, 1], "abc", ["0 a → b", "1 c → a"]),
        ([1.0] * 40, [-1] * 40, "ab", [f"{n} a → b" for n in range(24)]),
    ],
)
def test_the_worst_mistakes_are_those_decided_by_the_most(
    g: list[Any], y: list[int], classes: str, worst: list[str]
) -> None:
    x = torch.arange(len(y)).reshape(-1, 1)
    (table,) = worst_mistakes(*stub(x, y, classes, lambda x: torch.tensor(g)))
    assert [f"{row[1]} {row[0]}" for row in table.rows] == worst


def test_a_prediction_and_its_support_vectors_are_shown_with_their_own_images() -> None:
    alpha = torch.tensor([-2.0, 1.0]).double()
    expansion = Expansion(OTHERS.x.flatten(1), alpha, 255.0**2, i=torch.arange(2))
    one = IMAGES[1:2], [-1], ["hen", "owl"]
    _, block = support_vectors(*stub(*one, left_minus_right, lambda x: x.flatten(1), expansion, OTHERS))
    assert block.caption == "hen, decided owl: score +0.8, shown terms +0.8"
    assert [image.text for image in block.images] == ["x", "owl: +0.8"]
    assert [pixels(image) for image in block.images] == [[[255, 0]], [[204, 0]]]


def test_a_row_of_a_table_has_its_number_and_cells() -> None:
    x = [[1.7e9, 0.0, 1.0], [1.7e9 + 1, 1.0, 0.0]]
    model, data = stub(x, [1, 1], "ab", lambda x: 1.7e9 - x[:, 0])
    data.samples.numbers = np.array([5, 6, 7, 9])
    (table,) = worst_mistakes(model, data)
    assert table.caption == "The worst 1 of 1 mistakes on the test set: class → decision"
    assert table.head == ["", "kind", "size"]
    assert table.rows == [("row 9: b → a", "b", "1700000001")]
    (table,) = worst_mistakes(*stub(torch.ones(2, 2), [-1, -1], "ab"))
    assert table.head == ["", "feature 1", "feature 2"]


def test_a_cell_of_the_confusion_matrix_is_as_dark_as_its_share_of_the_row() -> None:
    data = {"classes": ["a", "b"], "samples": {"validation": 0}}
    (table,) = confusion_table({"confusion": [[3, 1], [0, 0]], "recall": [0.75, None], "data": data})
    assert table.shades == [[np.sqrt(0.75), 0.5, 0.0], [0.0, 0.0, 0.0]]
    assert [row[:3] for row in table.rows] == [("a", "3", "1"), ("b", ".", ".")]


def test_the_terms_of_a_sample_are_added_up_and_zeros_left_out() -> None:
    """Algorithm 1 adds a term on every violation, so a sample may have several terms."""
    z, alpha = [[1.0]] * 4 + [[3.0], [0.0], [2.0]], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.0]
    expansion = Expansion(torch.tensor(z), torch.tensor(alpha), 2.0, i=torch.tensor([0, 0, 0, 0, 1, 2, 3]))
    train = split([[2], [6], [0], [5]], [1, 1, 1, -1])
    found = stub(
        [[2.0], [4.0]], [1, -1], "ab", features=lambda x: x.float() // 2, expansion=expansion, train=train
    )
    for z_x, (_, total, terms) in zip((1, 2), explain(found[0], found[1].held_out.x), strict=True):
        assert terms == [(4 * z_x / 2, 0), (3 * z_x / 2, 1), (-2 * z_x / 2, 3)]
        assert total == 5 * z_x / 2


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[NSVM, Data]:
    """Return a model of two classes, and its data."""
    return load(tmp_path_factory.mktemp("found"))


@pytest.mark.parametrize(
    ("table", "solver"),
    [("three classes", "pegasos"), ("three classes", "svc"), ("regression", "svc"), ("", "")],
)
def test_the_strongest_support_vectors(
    table: str, solver: str, found: tuple[NSVM, Data], tmp_path: Path
) -> None:
    """Compare the terms with the largest of all terms, and their total with g."""
    if table:
        algorithm = {"name": "alg4", "steps": 20, "solver_steps": 100, "lam": 0.01, "solver": solver}
        found = load(tmp_path, **small_table(table, tmp_path), algorithm=algorithm)
    model, data = found
    e, some = model.expansion, random_samples(data.held_out, 5, seed=0)
    all_alpha, all_bias = e.alpha.numpy() / e.scale, np.asarray(e.bias)
    if table == "regression":
        all_alpha, all_bias = model.task.std * all_alpha, model.task.std * all_bias
    for x, (decided, total, terms) in zip(some.x, explain(model, some.x), strict=True):
        K, alpha, bias = model.kernel(model.features(x[None]), e.z)[0].numpy(), all_alpha, all_bias
        if table == "three classes" and solver == "svc":  # the columns are the pairs (0, 1), (0, 2), (1, 2)
            signed = [((1, 0), (1, 1)), ((-1, 0), (1, 2)), ((-1, 1), (-1, 2))][int(decided)]
            sign, pair = min(signed, key=lambda sp: sp[0] * (K @ alpha + bias)[sp[1]])
            alpha, bias = sign * alpha[:, pair], sign * bias[pair]
        column = (slice(None), int(decided)) if alpha.ndim == 2 else slice(None)
        expected = alpha[column] * K
        largest = -np.sort(-np.abs(expected))[:6]
        sizes = np.abs([value for value, _ in terms])
        np.testing.assert_allclose(sizes, largest[largest > 0], rtol=1e-4, atol=1e-5)
        g = expected.sum() + (bias.flat[int(decided)] if bias.ndim and alpha.ndim == 2 else float(bias))
        assert total == pytest.approx(g, rel=1e-3, abs=1e-5)
        for value, row in terms:
            (s,) = (e.i == row).nonzero()
            torch.testing.assert_close(model.features(data.splits["train"].x[row][None]), e.z[s])
            assert value == pytest.approx(expected[s], rel=1e-4, abs=1e-5)
        if table == "regression":
            assert model.task.mean + total == pytest.approx(decided, rel=1e-4)


def test_terms_that_are_no_samples_or_none_at_all(found: tuple[NSVM, Data], tmp_path: Path) -> None:
    model, data = found

    def with_terms(**changes: Any) -> NSVM:
        return replace(model, expansion=replace(model.expansion, **changes))

    with pytest.raises(InputError, match="does not contain the indices"):
        [*support_vectors(with_terms(i=None), data)]
    e = model.expansion
    none = with_terms(z=e.z[:0], alpha=e.alpha[:0], i=e.i[:0])
    assert not [*support_vectors(none, data)]
    settings = replace(model.settings, algorithm={"name": "cross_entropy", "steps": 1})
    assert not [*support_vectors(replace(model, settings=settings), data)]
    save_model(tmp_path / "other", with_terms(i=torch.full((len(e.z),), 10**9)))
    with pytest.raises(InputError, match="refers to training sample 1000000000"):
        load_trained(tmp_path / "other", {"device": "cpu"})


def test_features_that_are_not_finite_are_not_drawn(found: tuple[NSVM, Data]) -> None:
    model, data = found
    scaling = replace(model.scaling, mean=model.scaling.mean * torch.nan)
    with pytest.raises(RunError, match="not finite"):
        [*features(replace(model, scaling=scaling), data)]


def test_before_training_theta_is_what_the_seed_makes_it(found: tuple[NSVM, Data], tmp_path: Path) -> None:
    model, _ = found
    moved = theta_change(*((m.network, m.kernel) for m in (model.before_training(), model)))
    assert moved == pytest.approx(model.metadata.theta_change)
    assert moved > 0
    assert load(tmp_path, network={"name": "identity"})[0].parameters == 0


def sections(run: Path) -> dict[str, Section]:
    return {section.title: section for section in model_sections(run, {"device": "cpu"})}


def test_decision_values_are_computed_once(
    found: tuple[NSVM, Data], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(tmp_path / "model", found[0])
    counts: list[int] = []
    compute = NSVM.decision_function

    def decision_function(model: NSVM, x: torch.Tensor) -> torch.Tensor:
        counts.append(len(x))
        return compute(model, x)

    monkeypatch.setattr(NSVM, "decision_function", decision_function)
    monkeypatch.setattr("nsvm_cli.page.sections.diagnose", lambda *_: {"verdict": "", "why": ""})
    monkeypatch.setattr("nsvm_cli.words.diagnosis_rows", lambda _: [])
    assert {"ROC and precision-recall", "Worst mistakes"} <= {*sections(tmp_path / "model")}
    assert counts.count(len(found[1].held_out)) == 1


def test_the_sections_of_a_table_of_real_targets(tmp_path: Path) -> None:
    run = trained(tmp_path, **small_table("regression", tmp_path), algorithm={"name": "pegasos", "steps": 40})
    assert [*sections(run)] == [
        *("Columns", "Diagnosis", "Predictions", "Strongest support vectors", "Kernel matrix", "Features")
    ]


def test_data_that_are_gone_or_have_changed(tmp_path: Path) -> None:
    run = trained(tmp_path, **small_table("three classes", tmp_path))
    table = tmp_path / "classification.csv"
    text = table.read_text()
    for change, reason in (
        (lambda: table.write_text(text.replace("fox", "owl", 1)), "has changed since the run"),
        (table.unlink, "does not exist"),
    ):
        change()
        assert reason in sections(run)["Model"].lacks
