"""Compare heads of a network: cross-entropy, a linear SVM, neural SVMs, and an SVM on frozen features.

``python -m studies.heads FOLDER --mnist FOLDER --pmlb FOLDER`` writes ``runs.csv``, with a row for each head,
data set, condition, seed and test set, and ``heads.png``. Rows that are already there are not computed again.

Conditions: ``full`` is all training samples (at most 2,000 of a table), ``wrong labels`` replaces 20 % of
their labels by another class, and ``30 a class`` is 30 samples of each class. Models that are trained on
``full`` are also tested on ``noise`` and, for images, on ``rotation``. Each head chooses among six candidates
by the accuracy on the validation samples with seed 1000, for each of ``full``, ``wrong labels`` and
``30 a class``. The numbers of steps give about the same processor time. All heads are calibrated in the same
way: logistic regression from decision values to classes, fitted to the validation samples.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import ndimage
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import studies.baselines  # noqa: F401  # registers l2_svm
from nsvm_cli import NSVMClassifier
from nsvm_cli.datasets.torchvision_import import import_torchvision

TABLES = (
    *("adult", "diabetes", "german", "letter", "magic", "optdigits", "pendigits", "ring", "segmentation"),
    *("spambase", "splice", "twonorm", "vehicle", "waveform-40", "wdbc"),
)
"""Tables of PMLB with classes, at least 500 samples and at least four features."""

CHOICE_SEED = 1000
FEW = 10_000
"""Maximum number of images for candidates. With at most this number, training takes a fifth of the steps."""


class Head(NamedTuple):
    """An algorithm and a kernel, steps for images and tables, the batch size, settings, and candidates."""

    algorithm: str
    kernel: str
    steps: tuple[int, int]
    batch_size: int
    settings: dict[str, Any]
    candidates: dict[str, tuple[float, ...]]


THETA = {"optimizer.momentum": 0.9, "optimizer.schedule": "cosine", "network.shared_dropout": True}
RBF = {"network.normalize": True, "kernel.gamma": 8.0}
DROPOUT, LAM = {"network.dropout": (0.0, 0.3)}, {"algorithm.lam": (1e-4, 1e-2)}


def plain(algorithm: str, *lr: float) -> Head:
    settings = THETA | {"network.head": True, "algorithm.epochs": None}
    return Head(algorithm, "linear", (1000, 300), 128, settings, {"optimizer.lr": lr} | DROPOUT)


def neural(algorithm: str, steps: tuple[int, int], batch_size: int, *lr: float, **more: Any) -> Head:
    settings = THETA | RBF | {"network.dropout": 0.1} | {f"algorithm.{key}": more[key] for key in more}
    return Head(algorithm, "rbf", steps, batch_size, settings, {"optimizer.lr": lr} | LAM)


PART_2 = {"solver": "svc", "solver_steps": 1, "epochs": None}
HEADS = {
    "cross-entropy": plain("cross_entropy", 0.02, 0.05, 0.1),
    "linear SVM": plain("l2_svm", 0.005, 0.01, 0.02),
    "alignment, SVM": neural("alg4", (1000, 300), 128, 0.1, 0.3, 1.0, **PART_2),
    "leave-one-out, SVM": neural("alg4", (1000, 300), 128, 0.03, 0.1, 0.3, loss="leave_one_out", **PART_2),
    "Algorithm 1": neural("alg1", (1500, 500), 32, 3e-5, 3e-4, 3e-3),
    "Algorithm 2": neural("alg2", (300, 200), 32, 3e-5, 3e-4, 3e-3),
    "Algorithm 3": neural("alg3", (300, 200), 64, 0.03, 0.2, 1.0, epochs=None),
    "frozen, SVM": Head(
        "svc", "rbf", (0, 0), 0, RBF, {"algorithm.lam": (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)}
    ),
}


class Data(NamedTuple):
    """Training, validation and test samples, and shifted test samples by name."""

    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    tests: dict[str, np.ndarray]
    y: np.ndarray


def mnist(folder: Path, seed: int) -> Data:
    images = import_torchvision("datasets").MNIST
    train, test = images(folder), images(folder, train=False)
    X, y, x = train.data.numpy()[:, None], train.targets.numpy(), test.data.numpy()[:, None]
    a, b = train_test_split(np.arange(len(y)), test_size=5000, random_state=seed, stratify=y)
    noise = np.random.default_rng(seed).normal(0, 100, x.shape)
    shifted = {
        "noise": (x + noise).clip(0, 255).astype(np.uint8),
        "rotation": ndimage.rotate(x, 30, axes=(2, 3), reshape=False, order=1),
    }
    return Data((X[a], y[a]), (X[b], y[b]), {"": x} | shifted, test.targets.numpy())


def table(folder: Path, name: str, seed: int) -> Data:
    frame = pd.read_csv(folder / "classification" / f"{name}.csv.gz", sep=None, engine="python")
    label = "target" if "target" in frame else frame.columns[-1]
    y = np.unique(frame.pop(label).astype(str), return_inverse=True)[1]
    a, b = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed, stratify=y)
    a, v = train_test_split(a, test_size=0.25, random_state=seed, stratify=y[a])
    a, v, b = a[:2000], v[:1000], b[:4000]
    X = StandardScaler().fit(frame.iloc[a]).transform(frame)
    noise = np.random.default_rng(seed).normal(0, 0.5, X[b].shape)
    return Data((X[a], y[a]), (X[v], y[v]), {"": X[b], "noise": X[b] + noise}, y[b])


def changed(X: np.ndarray, y: np.ndarray, condition: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the training samples of a condition."""
    rng = np.random.default_rng(seed)
    if condition == "wrong labels":
        wrong, C = rng.random(len(y)) < 0.2, y.max() + 1
        return X, np.where(wrong, (y + rng.integers(1, C, len(y))) % C, y)
    if condition.endswith("a class"):
        order, each = rng.permutation(len(y)), int(condition.split()[0])
        rows = np.concatenate([order[y[order] == c][:each] for c in range(y.max() + 1)])
        return X[rows], y[rows]
    return X, y


def fitted(head: Head, X: np.ndarray, y: np.ndarray, chosen: dict[str, float], seed: int) -> NSVMClassifier:
    settings, images = head.settings | chosen, X.ndim > 2
    if head.batch_size:
        steps = head.steps[0] // (1 if len(y) > FEW else 5) if images else head.steps[1]
        settings |= {"algorithm.batch_size": min(head.batch_size, len(y) // 2), "algorithm.steps": steps}
    network = "cnn" if images else "mlp"
    if not images:
        settings |= {"network.widths": [512, 256]}
    model = NSVMClassifier(head.algorithm, network, head.kernel, settings=settings, random_state=seed)
    return model.fit(X, y)


def columns(g: np.ndarray) -> np.ndarray:
    return g[:, None] if g.ndim == 1 else g


def scores(model: NSVMClassifier, data: Data) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield accuracy, and log loss and calibration error after calibration, for each test set."""
    X, y = data.validation
    calibration = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    calibration.fit(columns(model.decision_function(X)), y)
    for name, x in data.tests.items():
        p = calibration.predict_proba(columns(model.decision_function(x)))
        correct, sure = p.argmax(1) == data.y, p.max(1)
        bins = np.minimum((15 * sure).astype(int), 14)
        gaps = [abs((correct[bins == b] - sure[bins == b]).sum()) for b in range(15)]
        figures = {
            "accuracy": model.score(x, data.y),
            "log_loss": log_loss(data.y, p, labels=calibration.classes_),
            "calibration_error": sum(gaps) / len(correct),
        }
        yield name, figures


KEY = ("data", "condition", "test", "head", "seed")
FIELDS = (*KEY, "accuracy", "log_loss", "calibration_error", "seconds", "chosen")
CHOICES = ("full", "wrong labels", "30 a class")
CONDITIONS = (*CHOICES, "10 a class")


class Study:
    """The rows of the study, in a CSV file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        rows = [*csv.DictReader(path.open())] if path.exists() else []
        self.rows = {(*map(row.get, KEY),): row for row in rows}

    def add(self, *row: Any) -> None:
        new, values = not self.path.exists(), dict(zip(FIELDS, map(str, row), strict=True))
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(values)
        self.rows[(*map(values.get, KEY),)] = values

    def choose(self, name: str, data: Data, condition: str, label: str) -> dict[str, float]:
        """Return the candidate with the highest accuracy on the validation samples."""
        key = (name, condition, "validation", label, str(CHOICE_SEED))
        if key not in self.rows:
            head, best, t = HEADS[label], (-1.0, {}), time.process_time()
            X, y = (part[:FEW] for part in changed(*data.train, condition, CHOICE_SEED))
            X_val, y_val = data.validation
            if condition == "wrong labels":
                X_val, y_val = changed(X_val, y_val, condition, CHOICE_SEED)
            for values in product(*head.candidates.values()):
                candidate = dict(zip(head.candidates, values, strict=True))
                score = fitted(head, X, y, candidate, CHOICE_SEED).score(X_val, y_val)
                best = max(best, (score, candidate), key=lambda pair: pair[0])
            self.add(*key, best[0], "", "", round(time.process_time() - t, 1), json.dumps(best[1]))
        return json.loads(self.rows[key]["chosen"])

    def run(self, name: str, load: Any, conditions: tuple[str, ...], seeds: int) -> None:
        """Train and score all heads on one data set."""
        for label in HEADS:
            data = load(CHOICE_SEED)
            chosen = {part: self.choose(name, data, part, label) for part in CHOICES}
            for seed, condition in product(range(seeds), conditions):
                if (name, condition, "", label, str(seed)) in self.rows:
                    continue
                data = load(seed)
                candidate = chosen[condition if condition in chosen else "30 a class"]
                t = time.process_time()
                model = fitted(HEADS[label], *changed(*data.train, condition, seed), candidate, seed)
                seconds = round(time.process_time() - t, 2)
                tests = data.tests if condition == "full" else {"": data.tests[""]}
                for test, figures in reversed([*scores(model, data._replace(tests=tests))]):
                    values = [round(value, 5) for value in figures.values()]
                    self.add(name, condition, test, label, seed, *values, seconds, json.dumps(candidate))


def draw(path: Path, file: Path) -> None:
    """Draw the errors for numbers of labels, and the accuracies for wrong labels and shifted samples."""
    rows = pd.read_csv(path, keep_default_na=False).query("test != 'validation'")
    rows["accuracy"] = 100 * rows["accuracy"].astype(float)
    images = rows["data"] == "mnist10"
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    panels = (("MNIST", rows[images], 5500), ("mean of the tables", rows[~images], 300))
    for axis, (title, part, all_labels) in zip(axes, panels, strict=False):
        clean = part[(part["test"] == "") & (part["condition"] != "wrong labels")]
        for label in HEADS:
            means = clean[clean["head"] == label].groupby("condition")["accuracy"].mean()
            each = [all_labels if key == "full" else int(key.split()[0]) for key in means.index]
            error = pd.Series(100 - means.to_numpy(), index=each).sort_index()
            axis.plot(error.index, error, "o-", label=label)
        axis.set(title=title, xlabel="labels per class", ylabel="test error, %", xscale="log", yscale="log")
        axis.minorticks_off()
        axis.set_xticks([10, 30, 100, all_labels], [10, 30, 100, "all"])
        low, high = axis.get_ylim()
        ticks = [tick for tick in (1, 2, 5, 10, 15, 20, 30) if low < tick < high]
        axis.set_yticks(ticks, ticks)
    axes[0].legend(fontsize=8)
    shifts = {
        "20 % wrong labels": ("wrong labels", ""),
        "noise": ("full", "noise"),
        "rotation": ("full", "rotation"),
    }
    means = rows[images].groupby(["condition", "test", "head"])["accuracy"].mean()
    for index, label in enumerate(HEADS):
        heights = [means.get((*shift, label), 0.0) for shift in shifts.values()]
        axes[2].bar(np.arange(len(shifts)) + (index - 3.5) / 10, heights, 0.1)
    axes[2].set(title="MNIST", ylabel="test accuracy, %", ylim=(20, 100))
    axes[2].set_xticks(range(len(shifts)), shifts)
    figure.savefig(file, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mnist", type=Path, help="a folder in torchvision's layout")
    parser.add_argument("--pmlb", type=Path, help="a folder with PMLB's classification/NAME.csv.gz")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    study = Study(arguments.folder / "runs.csv")
    if arguments.mnist:
        study.run("mnist10", partial(mnist, arguments.mnist), (*CONDITIONS, "100 a class"), arguments.seeds)
    for name in TABLES if arguments.pmlb else ():
        study.run(name, partial(table, arguments.pmlb, name), CONDITIONS, arguments.seeds)
    draw(study.path, arguments.folder / "heads.png")


if __name__ == "__main__":
    main()
