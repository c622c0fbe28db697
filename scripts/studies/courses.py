"""Follow Algorithms 1 to 4 during training on Ringnorm: ``python -m studies.courses FOLDER``.

Writes ``runs.csv``, with a row for each record of a run, and ``courses.png``. The figures of a record are the
test accuracy, the change of theta, the staleness of stored features, the number of support vectors, and the
objective of the SVM. The seconds exclude the computation of these figures.
"""

from __future__ import annotations

import sys
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

from nsvm_cli.compose.composition import compose_settings
from nsvm_cli.config.settings import parse_settings
from nsvm_cli.models.feature_map import features
from nsvm_cli.models.objectives import full_objective, theta_change
from nsvm_cli.runs.experiment import Experiment, prepare
from nsvm_cli.runs.loop import Callback, Record
from nsvm_cli.trainers import State
from nsvm_cli.trainers.alg1 import Alg1State

ALGORITHMS = ("alg1", "alg2", "alg3", "alg4")
FIGURES = {
    "accuracy": "test accuracy, %",
    "theta_change": "change of θ, relative",
    "staleness": "staleness of stored features",
    "support_vectors": "support vectors",
    "objective": "objective of the SVM",
}


class Course(Callback):
    """Records the figures of a state and the seconds of training."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment, self.rows = experiment, list[dict[str, Any]]()
        self.log_every = max(1, experiment.trainer.total // 60)
        self.initial = deepcopy((experiment.F.network, experiment.problem.K))
        self.paused, self.began = 0.0, 0.0

    def on_train_start(self) -> None:
        self.began = time.perf_counter()

    def on_log(self, state: State, record: Record) -> None:
        e, now = self.experiment, time.perf_counter()
        row = {"step": state.t, "seconds": now - self.began - self.paused}
        row["theta_change"] = theta_change(self.initial, (e.F.network, e.problem.K))
        if e.trainer.classifies(state):
            test = e.data.splits["test"]
            z, f = features(e.F.network, e.problem.x), e.trainer.finish(e.problem, state)
            row["accuracy"] = 100 * e.model(state).score(test.x, test.y)["accuracy"]
            row["objective"] = full_objective(f, e.problem.K, z, e.problem.y, e.problem.loss, e.trainer.lam)
            row["support_vectors"] = len(f.alpha)
            row["staleness"] = staleness(state, z)
        self.rows.append(row)
        self.paused += time.perf_counter() - now


def staleness(state: State, z: torch.Tensor) -> float:
    """Return the mean of ||z_s - F_theta(x_i_s)|| / ||F_theta(x_i_s)|| over the terms s, or 0."""
    if not isinstance(state, Alg1State):
        return 0.0
    new = z[state.i]
    return float(((state.z - new).norm(dim=1) / new.norm(dim=1)).mean())


def draw(rows: pd.DataFrame, path: Path) -> None:
    figure, axes = plt.subplots(1, len(FIGURES), figsize=(15, 3), layout="constrained")
    for axis, (key, title) in zip(axes, FIGURES.items(), strict=True):
        for algorithm, part in rows.groupby("algorithm"):
            known = part.dropna(subset=key)
            axis.plot(known["seconds"], known[key], label=f"Algorithm {algorithm[-1]}", linewidth=1.5)
        axis.set(title=title, xlabel="training, s", xscale="log")
        axis.grid(alpha=0.3)
    axes[0].set_ylim(70, 100)
    axes[-1].set_yscale("log")
    axes[2].legend(fontsize=8)
    figure.savefig(path, dpi=110)


def main(folder: Path) -> None:
    runs = []
    for algorithm in ALGORITHMS:
        words = ["dataset=ringnorm", f"algorithm={algorithm}", "threads=1", "device=cpu"]
        experiment = prepare(parse_settings(compose_settings(words)))
        experiment.fit()  # loads compiled code
        experiment = prepare(parse_settings(compose_settings(words)))
        course = Course(experiment)
        experiment.fit([course])
        runs.append(pd.DataFrame(course.rows).assign(algorithm=algorithm))
    rows = pd.concat(runs)[["algorithm", "step", "seconds", *FIGURES]]
    folder.mkdir(parents=True, exist_ok=True)
    rows.replace(np.inf, np.nan).to_csv(folder / "runs.csv", index=False, float_format="%.5g")
    draw(rows, folder / "courses.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
