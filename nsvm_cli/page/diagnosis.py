"""A look inside a trained model: its kernel matrix, its SVM, and what each part of it contributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nsvm_cli.datasets import Split
from nsvm_cli.errors import InputError
from nsvm_cli.models.kernels import kernel_sums
from nsvm_cli.models.losses import Binary, EpsilonInsensitive, Hinge, build_loss
from nsvm_cli.models.nsvm import NSVM, Expansion
from nsvm_cli.models.objectives import dataset_alignment, full_objective, random_subset, squared_norm
from nsvm_cli.models.penalties import distance_identity, distance_ones, entropy
from nsvm_cli.page.trained import Trained
from nsvm_cli.page.verdict import EXTREME, better, overfitted, verdict
from nsvm_cli.trainers import Problem, build_trainer
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.svc import SVC

Figures = dict[str, Any]
Records = Sequence[Mapping[str, Any]]

IN_MATRIX, IN_FIT = 1000, 5000
"""The most samples of a kernel matrix whose spectrum is computed; and of those that scores and alignments are
measured on, and that an SVM is trained on anew."""

KERNEL_VALUES = 3 * 10**8
"""The most kernel values that the objective may take: training samples times terms."""

LEAST_SCALE = 1e-6
"""The least differences of kernel values that are scaled up: those below are lost in rounding."""

EIGENVALUES = 10
"""The largest eigenvalues of the kernel matrix that are given."""


@dataclass(frozen=True)
class Samples:
    """Samples of a split, and their features under some theta."""

    split: Split
    z: Float[Tensor, "p n"]


def diagnose(trained: Trained, records: Records = ()) -> Figures:
    """Return the figures of a model on its data, and a verdict on them; those that do not apply are None.

    Scores are those on the held-out samples (``split``): the accuracy, or R^2 for real targets. Of many
    samples, random ones stand in for all.

    Args:
        trained: the model.
        records: those of metrics.jsonl, if they are there.

    Raises:
        InputError: the model file names training samples that there are not.
        RunError: a kernel value or a decision value is not finite.
    """
    e, m = trained.model.expansion, len(trained.data.splits["train"])
    if e.i is not None and len(e.i) and (last := int(e.i.max())) >= m:
        raise InputError(f"the model file names training sample {last}, and there are {m}")
    split = _some(trained.data.splits["train"], IN_FIT, trained.saved.settings.seed)
    train = Samples(split, trained.model.features(split.x))
    figures = {
        "split": trained.split,
        **_kernel_figures(trained, train),
        **_support_figures(trained, records),
        **_objective(trained),
        **_movement(trained),
    }
    figures |= _scores(trained, train, figures["distance_ones"])
    return figures | verdict(figures)


def _kernel_figures(trained: Trained, train: Samples) -> Figures:
    """Return the alignment on training and held-out samples, and figures of the kernel matrix.

    The matrix is that of the cosines K(a, b) / sqrt(K(a, a) K(b, b)), for which the distances are defined.
    """
    model, seed = trained.model, trained.saved.settings.seed
    held_out = _some(trained.held_out, IN_FIT, seed)
    aligned = {}
    for name, some in {"train": train, "test": Samples(held_out, model.features(held_out.x))}.items():
        c = model.task.code(model.task.targets(some.split.y).to(some.z))
        found = dataset_alignment(model.kernel, some.z, c, seed, model.task.centred)
        aligned[f"alignment_{name}"] = found["alignment"]
    z = train.z[:IN_MATRIX]
    K = model.kernel(z, z).double()
    size = K.diagonal().clamp_min(torch.finfo(K.dtype).tiny).sqrt()
    K = (K / size / size[:, None]).fill_diagonal_(1)
    spectrum = torch.linalg.eigvalsh(K / len(K)).flip(0)
    return {
        **aligned,
        "entropy": float(entropy(K)),
        "distance_identity": float(distance_identity(K)),
        "distance_ones": float(distance_ones(K)),
        "spectrum": spectrum[:EIGENVALUES].tolist(),
    }


def _movement(trained: Trained) -> Figures:
    """Return how far training has moved theta and the kernel matrix, if it was to move them."""
    names = ("theta_change", "feature_change")
    return {name: getattr(trained.saved.facts, name) if _moves(trained) else None for name in names}


def _moves(trained: Trained) -> bool:
    return build_trainer(trained.saved.settings.algorithm).moves_theta and trained.before is not None


def _support_figures(trained: Trained, records: Records) -> Figures:
    """Return the number of terms, the share of training samples among them, and how long ago those of
    Algorithm 1 were added.
    """
    m, e = len(trained.data.splits["train"]), trained.model.expansion
    algorithm = build_trainer(trained.saved.settings.algorithm)
    return {
        "support_vectors": len(e.alpha) if algorithm.trains_svm else None,
        "support_share": len(e.i.unique()) / m if algorithm.trains_svm and e.i is not None else None,
        "support_age": support_age(e, records) if isinstance(algorithm, Alg1) else None,
    }


def support_age(e: Expansion, records: Records) -> float | None:
    """Return the median number of steps since the terms of Algorithm 1 were added, which are in that order.

    A term is as old as the first record that counts it. None if the records do not tell: without them, or
    where terms have been removed.
    """
    counts = np.array([record.get("support_vectors") or 0 for record in records], np.int64)
    if not len(e.alpha) or not len(counts) or counts[-1] != len(e.alpha) or (np.diff(counts) < 0).any():
        return None
    steps = np.array([record["step"] for record in records])
    joined = steps[np.searchsorted(counts, np.arange(1, len(e.alpha) + 1))]
    return float(np.median(steps[-1] - joined))


def _objective(trained: Trained) -> Figures:
    """Return the objective of the SVM on the training samples, and how far it is from a bound from below.

    With two classes and the hinge loss, any beta in [0, 1]^m has the bound mean(beta) - ||h||^2 / (2 lambda),
    with h = 1/m sum_j beta_j y_j K(z_j, .). For h = lambda f, beta_j is y_j alpha_j m / T; clipped to [0, 1].
    With a bias, sum_j beta_j y_j is 0, as SVC has it.
    """
    model, settings = trained.model, trained.saved.settings
    algorithm, train, e = build_trainer(settings.algorithm), trained.data.splits["train"], model.expansion
    unknown = {"objective": None, "duality_gap": None}
    if not algorithm.trains_svm or len(train) * max(1, len(e.alpha)) > KERNEL_VALUES:
        return unknown
    loss = build_loss(settings.loss, settings.multiclass, model.task)
    lam, y = algorithm.parts[-1].lam, model.task.targets(train.y).double()
    z = model.features(train.x)
    objective = full_objective(e, model.kernel, z, y, loss, lam)
    if objective is None or not isinstance(loss, Binary) or not isinstance(loss.l, Hinge) or e.i is None:
        return {**unknown, "objective": objective}
    beta = torch.zeros(len(y), dtype=torch.float64).index_add(0, e.i.cpu(), e.alpha.cpu().double())
    beta = (beta * y * lam * len(y) / e.scale).clamp(0, 1)
    j = beta.nonzero().flatten().to(z.device)
    z_j, alpha_j = z[j].double(), (beta * y).to(z.device)[j]
    h = float(squared_norm(alpha_j, kernel_sums(model.kernel, z_j, z_j, alpha_j))) / len(y) ** 2
    bound = float(beta.mean()) - h / (2 * lam)
    return {"objective": objective, "duality_gap": max(0.0, objective - bound)}  # rounding apart


def _scores(trained: Trained, train: Samples, distance_ones: float) -> Figures:
    """Return the score of the model on training and held-out samples, and those of others in its place.

    ``better`` names the others that make significantly smaller errors on the same samples, and ``worse``
    those that make larger ones; ``overfitted`` says whether errors on held-out samples are significantly
    larger than on training samples.
    """
    model, task, seed = trained.model, trained.model.task, trained.saved.settings.seed
    held_out = _some(trained.held_out, IN_FIT, seed)
    answers = {"test": model.predict(held_out.x).cpu(), "guess": guess(trained, held_out)}
    others = {"refit": refit(trained, model, train), "refreshed": refreshed(trained)}
    if trained.before and _moves(trained):
        others["frozen"] = refit(trained, trained.before)
    if distance_ones < EXTREME:
        others["rescaled"] = refit(trained, model, train, rescaled=True)
    answers |= {name: other.predict(held_out.x).cpu() for name, other in others.items() if other}
    scores = {
        f"{name}_{task.metric}": task.score(held_out.y, answers[name])[task.metric]
        if name in answers
        else None
        for name in ("test", "refit", "refreshed", "frozen", "rescaled", "guess")
    }
    errors = {name: _errors(trained, held_out, decided) for name, decided in answers.items()}
    own = errors.pop("test")
    seen = model.predict(train.split.x).cpu()
    return {
        "metric": task.metric,
        "samples": len(held_out),
        "fitted_samples": len(train.split),
        f"train_{task.metric}": task.score(train.split.y, seen)[task.metric],
        **scores,
        "better": [name for name, error in errors.items() if better(error, own)],
        "worse": [name for name, error in errors.items() if better(own, error)],
        "overfitted": overfitted(_errors(trained, train.split, seen), own),
    }


def _errors(trained: Trained, split: Split, decided: Tensor) -> Float[Tensor, " p"]:
    """Return for each sample whether its class is wrong, or the square of its error."""
    if trained.classifies:
        return (decided != split.y).double()
    return (decided - split.y).double().square()


def guess(trained: Trained, split: Split) -> Tensor:
    """Return one answer for all samples: the most frequent class of the training samples, or their mean."""
    y = trained.data.splits["train"].y
    one = y.mode().values if trained.classifies else y.double().mean()
    return one.expand(len(split))


def refit(trained: Trained, model: NSVM, train: Samples | None = None, rescaled: bool = False) -> NSVM | None:
    """Return a model with the same features and an SVM that is solved to precision, with the hinge or the
    epsilon-insensitive loss; None if it has no SVM, or some class no sample.

    ``rescaled`` is as if the kernel, less its mean, were scaled to 1 for equal samples: with a bias the mean
    has no effect, and the scale is that of 1/lambda.
    """
    settings, task = trained.saved.settings, model.task
    algorithm = build_trainer(settings.algorithm)
    split = train.split if train else _some(trained.data.splits["train"], IN_FIT, settings.seed)
    if not algorithm.trains_svm or len(split.y.unique()) < max(2, len(task.classes)):
        return None
    z = train.z if train else model.features(split.x)
    loss = build_loss(settings.loss, "crammer_singer", task)
    if not isinstance(loss.l, EpsilonInsensitive):
        loss = build_loss(None, "crammer_singer", task)
    problem = Problem(z, task.targets(split.y).to(z), model.kernel, settings.seed, task=task, loss=loss)
    lam = algorithm.parts[-1].lam
    if rescaled:
        K = model.kernel(z[:IN_MATRIX], z[:IN_MATRIX]).double()
        lam *= float((K.diagonal().mean() - K.mean()).clamp_min(LEAST_SCALE))
    return replace(model, expansion=SVC(lam).solve(problem, z), sigmoids=None)


def refreshed(trained: Trained) -> NSVM | None:
    """Return a model of Algorithm 1 with the features of its support vectors computed with the final theta;
    None for others, and if its terms are no samples.
    """
    e = trained.model.expansion
    if e.i is None or not isinstance(build_trainer(trained.saved.settings.algorithm), Alg1):
        return None
    z = trained.model.features(trained.data.splits["train"].x[e.i.cpu()])
    return replace(trained.model, expansion=replace(e, z=z), sigmoids=None)


def _some(split: Split, most: int, seed: int) -> Split:
    """Return up to so many samples, chosen at random."""
    if len(split) <= most:
        return split
    rows = random_subset(len(split), most, seed, torch.device("cpu"))
    return Split(split.x[rows], split.y[rows])
