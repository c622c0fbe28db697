"""Compare nsvm's default for tables with tuned SVMs, boosted trees and plain networks, on CSV files.

``python -m benchmarks.tables rows.csv churn.csv:Churn houses.csv:price:real`` trains each method on the same
split of each file and appends its scores to ``rows.csv``. Rows that are already there are not computed again.
A file is ``PATH:LABEL[:real][:COLUMN TO DROP ...]``. All methods but ``logistic``, ``realmlp`` and ``xrfm``
choose among 24 candidates (``auto``: at most 36, ``auto24``: at most 24) by 25 % of the training samples or,
for at most 500, by four folds. ``catboost`` requires the package catboost, ``realmlp`` the package pytabkit,
and ``xrfm`` also the package xrfm.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import model_selection
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR
from studies.baselines import pytabkit_machine

from nsvm_cli import NSVMClassifier, NSVMRegressor
from nsvm_cli.errors import RunError

TREES = {
    "learning_rate": [0.02, 0.05, 0.1, 0.2],
    "max_leaf_nodes": [4, 8, 16, 31, 63],
    "min_samples_leaf": [2, 5, 10, 20, 50],
    "l2_regularization": [0.0, 0.1, 1.0, 10.0],
    "max_features": [0.3, 0.6, 1.0],
}
CATBOOST = {
    "learning_rate": [0.02, 0.05, 0.1, 0.2],
    "depth": [3, 4, 6, 8],
    "l2_leaf_reg": [1, 3, 10, 30],
    "rsm": [0.3, 0.6, 1.0],
    "random_strength": [0, 1, 5],
}
PLAIN = tuple(product((30, 100, 300, 1000), (0.0, 0.1, 0.3), (0.03, 0.1)))
"""Steps, dropout and learning rate of the network without an SVM."""


def folds(y: np.ndarray, real: bool, seed: int) -> Any:
    if len(y) > 500:
        kind = "ShuffleSplit" if real else "StratifiedShuffleSplit"
        return getattr(model_selection, kind)(1, test_size=0.25, random_state=seed)
    kind = "KFold" if real else "StratifiedKFold"
    return getattr(model_selection, kind)(4, shuffle=True, random_state=seed)


def plain(A: pd.DataFrame, B: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the frames with numbers as floats, dates split into their parts, and other columns as text."""
    parts: list[dict[str, Any]] = [{}, {}]
    for name, column in A.items():
        numbers = pd.to_numeric(column, errors="coerce")
        text = not pd.api.types.is_numeric_dtype(column) and numbers.notna().mean() <= 0.9
        dates = pd.to_datetime(column, errors="coerce", format="ISO8601") if text else numbers
        for part, frame in zip(parts, (A, B), strict=True):
            if text and dates.notna().mean() > 0.9:
                t = pd.to_datetime(frame[name], errors="coerce", format="ISO8601").dt
                for unit in ("day", "month", "dayofweek", "hour", "minute"):
                    part[f"{name}_{unit}"] = getattr(t, unit).astype(float)
            elif text:
                part[name] = frame[name].astype(object).where(frame[name].notna(), None)
            else:
                part[name] = pd.to_numeric(frame[name], errors="coerce").astype(float)
    return [pd.DataFrame(part) for part in parts]


def categories(A: pd.DataFrame, B: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Return the frames with the 200 most frequent texts of each column as its categories."""
    text = [name for name in A if A[name].dtype == object]
    for name in text:
        known = sorted(A[name].value_counts().index[:200])
        for frame in (A, B):
            frame[name] = pd.Categorical(frame[name].where(frame[name].isin(known)), categories=known)
    return A, B, text


def auto(
    A: pd.DataFrame, y: np.ndarray, B: pd.DataFrame, real: bool, seed: int, candidates: int | None = None
) -> tuple[Any, Any]:
    kind, settings = NSVMRegressor if real else NSVMClassifier, {"algorithm.candidates": candidates}
    return kind("auto", random_state=seed, settings=settings).fit(A, y), B


def cross_entropy(A: pd.DataFrame, y: np.ndarray, B: pd.DataFrame, real: bool, seed: int) -> tuple[Any, Any]:
    kind = NSVMRegressor if real else NSVMClassifier

    def model(steps: int, dropout: float, lr: float) -> Any:
        settings = {"algorithm.steps": steps, "algorithm.epochs": None, "network.dropout": dropout}
        settings |= {"algorithm.batch_size": min(128, len(y) // 2), "optimizer.lr": lr}
        return kind("cross_entropy", random_state=seed, settings=settings)

    def score(candidate: tuple[int, float, float]) -> float:
        split = folds(y, real, seed).split(A, y)
        try:
            scores = [model(*candidate).fit(A.iloc[i], y[i]).score(A.iloc[j], y[j]) for i, j in split]
        except RunError:  # training diverged
            return -np.inf
        return float(np.mean(scores))

    return model(*max(PLAIN, key=score)).fit(A, y), B


def svc(A: pd.DataFrame, y: np.ndarray, B: pd.DataFrame, real: bool, seed: int) -> tuple[Any, Any]:
    A, B = plain(A, B)
    columns = _columns(A)
    z = columns.fit_transform(A)
    gamma = 1 / (z.shape[1] * z.var())
    grid = {"m__C": [0.1, 0.5, 2, 8, 32, 128], "m__gamma": [gamma / 16, gamma / 4, gamma, 4 * gamma]}
    machine = Pipeline([("columns", columns), ("m", SVR() if real else SVC())])
    return model_selection.GridSearchCV(machine, grid, cv=folds(y, real, seed)).fit(A, y), B


def _columns(A: pd.DataFrame) -> Any:
    text = [name for name in A if A[name].dtype == object]
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    encoder = OneHotEncoder(min_frequency=5, handle_unknown="infrequent_if_exist", sparse_output=False)
    words = make_pipeline(SimpleImputer(strategy="constant", fill_value="none"), encoder)
    return make_column_transformer((numbers, [name for name in A if name not in text]), (words, text))


def logistic(A: pd.DataFrame, y: np.ndarray, B: pd.DataFrame, real: bool, seed: int) -> tuple[Any, Any]:
    A, B = plain(A, B)
    return make_pipeline(_columns(A), Ridge() if real else LogisticRegression(max_iter=3000)).fit(A, y), B


def trees(A: pd.DataFrame, y: np.ndarray, B: pd.DataFrame, real: bool, seed: int) -> tuple[Any, Any]:
    A, B, _ = categories(*plain(A, B))
    kind = HistGradientBoostingRegressor if real else HistGradientBoostingClassifier
    machine = kind(random_state=seed, max_iter=300, early_stopping=True, categorical_features="from_dtype")
    return _search(machine, TREES, y, real, seed).fit(A, y), B


def catboost(A: pd.DataFrame, y: np.ndarray, B: pd.DataFrame, real: bool, seed: int) -> tuple[Any, Any]:
    from catboost import CatBoostClassifier, CatBoostRegressor

    A, B, text = categories(*plain(A, B))
    for frame in (A, B):
        frame[text] = frame[text].astype(object).fillna("none").astype(str)
    many = not real and len(set(y)) > 6
    machine = (CatBoostRegressor if real else CatBoostClassifier)(
        random_seed=seed,
        thread_count=1,
        verbose=0,
        allow_writing_files=False,
        iterations=300 if many else 400,
    )
    grid = CATBOOST | ({"depth": [3, 4, 6]} if many else {})
    return _search(machine, grid, y, real, seed).fit(A, y, cat_features=text), B


def of_pytabkit(
    A: pd.DataFrame, y: np.ndarray, B: pd.DataFrame, real: bool, seed: int, name: str
) -> tuple[Any, Any]:
    A, B, text = categories(*plain(A, B))
    medians = A.drop(columns=text).median().fillna(0)  # pytabkit's models reject gaps
    A, B = A.fillna(medians), B.fillna(medians)
    kind, metric = ("Regressor", None) if real else ("Classifier", "class_error")
    return pytabkit_machine(f"{name}_{kind}", seed, metric).fit(A, y, cat_col_names=text), B


def _search(machine: Any, grid: Any, y: np.ndarray, real: bool, seed: int) -> Any:
    cv = folds(y, real, seed)
    return model_selection.RandomizedSearchCV(machine, grid, n_iter=24, random_state=seed, cv=cv)


METHODS: dict[str, Callable[..., Any]] = {
    "auto": auto,
    "auto24": partial(auto, candidates=24),
    "svc": svc,
    "trees": trees,
    "catboost": catboost,
    "realmlp": partial(of_pytabkit, name="RealMLP_TD"),
    "xrfm": partial(of_pytabkit, name="XRFM_D"),
    "cross_entropy": cross_entropy,
    "logistic": logistic,
}


def row(method: str, file: str, seed: int, most: int) -> dict[str, Any]:
    path, label, *drop = file.split(":")
    real = "real" in drop
    frame = pd.read_csv(path, sep=None, engine="python").drop(
        columns=[name for name in drop if name != "real"]
    )
    frame = frame.dropna(subset=[label])
    column = frame.pop(label)
    y = column.to_numpy(float) if real else np.unique(column.astype(str), return_inverse=True)[1]
    stratify = None if real else y
    split = model_selection.train_test_split(
        np.arange(len(y)), test_size=0.2, random_state=seed, stratify=stratify
    )
    i, j = split[0][:most], split[1][:4000]
    A, B = (frame.iloc[rows].reset_index(drop=True) for rows in (i, j))
    mean, std = (y[i].mean(), y[i].std()) if real else (0, 1)
    start = time.process_time()
    machine, B = METHODS[method](A, (y[i] - mean) / std if real else y[i], B, real, seed)
    seconds = time.process_time() - start
    p = np.asarray(machine.predict(B)).ravel() * std + mean
    found = {"score": r2_score(y[j], p) if real else (p == y[j]).mean(), "seconds": round(seconds, 1)}
    if not real and len(set(y)) == 2:
        has_values = hasattr(machine, "decision_function")
        g = machine.decision_function(B) if has_values else machine.predict_proba(B)[:, 1]
        found["roc_auc"] = roc_auc_score(y[j], g)
    return {"table": Path(path).name.split(".")[0], "seed": seed, "method": method, "train": len(i), **found}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="CSV file to which the rows are appended")
    parser.add_argument("files", nargs="+", metavar="PATH:LABEL[:real][:DROP ...]")
    parser.add_argument("--methods", default="auto,svc,trees,cross_entropy,logistic", help="from METHODS")
    parser.add_argument("--seeds", type=int, default=1, help="number of splits (default: 1)")
    parser.add_argument("--most", type=int, default=2000, help="maximum number of training samples")
    options = parser.parse_args()
    names = ("table", "seed", "method", "train", "score", "roc_auc", "seconds")
    there = pd.read_csv(options.output) if options.output.exists() else pd.DataFrame(columns=names)
    done = set(zip(there["table"], there["seed"], there["method"], strict=True))
    for seed, file, method in product(range(options.seeds), options.files, options.methods.split(",")):
        if (Path(file.partition(":")[0]).name.split(".")[0], seed, method) in done:
            continue
        with options.output.open("a", newline="") as out:
            writer = csv.DictWriter(out, names)
            if out.tell() == 0:
                writer.writeheader()
            writer.writerow(row(method, file, seed, options.most))


if __name__ == "__main__":
    main()
