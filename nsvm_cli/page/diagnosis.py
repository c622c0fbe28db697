"""A look inside a trained model: its kernel matrix, its SVM, and what each part of it contributes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nsvm_cli.datasets import Data
from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.errors import InputError
from nsvm_cli.models.kernels import Biased, kernel_sums
from nsvm_cli.models.losses import Binary, EpsilonInsensitive, Hinge, Loss, build_loss
from nsvm_cli.models.nsvm import NSVM, Expansion
from nsvm_cli.models.objectives import dataset_alignment, full_objective, squared_norm
from nsvm_cli.models.penalties import distance_identity, distance_ones, entropy
from nsvm_cli.page.trained import algorithm_of, some_of
from nsvm_cli.page.verdict import EXTREME, better, overfitted, verdict
from nsvm_cli.tasks import Classification, Task
from nsvm_cli.trainers import Problem
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.svc import SVC
from nsvm_cli.words import SCORES

Figures = dict[str, Any]

MOST_IN_MATRIX, MOST_SAMPLES, MOST_KERNEL_VALUES = 1000, 5000, 3 * 10**8
"""The most samples of a kernel matrix whose spectrum is computed, and of all other figures; and the most
kernel values that the objective may take."""


class Samples(NamedTuple):
    """Features of samples under some theta, and their labels."""

    z: Float[Tensor, "p n"]
    y: Float[Tensor, " p"]


def diagnose(model: NSVM, data: Data, most: int = MOST_SAMPLES) -> Figures:
    """Return the figures of a model on its data, and a verdict on them; those that do not apply are None.

    Scores are those on the held-out samples (``split``): the accuracy, or R^2 for real targets. Of many
    samples, random ones stand in for all. ``missing`` says why figures are None.

    Args:
        most: the most samples of a split that scores and alignments are based on, and an exact SVM is.

    Raises:
        InputError: the model is a constant.
        RunError: a kernel value or a decision value is not finite.
    """
    if algorithm_of(model).is_constant:
        raise InputError("there is nothing to diagnose: this algorithm decides for all samples alike")
    train, held_out = now = _samples(model, data, most)
    before = _samples(model.before_training(), data, most) if _moves(model) else []
    e, has_svm, missing = model.expansion, algorithm_of(model).trains_svm, _missing(model, train)
    m = data.splits.sizes["train"]
    figures = {
        "split": data.splits.held_out,
        "held_out_samples": len(data.held_out),
        "train_samples": m,
        "samples": len(held_out.y),
        "fitted_samples": len(train.y),
        "metric": model.task.metric,
        **_kernel_figures(model, train, held_out),
        "support_vectors": len(e.alpha) if has_svm else None,
        "support_share": len(e.i.unique()) / m if has_svm and e.i is not None else None,
        "objective": None,
        "duality_gap": None,
        **dict.fromkeys(("theta_change", "feature_change", "theta_zeros")),
    }
    if "objective" not in missing:  # the mean loss is that of these samples, ||f||^2 that of the model
        y, loss = model.task.targets(train.y), _loss(model)
        figures["objective"] = full_objective(e, model.kernel, train.z, y, loss, _lam(model))
    if "duality_gap" not in missing:
        figures["duality_gap"] = max(0.0, figures["objective"] - _lower_bound(model, data))
    if before:
        theta = torch.cat([p.detach().abs().flatten() for p in model.network.parameters()])
        figures |= {name: getattr(model.facts, name) for name in ("theta_change", "feature_change")}
        figures["theta_zeros"] = float((theta <= 1e-3 * theta.max()).double().mean())
    undefined = [name for name in ("alignment_train", "alignment_test") if figures[name] is None]
    figures["missing"] = missing | dict.fromkeys(undefined, "undefined: equal kernel values")
    figures |= _scores(model, data, now, before, figures)
    return figures | verdict(figures)


def _samples(model: NSVM, data: Data, most: int) -> list[Samples]:
    """Return some of the training and of the held-out samples."""
    splits, seed = (data.splits["train"], data.held_out), model.settings.seed
    some = (some_of(split, most, seed) for split in splits)
    return [Samples(model.features(split.x), split.y) for split in some]


def _missing(model: NSVM, train: Samples) -> dict[str, str]:
    """Return why figures are not computed, of those that are expected of every model."""
    task, e, loss = model.task, model.expansion, _loss(model)
    exact, frozen = f"refit_{task.metric}", f"frozen_{task.metric}"
    if not algorithm_of(model).trains_svm:
        return dict.fromkeys(("objective", "duality_gap", exact, frozen), "there is no SVM")
    missing = {}
    if e.one_vs_one:
        missing["objective"] = "pairs of classes have an SVM each"
    elif (len(train.y) + len(e.alpha)) * len(e.alpha) > MOST_KERNEL_VALUES:
        missing["objective"] = missing["duality_gap"] = "would take too many kernel values"
    if not isinstance(loss, Binary) or not isinstance(loss.l, Hinge):
        missing["duality_gap"] = "only for two classes and hinge loss"
    elif e.i is None:
        missing["duality_gap"] = "its terms are not training samples"
    if len(train.y.unique()) < max(2, len(task.classes)):
        missing[exact] = missing[frozen] = "some class has no training sample"
    if not _moves(model):
        missing[frozen] = "there is no theta that is trained"
    return missing


def _loss(model: NSVM) -> Loss:
    settings = model.settings
    return build_loss(settings.loss, settings.multiclass, model.task)


def _lam(model: NSVM) -> float:
    return float(algorithm_of(model).parts[-1].lam)


def _moves(model: NSVM) -> bool:
    return algorithm_of(model).moves_theta and model.parameters > 0


def _kernel_figures(model: NSVM, train: Samples, held_out: Samples) -> Figures:
    """Return the alignment on training and held-out samples, and figures of the kernel matrix.

    The matrix is that of the cosines K(a, b) / sqrt(K(a, a) K(b, b)), for which the distances are defined,
    of K without the 1 that a bias adds.
    """
    task, kernel, seed = model.task, model.kernel, model.settings.seed
    alignments = [
        dataset_alignment(kernel, z, task.code(task.targets(y).to(z)), seed, task.centred)["alignment"]
        for z, y in (train, held_out)
    ]
    z = train.z[:MOST_IN_MATRIX]
    K = kernel.without(Biased)(z, z).double()
    size = K.diagonal().clamp_min(torch.finfo(K.dtype).tiny).sqrt()
    K = (K / size / size[:, None]).fill_diagonal_(1)
    return {
        **dict(zip(("alignment_train", "alignment_test"), alignments, strict=True)),
        "entropy": float(entropy(K)),
        "distance_identity": float(distance_identity(K)),
        "distance_ones": float(distance_ones(K)),
        "spectrum": torch.linalg.eigvalsh(K / len(K)).flip(0)[:10].tolist(),
        "matrix_samples": len(z),
    }


def _lower_bound(model: NSVM, data: Data) -> float:
    """Return a lower bound of the objective, for two classes and the hinge loss.

    Any beta in [0, 1]^m has the bound mean(beta) - ||h||^2 / (2 lambda), with
    h = 1/m sum_j beta_j y_j K(z_j, .). For h = lambda f, beta_j is y_j alpha_j m / T; clipped to [0, 1].
    With a bias, sum_j beta_j y_j is 0, as SVC has it. 0 is a bound, too.
    """
    e, train, lam = model.expansion, data.splits["train"], _lam(model)
    assert e.i is not None
    y, m = train.y.double(), len(train)
    beta = torch.zeros(m, dtype=torch.float64).index_add(0, e.i.cpu(), e.alpha.cpu().double())
    beta = (beta * y * lam * m / e.scale).clamp(0, 1)
    j = beta.nonzero().flatten()
    z_j = model.features(train.x[j]).double() if len(j) else e.z.double()[:0]
    alpha_j = (beta * y)[j].to(z_j)
    h = float(squared_norm(alpha_j, kernel_sums(model.kernel, z_j, z_j, alpha_j))) / m**2
    return max(0.0, float(beta.mean()) - h / (2 * lam))


def _scores(model: NSVM, data: Data, now: list[Samples], before: list[Samples], figures: Figures) -> Figures:
    """Return the score of the model on training and held-out samples, and those of others in its place.

    ``beats_guess`` says whether its errors are significantly smaller than those of one answer for all,
    ``worse_features`` whether those of an exact SVM on the initial features are smaller than its own and than
    those of an exact SVM on its features, and ``overfitted`` whether those on training samples are smaller.
    """
    task, e, (x, y) = model.task, model.expansion, (data.splits["train"].x, data.splits["train"].y)
    train, held_out = now
    guess = y.mode().values if isinstance(task, Classification) else y.mean()
    answers = {"test": decide(model, e, held_out.z), "guess": guess.expand(len(held_out.y))}
    if f"refit_{task.metric}" not in figures["missing"]:
        answers["refit"] = decide(model, refit(model, train), held_out.z)
        if figures["distance_ones"] < EXTREME:
            answers["rescaled"] = decide(model, refit(model, train, rescaled=True), held_out.z)
        if before:
            answers["frozen"] = decide(model, refit(model, before[0]), before[1].z)
    if isinstance(algorithm_of(model), Alg1) and e.i is not None:
        # its terms keep the features of the step that added them
        refreshed = replace(e, z=model.features(x[e.i.cpu()]))
        answers["refreshed"] = decide(model, refreshed, held_out.z)
    seen = decide(model, e, train.z)
    scores = {name: task.score(held_out.y, answer)[task.metric] for name, answer in answers.items()}
    scores["train"] = task.score(train.y, seen)[task.metric]
    errors = {name: _errors(model.task, held_out.y, answer) for name, answer in answers.items()}
    others = [errors["test"], errors["refit"]] if "frozen" in errors else []
    return {
        **{f"{name}_{task.metric}": scores.get(name) for name in SCORES},
        "beats_guess": better(errors["test"], errors["guess"]),
        "worse_features": bool(others) and all(better(errors["frozen"], other) for other in others),
        "overfitted": overfitted(_errors(model.task, train.y, seen), errors["test"]),
    }


def decide(model: NSVM, e: Expansion, z: Float[Tensor, "p n"]) -> Tensor:
    """Return the predictions of an SVM for features."""
    unscaled = Scaling(torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64))
    svm = replace(model, scaling=unscaled, network=nn.Identity(), expansion=e, sigmoids=None)
    return svm.predict(z).cpu()


def _errors(task: Task, y: Float[Tensor, " p"], decided: Tensor) -> Float[Tensor, " p"]:
    """Return for each sample whether its class is wrong, or the square of its error."""
    return (decided != y).double() if isinstance(task, Classification) else (decided - y).double().square()


def refit(model: NSVM, train: Samples, rescaled: bool = False) -> Expansion:
    """Return an SVM on the features of samples that is solved to precision, with the hinge or the
    epsilon-insensitive loss.

    ``rescaled`` is as if the kernel, less its mean, were scaled to 1 for equal samples: with a bias the mean
    has no effect, and the scale is that of 1/lambda.
    """
    settings, task, K = model.settings, model.task, model.kernel
    z, lam = train.z, _lam(model)
    loss = build_loss(settings.loss, "crammer_singer", task)
    if not isinstance(loss.l, EpsilonInsensitive):
        loss = build_loss(None, "crammer_singer", task)
    if rescaled:
        K_zz = K(z[:MOST_IN_MATRIX], z[:MOST_IN_MATRIX]).double()
        lam *= float((K_zz.diagonal().mean() - K_zz.mean()).clamp_min(1e-6))  # less is lost in rounding
    problem = Problem(z, task.targets(train.y).to(z), K, settings.seed, task=task, loss=loss)
    return SVC(lam).solve(problem, z)
