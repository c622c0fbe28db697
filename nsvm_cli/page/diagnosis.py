"""A look inside a trained model: its kernel matrix, its SVM, and what each part of it contributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from nsvm_cli.datasets import Split
from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.errors import InputError
from nsvm_cli.models.kernels import Biased, kernel_sums
from nsvm_cli.models.losses import Binary, EpsilonInsensitive, Hinge, Loss, build_loss
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.models.objectives import dataset_alignment, full_objective, random_subset, squared_norm
from nsvm_cli.models.penalties import distance_identity, distance_ones, entropy
from nsvm_cli.page.trained import Trained
from nsvm_cli.page.verdict import EXTREME, better, overfitted, verdict
from nsvm_cli.trainers import Problem
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.svc import SVC

Figures = dict[str, Any]
Records = Sequence[Mapping[str, Any]]

IN_MATRIX, IN_FIT = 1000, 5000
"""The most samples of a kernel matrix whose spectrum is computed; and of those that scores and alignments are
measured on, and that an SVM is trained on anew."""

KERNEL_VALUES = 3 * 10**8
"""The most kernel values that the objective may take, of its terms with samples and one another."""

LEAST_SCALE = 1e-6
"""The least differences of kernel values that are scaled up: those below are lost in rounding."""

ZERO = 1e-3
"""A share of the largest value of theta, up to which others are as good as 0."""

EIGENVALUES = 10
"""The largest eigenvalues of the kernel matrix that are given."""

NO_SVM = "there is no SVM"

UNSCALED = Scaling(torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64))


@dataclass(frozen=True)
class Samples:
    """Samples of a split, and their features under some theta."""

    split: Split
    z: Float[Tensor, "p n"]


def diagnose(trained: Trained, records: Records = (), most: int = IN_FIT) -> Figures:
    """Return the figures of a model on its data, and a verdict on them; those that do not apply are None.

    Scores are those on the held-out samples (``split``): the accuracy, or R^2 for real targets. Of many
    samples, random ones stand in for all: ``samples`` and ``fitted_samples`` say of how many held-out and
    training samples scores and alignments are, of ``held_out_samples`` and ``train_samples``, and
    ``matrix_samples`` of how many the figures of the kernel matrix are. ``missing`` says why figures are
    None.

    Args:
        trained: the model.
        records: those of metrics.jsonl, if they are there.
        most: the most samples of a split that figures are based on.

    Raises:
        InputError: the model file names training samples that there are not.
        RunError: a kernel value or a decision value is not finite.
    """
    e, m = trained.model.expansion, len(trained.data.splits["train"])
    if e.i is not None and len(e.i) and (last := int(e.i.max())) >= m:
        raise InputError(f"the model file names training sample {last}, and there are {m}")
    train, held_out = (
        Samples(split, trained.model.features(split.x))
        for split in (_some(trained, part, most) for part in (trained.data.splits["train"], trained.held_out))
    )
    figures = {
        "split": trained.split,
        "held_out_samples": len(trained.held_out),
        "train_samples": m,
        **_kernel_figures(trained, train, held_out),
        **_support_figures(trained, records),
        **_objective(trained, train),
        **_movement(trained),
    }
    figures |= _scores(trained, train, held_out, figures["distance_ones"])
    figures["missing"] = _missing(trained, figures)
    return figures | verdict(figures)


def _some(trained: Trained, split: Split, most: int) -> Split:
    """Return up to so many samples, chosen at random."""
    if len(split) <= most:
        return split
    rows = random_subset(len(split), most, trained.saved.settings.seed, torch.device("cpu"))
    return Split(split.x[rows], split.y[rows])


def _kernel_figures(trained: Trained, train: Samples, held_out: Samples) -> Figures:
    """Return the alignment on training and held-out samples, and figures of the kernel matrix.

    The matrix is that of the cosines K(a, b) / sqrt(K(a, a) K(b, b)), for which the distances are defined,
    of K without the 1 that a bias adds.
    """
    model, seed = trained.model, trained.saved.settings.seed
    aligned = {}
    for name, some in {"train": train, "test": held_out}.items():
        c = model.task.code(model.task.targets(some.split.y).to(some.z))
        found = dataset_alignment(model.kernel, some.z, c, seed, model.task.centred)
        aligned[f"alignment_{name}"] = found["alignment"]
    z = train.z[:IN_MATRIX]
    K = model.kernel.without(Biased)(z, z).double()
    size = K.diagonal().clamp_min(torch.finfo(K.dtype).tiny).sqrt()
    K = (K / size / size[:, None]).fill_diagonal_(1)
    spectrum = torch.linalg.eigvalsh(K / len(K)).flip(0)
    return {
        **aligned,
        "entropy": float(entropy(K)),
        "distance_identity": float(distance_identity(K)),
        "distance_ones": float(distance_ones(K)),
        "spectrum": spectrum[:EIGENVALUES].tolist(),
        "matrix_samples": len(z),
    }


def _movement(trained: Trained) -> Figures:
    """Return how far training has moved theta and the kernel matrix, if it was to move them, and the share
    of theta that is as good as 0.
    """
    if not _moves(trained):
        return dict.fromkeys(("theta_change", "feature_change", "theta_zeros"))
    facts = trained.saved.facts
    theta = torch.cat([p.detach().abs().flatten() for p in trained.model.network.parameters()])
    zeros = float((theta <= ZERO * theta.max()).double().mean())
    return {"theta_change": facts.theta_change, "feature_change": facts.feature_change, "theta_zeros": zeros}


def _moves(trained: Trained) -> bool:
    return trained.algorithm.moves_theta and trained.before is not None


def _support_figures(trained: Trained, records: Records) -> Figures:
    """Return the number of terms, the share of training samples among them, and how long ago those of
    Algorithm 1 were added, which a budget leaves unknown.
    """
    m, e = len(trained.data.splits["train"]), trained.model.expansion
    algorithm = trained.algorithm
    dated = isinstance(algorithm, Alg1) and algorithm.budget is None
    return {
        "support_vectors": len(e.alpha) if algorithm.trains_svm else None,
        "support_share": len(e.i.unique()) / m if algorithm.trains_svm and e.i is not None else None,
        "support_age": support_age(e, records) if dated else None,
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


def _loss(trained: Trained) -> Loss:
    settings = trained.saved.settings
    return build_loss(settings.loss, settings.multiclass, trained.model.task)


def _no_objective(trained: Trained) -> str | None:
    """Return why the objective is not computed."""
    e, m = trained.model.expansion, min(IN_FIT, len(trained.data.splits["train"]))
    reasons = {
        NO_SVM: not trained.algorithm.trains_svm,
        "pairs of classes have an SVM each": e.one_vs_one,
        "would take too many kernel values": (m + len(e.alpha)) * len(e.alpha) > KERNEL_VALUES,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _no_gap(trained: Trained) -> str | None:
    """Return why there is no lower bound of the objective."""
    loss = _loss(trained)
    reasons = {
        NO_SVM: not trained.algorithm.trains_svm,
        "only for two classes and hinge loss": not isinstance(loss, Binary) or not isinstance(loss.l, Hinge),
        "its terms are not training samples": trained.model.expansion.i is None,
    }
    return next((reason for reason, holds in reasons.items() if holds), _no_objective(trained))


def _objective(trained: Trained, train: Samples) -> Figures:
    """Return the objective of the SVM, and how far it is from a bound from below.

    The mean loss is that of these samples, ||f||^2 and the bound are those of the whole model.

    With two classes and the hinge loss, any beta in [0, 1]^m has the bound mean(beta) - ||h||^2 / (2 lambda),
    with h = 1/m sum_j beta_j y_j K(z_j, .). For h = lambda f, beta_j is y_j alpha_j m / T; clipped to [0, 1].
    With a bias, sum_j beta_j y_j is 0, as SVC has it. 0 is a bound, too.
    """
    figures: Figures = {"objective": None, "duality_gap": None}
    if _no_objective(trained):
        return figures
    model, e, split = trained.model, trained.model.expansion, trained.data.splits["train"]
    lam, K, loss = trained.algorithm.parts[-1].lam, model.kernel, _loss(trained)
    y = model.task.targets(train.split.y).double()
    figures["objective"] = full_objective(e, K, train.z, y, loss, lam)
    if e.i is not None and not _no_gap(trained):
        y = split.y.double()
        beta = torch.zeros(len(y), dtype=torch.float64).index_add(0, e.i.cpu(), e.alpha.cpu().double())
        beta = (beta * y * lam * len(y) / e.scale).clamp(0, 1)
        j = beta.nonzero().flatten()
        z_j = model.features(split.x[j]).double() if len(j) else e.z.double()[:0]
        alpha_j = (beta * y)[j].to(z_j)
        h = float(squared_norm(alpha_j, kernel_sums(K, z_j, z_j, alpha_j))) / len(y) ** 2
        bound = max(0.0, float(beta.mean()) - h / (2 * lam))
        figures["duality_gap"] = max(0.0, figures["objective"] - bound)  # but for rounding and chance
    return figures


def _scores(trained: Trained, train: Samples, held_out: Samples, distance_ones: float) -> Figures:
    """Return the score of the model on training and held-out samples, and those of others in its place.

    ``beats_guess`` says whether its errors are significantly smaller than those of one answer for all,
    ``worse_features`` whether those of an exact SVM on the initial features are smaller than its own and than
    those of an exact SVM on its features, and ``overfitted`` whether they are larger on held-out samples than
    on training samples.
    """
    task, own, split = trained.model.task, trained.model.expansion, held_out.split
    others = {"refit": refit(trained, train), "refreshed": refreshed(trained)}
    if distance_ones < EXTREME:
        others["rescaled"] = refit(trained, train, rescaled=True)
    answers = {name: decide(trained, e, held_out.z) for name, e in {"test": own, **others}.items() if e}
    answers["guess"] = guess(trained, split)
    if trained.before and _moves(trained):
        frozen = refit(trained, Samples(train.split, trained.before.features(train.split.x)))
        if frozen:
            answers["frozen"] = decide(trained, frozen, trained.before.features(split.x))
    scores = {
        f"{name}_{task.metric}": task.score(split.y, answers[name])[task.metric] if name in answers else None
        for name in ("test", "refit", "refreshed", "frozen", "rescaled", "guess")
    }
    errors = {name: _errors(trained, split, decided) for name, decided in answers.items()}
    test, frozen_errors = errors["test"], errors.get("frozen")
    seen = decide(trained, own, train.z)
    return {
        "metric": task.metric,
        "samples": len(split),
        "fitted_samples": len(train.split),
        f"train_{task.metric}": task.score(train.split.y, seen)[task.metric],
        **scores,
        "beats_guess": better(test, errors["guess"]),
        "worse_features": frozen_errors is not None
        and all(better(frozen_errors, errors[name]) for name in ("test", "refit")),
        "overfitted": overfitted(_errors(trained, train.split, seen), test),
    }


def decide(trained: Trained, e: Expansion, z: Float[Tensor, "p n"]) -> Tensor:
    """Return the predictions of an SVM for features."""
    model = replace(trained.model, scaling=UNSCALED, network=nn.Identity(), expansion=e, sigmoids=None)
    return model.predict(z).cpu()


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


def refit(trained: Trained, train: Samples, rescaled: bool = False) -> Expansion | None:
    """Return an SVM on the features of samples that is solved to precision, with the hinge or the
    epsilon-insensitive loss; None if the model has no SVM, or some class no sample.

    ``rescaled`` is as if the kernel, less its mean, were scaled to 1 for equal samples: with a bias the mean
    has no effect, and the scale is that of 1/lambda.
    """
    settings, task, K = trained.saved.settings, trained.model.task, trained.model.kernel
    split, z = train.split, train.z
    if not trained.algorithm.trains_svm or len(split.y.unique()) < max(2, len(task.classes)):
        return None
    loss = build_loss(settings.loss, "crammer_singer", task)
    if not isinstance(loss.l, EpsilonInsensitive):
        loss = build_loss(None, "crammer_singer", task)
    problem = Problem(z, task.targets(split.y).to(z), K, settings.seed, task=task, loss=loss)
    lam = trained.algorithm.parts[-1].lam
    if rescaled:
        K_zz = K(z[:IN_MATRIX], z[:IN_MATRIX]).double()
        lam *= float((K_zz.diagonal().mean() - K_zz.mean()).clamp_min(LEAST_SCALE))
    return SVC(lam).solve(problem, z)


def refreshed(trained: Trained) -> Expansion | None:
    """Return the SVM of Algorithm 1 with the features of its terms computed with the final theta; None for
    others, and if the terms are no samples.
    """
    e = trained.model.expansion
    if e.i is None or not isinstance(trained.algorithm, Alg1):
        return None
    return replace(e, z=trained.model.features(trained.data.splits["train"].x[e.i.cpu()]))


def _missing(trained: Trained, figures: Figures) -> dict[str, str]:
    """Return why figures are None, of those that are expected of every model."""
    metric = trained.model.task.metric
    no_fit = "some class has no training sample" if trained.algorithm.trains_svm else NO_SVM
    undefined = "undefined: equal kernel values"
    reasons = {
        "alignment_train": undefined,
        "alignment_test": undefined,
        "objective": _no_objective(trained),
        "duality_gap": _no_gap(trained),
        f"refit_{metric}": no_fit,
        f"frozen_{metric}": no_fit if _moves(trained) else "there is no theta that is trained",
    }
    return {name: reason for name, reason in reasons.items() if figures[name] is None and reason}
