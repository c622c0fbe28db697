"""What a report shows of a model: compared with scikit-learn, and with sums written out."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from markupsafe import Markup
from sklearn.decomposition import PCA

from nsvm_cli.config.settings import parse_settings, plain
from nsvm_cli.datasets.encoding import TableEncoder
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.models.change import theta_change
from nsvm_cli.page.document import Images, Note, Section, Table
from nsvm_cli.page.model_sections import _support_vectors, model_sections
from nsvm_cli.page.pictures import decision_pictures, feature_pictures, principal_components
from nsvm_cli.page.support_vectors import Prediction, predictions
from nsvm_cli.page.trained import Columns, Trained, data_uri, load_trained
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.train import train_run
from nsvm_cli.storage.run_directory import RunDirectory
from tests.small_tables import small_table

pytestmark = pytest.mark.usefixtures("unchecked")

CPU = {"device": "cpu"}
DIGITS = {"dataset": {"name": "digits", "classes": None}, "kernel": {"name": "rbf", "gamma": 0.1}}


def trained(folder: Path, **changes: Any) -> Path:
    values = {
        "dataset": {"name": "ringnorm", "samples": 200},
        "network": {"name": "mlp", "widths": [8, 6], "normalize": True},
        "kernel": {"name": "rbf", "gamma": 1.0},
        "optimizer": {"name": "sgd", "lr": 0.01},
        "algorithm": {"name": "alg2", "steps": 60, "lam": 0.01},
        "engine": "torch",
        **changes,
    }
    settings = parse_settings(values)
    with RunDirectory(folder / "run", plain(settings)) as directory:
        train_run(prepare(settings), directory)
    return folder / "run"


def load(folder: Path, **changes: Any) -> Trained:
    return load_trained(trained(folder, **changes), CPU)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare a test the drawing of what it does not look at."""
    monkeypatch.setattr("nsvm_cli.page.pictures.to_svg", lambda figure, label: Markup())


@pytest.fixture(scope="module")
def found(unchecked: None, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A model of two classes."""
    return load(tmp_path_factory.mktemp("found"))


def shown(run: Path) -> dict[str, Section]:
    return {section.title: section for section in model_sections(run, CPU)}


def check_terms(found: Trained, explained: list[Prediction], alpha: np.ndarray) -> None:
    """Compare the terms of predictions with all of them: alpha has a row for each prediction."""
    expansion, model = found.model.expansion, found.model
    for prediction, coefficients in zip(explained, alpha, strict=True):
        K = model.kernel(model.features(prediction.x[None]), expansion.z)[0].numpy()
        terms = coefficients * K / expansion.scale
        found_sizes = np.abs([value for value, _ in prediction.terms])
        largest = -np.sort(-np.abs(terms))[:6]
        np.testing.assert_allclose(found_sizes, largest[largest > 0], rtol=1e-4, atol=1e-5)
        for value, row in prediction.terms:
            (s,) = (expansion.i == row).nonzero()
            z = model.features(found.data.splits["train"].x[row][None])
            torch.testing.assert_close(z, expansion.z[s])
            assert value == pytest.approx(terms[s], rel=1e-4, abs=1e-5)


def test_the_strongest_support_vectors_of_two_classes(found: Trained) -> None:
    explained = predictions(found)
    check_terms(found, explained, found.model.expansion.alpha.expand(5, -1).numpy())
    g = found.model.decision_function(torch.stack([prediction.x for prediction in explained]))
    assert [prediction.total for prediction in explained] == pytest.approx(g.tolist(), rel=1e-4)


@pytest.mark.parametrize("solver", ["pegasos", "svc"])
def test_the_strongest_support_vectors_of_more_classes(solver: str, tmp_path: Path) -> None:
    algorithm = {"name": "alg4", "steps": 20, "solver_steps": 100, "lam": 0.01, "solver": solver}
    found = load(tmp_path, **small_table("three classes", tmp_path), algorithm=algorithm)
    explained, expansion = predictions(found), found.model.expansion
    alpha, bias = expansion.alpha.numpy(), np.zeros(3) + np.asarray(expansion.bias)
    if solver == "svc":  # the columns are the pairs (0, 1), (0, 2), (1, 2)
        signs = np.array([[1, 1, 0], [-1, 0, 1], [0, -1, -1]])
        alpha, bias = alpha @ signs.T, signs @ bias
    decided = [int(prediction.decided) for prediction in explained]
    check_terms(found, explained, alpha.T[decided])
    K = found.model.kernel(found.model.features(found.some(5).x), expansion.z).numpy()
    g = K @ alpha / expansion.scale + bias
    for prediction, of_classes in zip(explained, g, strict=True):
        assert prediction.total == pytest.approx(of_classes[int(prediction.decided)], rel=1e-3)


def test_the_strongest_support_vectors_of_real_targets(tmp_path: Path) -> None:
    algorithm = {"name": "alg4", "steps": 20, "solver": "svc", "lam": 0.01}
    found = load(tmp_path, **small_table("regression", tmp_path), algorithm=algorithm)
    explained, task = predictions(found), found.model.task
    check_terms(found, explained, task.std * found.model.expansion.alpha.expand(5, -1).numpy())
    for prediction in explained:
        assert task.mean + prediction.total == pytest.approx(prediction.decided, rel=1e-4)


@pytest.mark.parametrize(
    ("i", "said"), [(None, "does not say which"), (10**9, "names training sample 1000000000")]
)
def test_support_vectors_that_are_no_samples(i: int | None, said: str, found: Trained) -> None:
    model = found.model
    i_s = None if i is None else torch.full((len(model.expansion.z),), i)
    other = replace(model, expansion=replace(model.expansion, i=i_s))
    with pytest.raises(InputError, match=said):
        predictions(replace(found, saved=replace(found.saved, model=other)))


def test_principal_components_are_those_of_scikit_learn() -> None:
    z = torch.randn(30, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z[:, 3] *= 9
    points, share = principal_components(1e200 * z)
    pca = PCA(2).fit(z)
    expected = np.abs(pca.transform(z))
    np.testing.assert_allclose(np.abs(points) / np.abs(points).max(), expected / expected.max(), atol=1e-9)
    assert share == pytest.approx(pca.explained_variance_ratio_.sum())
    for few in (z[:1], z[:, :1], torch.zeros(4, 3)):
        points, share = principal_components(few)
        assert points.shape == (len(few), 2)
        assert np.isfinite(points).all()


def test_before_training_theta_is_what_the_seed_makes_it(found: Trained, tmp_path: Path) -> None:
    assert found.before is not None
    moved = theta_change(found.before.network, found.model.network)
    assert moved == pytest.approx(found.saved.facts.theta_change)
    assert moved > 0
    assert load(tmp_path, network={"name": "identity"}).before is None


def test_features_that_are_not_finite(found: Trained) -> None:
    network = deepcopy(found.model.network)
    for parameter in network.parameters():
        parameter.data.fill_(torch.inf)
    broken = replace(found, saved=replace(found.saved, model=replace(found.model, network=network)))
    with pytest.raises(RunError, match="not finite"):
        list(feature_pictures(broken))


@pytest.mark.usefixtures("undrawn")
def test_images_are_shown_as_images(tmp_path: Path) -> None:
    sections = shown(trained(tmp_path, **DIGITS, algorithm={"name": "pegasos", "steps": 40}))
    assert [*sections][:3] == ["Diagnosis", "Worst mistakes", "Strongest support vectors"]
    assert [*sections][3:] == ["Kernel matrix", "Features"]
    (mistakes,) = sections["Worst mistakes"].blocks
    assert isinstance(mistakes, Images)
    assert len(mistakes.images) == 24
    assert "of " in mistakes.caption
    _, *explained = sections["Strongest support vectors"].blocks
    assert all(isinstance(block, Images) and 1 < len(block.images) <= 7 for block in explained)


@pytest.mark.usefixtures("undrawn")
def test_rows_of_a_table_are_shown_by_the_names_of_their_columns(tmp_path: Path) -> None:
    run = trained(tmp_path, **small_table("three classes", tmp_path), algorithm={"name": "alg1", "steps": 5})
    mistakes = shown(run)["Worst mistakes"].blocks[0]
    assert isinstance(mistakes, Table)
    assert mistakes.head == ("class → decision", "a", "b", "c")
    lines = [line.split(",") for line in (tmp_path / "classification.csv").read_text().splitlines()[1:]]
    rows = [[*(f"{float(cell):.10g}" for cell in line[:3]), line[3]] for line in lines]
    for name, *row in mistakes.rows:
        assert [*row, name.split()[0]] in rows


@pytest.mark.usefixtures("undrawn")
def test_real_targets(tmp_path: Path) -> None:
    table = small_table("regression", tmp_path)
    sections = shown(trained(tmp_path, **table, algorithm={"name": "pegasos", "steps": 40}))
    assert [*sections][:3] == ["Diagnosis", "Predictions", "Worst mistakes"]
    worst = sections["Worst mistakes"].blocks[0]
    assert isinstance(worst, Table)
    errors = [abs(float(row[2])) for row in worst.rows]
    assert errors == sorted(errors, reverse=True)
    assert all(float(row[1]) - float(row[0]) == pytest.approx(float(row[2]), abs=1) for row in worst.rows)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_decisions_in_the_plane(task: str, found: Trained, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 2)).round(3)
    labels = (x[:, 0] > 0).astype(int) if task == "classification" else (x[:, 0] + 0.01).round(3)
    rows = [f"{a},{b},{label}" for (a, b), label in zip(x.tolist(), labels.tolist(), strict=True)]
    (tmp_path / "plane.csv").write_text("\n".join(["one,two,label", *rows]))
    dataset = {"name": "csv", "path": str(tmp_path / "plane.csv")}
    (picture,) = decision_pictures(load(tmp_path, dataset=dataset, task=task))
    assert "drawing" in picture.svg
    assert not [*decision_pictures(found)], "20 features"


def test_without_an_svm_there_are_no_support_vectors(found: Trained) -> None:
    settings = replace(found.saved.settings, algorithm={"name": "cross_entropy", "steps": 1})
    assert [*_support_vectors(found)]
    assert not [*_support_vectors(replace(found, saved=replace(found.saved, settings=settings)))]


def test_data_that_are_gone_or_have_changed(tmp_path: Path) -> None:
    run = trained(tmp_path, **small_table("three classes", tmp_path))
    table = tmp_path / "classification.csv"
    text = table.read_text()
    for change, reason in (
        (lambda: table.write_text(text.replace("fox", "owl", 1)), "has changed since the run"),
        (table.unlink, "does not exist"),
    ):
        change()
        (section,) = model_sections(run, CPU)
        (note,) = section.blocks
        assert isinstance(note, Note)
        assert reason in note.text
        assert note.text.endswith(".")


def test_the_cells_of_a_row() -> None:
    encoder = TableEncoder({"colour": ("red", "blue", ""), "age": 3.0, "name": ("x",)})
    table, plain = Columns(encoder, 5), Columns(None, 2)
    assert (table.names, table.numbers) == (["age", "colour", "name"], 1)
    assert table.cells(np.array([1700000001.5, 0, 1, 0, 1])) == ["1700000002", "blue", "x"]
    assert table.cells(np.array([1.0, 0, 0, 1, 0])) == ["1", "", ""]
    assert plain.names == ["feature 1", "feature 2"]
    assert plain.cells(np.array([1.0, -0.5])) == ["1", "-0.5"]
    assert Columns(None, 784).names[-2:] == ["feature 30", "…"]
    assert Columns(None, 784).cells(np.arange(784.0))[-2:] == ["29", "…"]


def test_an_image_keeps_its_pixels() -> None:
    import base64
    import io

    from PIL import Image

    grey = np.array([[[10, 20], [15, 40]]], np.uint8)
    address = data_uri(grey, (10.0, 20.0))
    image = Image.open(io.BytesIO(base64.b64decode(address.removeprefix("data:image/png;base64,"))))
    assert np.asarray(image).tolist() == [[0, 255], [128, 255]]
    colours = data_uri(np.zeros((3, 5, 4)), (0.0, 0.0))
    image = Image.open(io.BytesIO(base64.b64decode(colours.removeprefix("data:image/png;base64,"))))
    assert (image.mode, image.size) == ("RGB", (4, 5))
