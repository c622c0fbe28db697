"""A look inside a trained model: its kernel matrix, its SVM, and what each part of it contributes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from nsvm_cli.datasets import Split
from nsvm_cli.models.losses import Binary, Hinge, build_loss
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.models.objectives import dataset_alignment, random_subset, squared_norm
from nsvm_cli.models.penalties import distance_identity, distance_ones, entropy
from nsvm_cli.page.trained import Trained
from nsvm_cli.trainers import Problem, build_trainer
from nsvm_cli.trainers.svc import SVC

Figures = dict[str, Any]

IN_MATRIX, IN_FIT = 1000, 10_000
"""The most samples of a kernel matrix whose spectrum is computed, and of an SVM that is trained anew."""

EIGENVALUES = 10
"""The largest eigenvalues of the kernel matrix that are shown."""

EXTREME = 0.1
"""A distance below which a kernel matrix is as good as the identity, or as constant."""

ERRORS = 2.0
"""Standard errors by which two scores have to differ to be called different."""


def diagnose(trained: Trained) -> Figures:
    """Return the figures of a model on its data, and a verdict on them.

    Scores are those on the held-out samples: the accuracy, or R^2 for real targets.

    Raises:
        RunError: a kernel value or a decision value is not finite.
    """
    figures = {**_kernel_figures(trained), **_support_figures(trained), **_scores(trained)}
    figures |= {name: getattr(trained.saved.facts, name) for name in ("theta_change", "feature_change")}
    return figures | verdict(figures)


def _kernel_figures(trained: Trained) -> Figures:
    """Return the alignment on training and held-out samples, and figures of the kernel matrix."""
    model, seed = trained.model, trained.saved.settings.seed
    aligned = {}
    for name, split in {"train": trained.data.splits["train"], "test": trained.held_out}.items():
        some = _some(split, IN_FIT, seed)
        c = model.task.code(model.task.targets(some.y).to(model.expansion.z))
        found = dataset_alignment(model.kernel, model.features(some.x), c, seed, model.task.centred)
        aligned[f"alignment_{name}"] = found["alignment"]
    z = model.features(_some(trained.data.splits["train"], IN_MATRIX, seed).x)
    K = model.kernel(z, z).double()
    spectrum = torch.linalg.eigvalsh(K / K.diagonal().sum()).flip(0)
    return {
        **aligned,
        "entropy": float(entropy(K)),
        "distance_identity": float(distance_identity(K)),
        "distance_ones": float(distance_ones(K)),
        "spectrum": spectrum[:EIGENVALUES].tolist(),
    }


def _support_figures(trained: Trained) -> Figures:
    """Return how many of the training samples are support vectors, and how far f is from the best one."""
    m, expansion = len(trained.data.splits["train"]), trained.model.expansion
    samples = None if expansion.i is None else len(expansion.i.unique())
    return {
        "support_vectors": len(expansion.alpha),
        "support_share": None if samples is None else samples / m,
        **_objective(trained),
    }


def _objective(trained: Trained) -> Figures:
    """Return the objective of the SVM on the training samples, and how far it is from a bound from below.

    With two classes and the hinge loss, any beta in [0, 1]^m has the bound mean(beta) - ||h||^2 / (2 lambda),
    with h = 1/m sum_j beta_j y_j K(z_j, .). For h = lambda f, beta_j is y_j alpha_j m / T; clipped to [0, 1].
    """
    model, settings, names = trained.model, trained.saved.settings, ("objective", "duality_gap")
    algorithm, train = build_trainer(settings.algorithm), trained.data.splits["train"]
    if not algorithm.trains_svm or len(train) > IN_FIT:
        return dict.fromkeys(names)
    svm, e = algorithm.parts[-1], model.expansion
    loss = build_loss(settings.loss, settings.multiclass, model.task)
    if e.one_vs_one:
        return dict.fromkeys(names)
    lam, y = svm.lam, model.task.targets(train.y).double()
    norm = squared_norm(model.kernel(e.z, e.z).double(), e.alpha.double()) / e.scale**2
    g = model.decision_function(train.x).double().cpu()
    objective = float(lam / 2 * norm.cpu() + loss.of(y, g).mean())
    if not isinstance(loss, Binary) or not isinstance(loss.l, Hinge) or e.i is None:
        return {"objective": objective, "duality_gap": None}
    beta = torch.zeros(len(y), dtype=torch.float64).index_add(0, e.i.cpu(), e.alpha.double().cpu())
    beta = (beta * y * lam * len(y) / e.scale).clamp(0, 1)
    z = model.features(train.x)
    rows = beta.nonzero().flatten()
    K = model.kernel(z[rows], z[rows]).double().cpu()
    h = squared_norm(K, beta[rows] * y[rows]) / len(y) ** 2
    bound = float(beta.mean() - h / (2 * lam))
    return {"objective": objective, "duality_gap": objective - bound}


def _scores(trained: Trained) -> Figures:
    """Return the score of the model, and those of others in its place: see ``refit`` and ``refreshed``."""
    model, held_out = trained.model, _some(trained.held_out, IN_FIT, trained.saved.settings.seed)
    metric = model.task.metric
    others = {"test": model, "refit": refit(trained, model), "refreshed": refreshed(trained)}
    others["frozen"] = refit(trained, trained.before) if trained.before else None
    scores = {
        f"{name}_{metric}": other and other.score(held_out.x, held_out.y)[metric]
        for name, other in others.items()
    }
    return {"metric": metric, "samples": len(held_out), **scores}


def refit(trained: Trained, model: NSVM) -> NSVM | None:
    """Return a model with the same features and an SVM that is solved to precision; None if it has no SVM."""
    settings = trained.saved.settings
    algorithm = build_trainer(settings.algorithm)
    if not algorithm.trains_svm:
        return None
    some = _some(trained.data.splits["train"], IN_FIT, settings.seed)
    z, loss = model.features(some.x), build_loss(settings.loss, settings.multiclass, model.task)
    y = model.task.targets(some.y).to(z)
    problem = Problem(z, y, model.kernel, settings.seed, task=model.task, loss=loss)
    return replace(model, expansion=SVC(algorithm.parts[-1].lam).solve(problem, z), sigmoids=None)


def refreshed(trained: Trained) -> NSVM | None:
    """Return the model with the features of its support vectors computed with the final theta, which those of
    Algorithm 1 are not; None if its terms are no samples.
    """
    e = trained.model.expansion
    if e.i is None:
        return None
    z = trained.model.features(trained.data.splits["train"].x[e.i.cpu()])
    return replace(trained.model, expansion=replace(e, z=z), sigmoids=None)


def verdict(figures: Mapping[str, Any]) -> dict[str, str]:
    """Return in a few words what is the matter, the worst first, and a sentence with the figures."""
    metric, n = figures["metric"], figures["samples"]
    test, refit, frozen, fresh = (
        figures[f"{name}_{metric}"] for name in ("test", "refit", "frozen", "refreshed")
    )
    share = min(max(test or 0.0, 0.5 / n), 1 - 0.5 / n)
    enough = test + ERRORS * math.sqrt(share * (1 - share) / n)
    looks = f"with an entropy of {figures['entropy']:.2f}"
    if figures["distance_identity"] < EXTREME:
        return _said(
            "identity-like kernel",
            f"the kernel matrix is {figures['distance_identity']:.2f} from the identity, {looks}: the "
            "samples are orthogonal, which fits any labels; lower kernel.gamma or network.scale, or raise "
            "penalties.identity",
        )
    if figures["distance_ones"] < EXTREME:
        return _said(
            "constant kernel",
            f"the kernel matrix is {figures['distance_ones']:.2f} from all ones, {looks}: the samples are "
            "alike; raise kernel.gamma, network.scale or penalties.ones",
        )
    if fresh is not None and fresh > enough:
        return _said(
            "stale features",
            f"with the features of the final theta the support vectors have {fresh:.4f} in place of "
            f"{test:.4f}; set algorithm.refresh_every",
        )
    if refit is not None and refit > enough:
        return _said(
            "unfinished solver",
            f"an exact SVM on the same features has {refit:.4f} in place of {test:.4f}; take more steps",
        )
    if frozen is not None and test <= frozen + (enough - test):
        return _said(
            "frozen features",
            f"an SVM on the initial, random features has {frozen:.4f} against {test:.4f}: training them "
            "gained nothing that these samples show",
        )
    than = "" if frozen is None else f", where an SVM on the initial features has {frozen:.4f}"
    return _said("healthy", f"{test:.4f} on held-out samples{than}")


def _said(verdict: str, why: str) -> dict[str, str]:
    return {"verdict": verdict, "why": why}


def _some(split: Split, most: int, seed: int) -> Split:
    """Return up to so many samples, chosen at random."""
    if len(split) <= most:
        return split
    rows = random_subset(len(split), most, seed, torch.device("cpu"))
    return Split(split.x[rows], split.y[rows])
