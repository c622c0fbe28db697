"""Diagnosis of a trained model: metrics of its kernel matrix, its SVM and its features, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nsvm_cli.datasets import Data, Split
from nsvm_cli.datasets.scaling import Scaling
from nsvm_cli.engines import TORCH, for_engine
from nsvm_cli.errors import InputError
from nsvm_cli.models.feature_map import theta_of
from nsvm_cli.models.kernels import kernel_sums
from nsvm_cli.models.losses import Binary, Hinge, build_loss
from nsvm_cli.models.nsvm import NSVM, Expansion
from nsvm_cli.models.objectives import dataset_alignment, full_objective, random_subset, squared_norm
from nsvm_cli.models.penalties import distance_identity, distance_ones, entropy
from nsvm_cli.tasks import Classification, Task
from nsvm_cli.trainers import Problem, Trainer, build_trainer
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.svc import SUPPORTED, SVC
from nsvm_cli.words import SCORES, sample_counts

MOST_IN_MATRIX = 1000
"""Maximum number of samples in the kernel matrix."""

EXTREME = 0.1
"""Distance below which a kernel matrix counts as near the identity, or near all ones."""

STANDARD_ERRORS = 2.0
"""Number of standard errors by which significantly different means differ."""


def diagnose(model: NSVM, data: Data, most: int = 5000) -> dict[str, Any]:
    """Return metrics of a model on its data, with None where they do not apply, and a verdict.

    Scores on held-out samples are accuracies or, for real targets, R^2. Scores, alignments and the exact SVM
    use at most ``most`` random samples per split.

    Raises:
        InputError: the model is a constant.
        RunError: a kernel value or a decision value is not finite.
    """
    algorithm = build_trainer(model.settings.algorithm)
    if algorithm.is_constant:
        raise InputError("nothing to diagnose: this algorithm predicts the same for all samples")
    moves = algorithm.moves_theta and model.parameters > 0
    w = data.weights(model.settings.class_weight)
    all_train = replace(data.splits["train"], weight=None if w is None else torch.from_numpy(w))
    samples = [random_samples(split, most, model.settings.seed) for split in (all_train, data.held_out)]
    train, held_out = trained = _features(model, samples)
    initial = model.before_training() if moves else None
    untrained = (initial, _features(initial, samples)) if initial else None
    kernel = _kernel_figures(model, train, held_out)
    svm, objective, gap = algorithm.trains_svm, None, None
    if svm and model.settings.threshold is None:  # a threshold moves the bias away from the minimum
        objective, gap = _objective(model, all_train, train, algorithm.lam)
    figures = {
        "split": data.splits.held_out,
        "held_out_samples": len(data.held_out),
        "train_samples": data.splits.sizes["train"],
        "samples": len(held_out.y),
        "fitted_samples": len(train.y),
        "metric": model.task.metric,
        **kernel,
        "support_vectors": len(model.expansion.alpha) if svm else None,
        "objective": objective,
        "duality_gap": gap,
        "theta_change": model.metadata.theta_change if moves else None,
        "feature_change": model.metadata.feature_change if moves else None,
        "theta_zeros": _zeros(model) if moves else None,
        "kernel_parameters": model.kernel_parameters,
        "initial_kernel_parameters": initial.kernel_parameters if initial else {},
        **_scores(model, all_train, algorithm, trained, untrained, kernel["distance_ones"] < EXTREME),
    }
    return figures | verdict(figures)


def random_samples(split: Split, most: int, seed: int) -> Split:
    """Return at most ``most`` samples, chosen at random."""
    rows = random_subset(len(split), min(len(split), most), seed, torch.device("cpu"))
    return Split(split.x[rows], split.y[rows], None if split.weight is None else split.weight[rows])


def _features(model: NSVM, samples: list[Split]) -> list[Split]:
    return [replace(split, x=model.features(split.x)) for split in samples]


def _zeros(model: NSVM) -> float:
    """Return the fraction of the entries of theta that are nearly 0."""
    theta = theta_of(model.network, model.kernel).values()
    sizes = torch.cat([p.detach().abs().flatten() for p in theta])
    return float((sizes <= 1e-3 * sizes.max()).double().mean())


def _kernel_figures(model: NSVM, train: Split, held_out: Split) -> dict[str, Any]:
    """Return the alignments with the labels, and metrics of the matrix K(a, b) / sqrt(K(a, a) K(b, b))."""
    task, kernel = model.task, model.kernel

    def alignment(z: Tensor, y: Tensor) -> Any:
        codes = task.code(task.targets(y).to(z))
        return dataset_alignment(kernel, z, codes, task.centred)["alignment"]

    z = train.x[:MOST_IN_MATRIX]
    K = kernel.unbiased(z, z).double()
    size = K.diagonal().clamp_min(torch.finfo(K.dtype).tiny).sqrt()
    K = (K / size / size[:, None]).fill_diagonal_(1)
    return {
        "alignment_train": alignment(train.x, train.y),
        "alignment_test": alignment(held_out.x, held_out.y),
        "entropy": float(entropy(K)),
        "distance_identity": float(distance_identity(K)),
        "distance_ones": float(distance_ones(K)),
    }


def _objective(model: NSVM, train: Split, fitted: Split, lam: float) -> tuple[float | None, float | None]:
    """Return the objective and the duality gap, each None if it cannot be computed.

    The gap is the objective minus a lower bound. It requires two classes, the hinge loss, and an f whose
    terms are training samples. Let w_j be the sample weights, and f = sum_j alpha_j K(z_j, .) / scale.
    Every choice of beta_j in [0, w_j] gives the lower bound mean(beta) - ||h||^2 / (2 lambda), where
    h = 1/m sum_j beta_j y_j K(z_j, .). The choice beta_j = lambda y_j alpha_j m / scale, clipped to
    [0, w_j], makes h close to lambda f. With an unregularised bias, the bound requires
    sum_j beta_j y_j = 0, which holds for SVC. 0 is also a lower bound.
    """
    e, task = model.expansion, model.task
    kernel_values = (len(fitted.y) + len(e.alpha)) * len(e.alpha)
    if model.metadata.absent or kernel_values > 3e8:
        return None, None
    loss = build_loss(model.settings.loss, model.settings.multiclass, task)
    objective = full_objective(e, model.kernel, fitted.x, task.targets(fitted.y), loss, lam, fitted.weight)
    if objective is None or e.i is None or not isinstance(loss, Binary) or not isinstance(loss.l, Hinge):
        return objective, None
    y, m = train.y.double(), len(train)
    beta = torch.zeros(m, dtype=torch.float64).index_add(0, e.i.cpu(), e.alpha.cpu().double())
    w = torch.ones_like(y) if train.weight is None else train.weight
    beta = (beta * y * lam * m / e.scale).clamp_min(0).minimum(w)
    j = beta.nonzero().flatten()
    z_j = model.features(train.x[j]).double() if len(j) else e.z.double()[:0]
    alpha_j = (beta * y)[j].to(z_j)
    h = float(squared_norm(alpha_j, kernel_sums(model.kernel, z_j, z_j, alpha_j))) / m**2
    return objective, max(0.0, objective - max(0.0, float(beta.mean()) - h / (2 * lam)))


def _scores(
    model: NSVM,
    all_train: Split,
    algorithm: Trainer[Any],
    trained: list[Split],
    untrained: tuple[NSVM, list[Split]] | None,
    is_constant: bool,
) -> dict[str, Any]:
    """Return the scores of the model and of alternatives to it (see ``SCORES``), and three booleans.

    Each boolean is whether a difference is significant (see ``better`` and ``overfitted``).

    ``beats_guess``: the model is better than one answer for all samples. ``worse_features``: an exact SVM on
    the initial features is better than the model and than an exact SVM on the trained features.
    ``overfitted``: the model is better on training samples than on held-out samples.
    """
    task, e, (train, held_out) = model.task, model.expansion, trained
    guess = all_train.y.mode().values if isinstance(task, Classification) else all_train.y.mean()
    answers = {"test": decide(model, e, held_out.x), "guess": guess.expand(len(held_out.y))}
    if algorithm.trains_svm and len(train.y.unique()) >= max(2, len(task.classes)):
        lam = algorithm.lam
        answers["refit"] = decide(model, refit(model, train, lam), held_out.x)
        if is_constant:
            # regularises as strongly as lambda does for a centred kernel that is scaled to K(z, z) = 1
            rescaled = refit(model, train, lam * _variance(model, train.x))
            answers["rescaled"] = decide(model, rescaled, held_out.x)
        if untrained:
            initial, (initial_train, initial_held_out) = untrained
            answers["frozen"] = decide(initial, refit(initial, initial_train, lam), initial_held_out.x)
    if isinstance(algorithm, Alg1) and e.i is not None:
        # the terms of Algorithm 1 keep the features of the step that added them
        refreshed = replace(e, z=model.features(all_train.x[e.i.cpu()]))
        answers["refreshed"] = decide(model, refreshed, held_out.x)
    train_answer = decide(model, e, train.x)
    scores = {name: task.score(held_out.y, answer)[task.metric] for name, answer in answers.items()}
    scores["train"] = task.score(train.y, train_answer)[task.metric]
    errors = {name: _errors(task, held_out.y, answer) for name, answer in answers.items()}
    rivals = ("test", "refit")
    return {
        **{f"{name}_{task.metric}": scores.get(name) for name in SCORES},
        "beats_guess": better(errors["test"], errors["guess"]),
        "worse_features": "frozen" in errors and all(better(errors["frozen"], errors[n]) for n in rivals),
        "overfitted": overfitted(_errors(task, train.y, train_answer), errors["test"]),
    }


def decide(model: NSVM, e: Expansion, z: Float[Tensor, "p n"]) -> Tensor:
    """Return the predictions of the model for features ``z``, with ``e`` as its expansion."""
    unscaled = Scaling(torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64))
    svm = replace(model, scaling=unscaled, network=nn.Identity(), expansion=e, sigmoids=None)
    svm = svm.with_metadata(shape=tuple(z.shape[1:]), columns=None)
    return svm.predict(z).cpu()


def _errors(task: Task, y: Float[Tensor, " p"], decided: Tensor) -> Float[Tensor, " p"]:
    """Return each sample's error: 1 or 0 for a wrong or right class, or the squared error of a target."""
    return (decided != y).double() if isinstance(task, Classification) else (decided - y).double().square()


def refit(model: NSVM, train: Split, lam: float) -> Expansion:
    """Train an exact SVM with the model's kernel on features, with its loss or, if not supported, hinge."""
    settings, task, z = model.settings, model.task, train.x
    loss = build_loss(settings.loss, "crammer_singer", task)
    if not isinstance(loss.l, SUPPORTED):
        loss = build_loss(None, "crammer_singer", task)
    y, w = task.targets(train.y).to(z), None if train.weight is None else train.weight.numpy()
    problem = Problem(z, y, model.kernel, settings.seed, task=task, loss=loss, weights=w)
    svc: Any = for_engine(TORCH, SVC(lam))
    return svc.solve(problem, z)


def _variance(model: NSVM, z: Float[Tensor, "p n"]) -> float:
    """Return the variance of the samples under the kernel: the mean of K(z, z) minus the mean of K(z, z')."""
    K_zz = model.kernel(z[:MOST_IN_MATRIX], z[:MOST_IN_MATRIX]).double()
    return float((K_zz.diagonal().mean() - K_zz.mean()).clamp_min(1e-6))  # smaller values are rounding errors


def better(errors: Float[Tensor, " p"], other_errors: Float[Tensor, " p"]) -> bool:
    """Return whether a model has significantly smaller errors than a second model on the same samples.

    For classes, this is McNemar's test on the samples that exactly one of the models classifies correctly.
    """
    d = other_errors - errors
    return float(d.sum()) > STANDARD_ERRORS * math.sqrt(float(d.square().sum()))


def overfitted(train: Float[Tensor, " p"], held_out: Float[Tensor, " q"]) -> bool:
    """Return whether errors on held-out samples are significantly larger than on training samples."""
    variance = sum(float(e.var(correction=0)) / len(e) for e in (train, held_out))
    return float(held_out.mean() - train.mean()) > STANDARD_ERRORS * math.sqrt(variance)


VERDICTS = {
    "worse than the initial features": "on {held_out}, the score of an exact SVM is {refit} with the trained "
    "features, but {frozen} with the initial features; lower optimizer.lr, or set optimizer.weight_decay or "
    "penalties",
    "identity-like kernel": "the distance of the kernel matrix from the identity is {distance_identity:.2g}, "
    "so the SVM can fit any labels; its score is {train} on {fitted}, but {test} on {held_out}; lower "
    "kernel.gamma or network.scale or, if theta is trained, set penalties.identity",
    "constant kernel": "the distance of the kernel matrix from all ones is {distance_ones:.2g}; the score on "
    "{held_out} is {test}, compared with {guess} for one answer for all samples and {rescaled} for a "
    "rescaled kernel; raise kernel.gamma or network.scale or, if theta is trained, set penalties.ones",
    "frozen features": "training has not changed the features; the score on {held_out} is {test}, and "
    "{frozen} for an exact SVM on the same features; to learn features, raise optimizer.lr",
    "overfitted": "the score is {train} on {fitted}, but {test} on {held_out}, where one answer for all "
    "samples scores {guess}; raise algorithm.lam, lower kernel.gamma or, if theta is trained, set penalties",
    "no better than one answer for all": "the score on {held_out} is {test}, and {guess} for one answer for "
    "all samples, so the difference may be due to chance; the score on {fitted} is {train}; an exact SVM on "
    "the same features scores {refit} on {held_out}",
}
"""The reason for each verdict except ``healthy``, with advice."""


def verdict(figures: Mapping[str, Any]) -> dict[str, str]:
    """Return the worst problem (``verdict``), and a sentence with the reason and its values (``why``)."""
    scores = {name: figures[f"{name}_{figures['metric']}"] for name in SCORES}
    name = _worst(figures, scores)
    healthy = "the score on {held_out} is {test}"
    if _much_better(scores, "refit", "test"):
        healthy += ", but {refit} for an exact SVM on the same features; train for more steps"
    elif scores["frozen"] is not None:
        healthy += "; an exact SVM on {fitted} scores {refit} with the trained features, {frozen} with the "
        healthy += "initial features"
    texts = {name: "undefined" if score is None else f"{score:.4f}" for name, score in scores.items()}
    why = VERDICTS.get(name, healthy).format(**figures, **texts, **sample_counts(figures))
    return {"verdict": name, "why": why}


def _worst(figures: Mapping[str, Any], scores: Mapping[str, float | None]) -> str:
    is_svm = figures["support_vectors"] is not None
    # k samples in C classes of identical samples are also near the identity, but have entropy log C / log k
    is_orthogonal = figures["distance_identity"] < EXTREME and figures["entropy"] > 0.9
    is_unfinished = _much_better(scores, "refit", "test")
    is_useless = not figures["beats_guess"] and not is_unfinished
    # a matrix near all ones is no problem if the model or an exact SVM uses its small differences
    is_too_flat = all(_much_better(scores, "rescaled", other) for other in ("test", "refit"))
    changes = [figures[name] for name in ("feature_change", "theta_change") if figures[name] is not None]
    if figures["worse_features"]:
        return "worse than the initial features"
    if is_svm and is_orthogonal and figures["overfitted"] and _much_better(scores, "train", "test"):
        return "identity-like kernel"
    if is_svm and figures["distance_ones"] < EXTREME and (is_useless or is_too_flat):
        return "constant kernel"
    if changes and changes[0] < 1e-3:
        return "frozen features"
    if figures["overfitted"] and _much_better(scores, "train", "test", 0.5) and not is_unfinished:
        return "overfitted"
    return "healthy" if figures["beats_guess"] else "no better than one answer for all"


def _much_better(scores: Mapping[str, float | None], one: str, other: str, much: float = 0.1) -> bool:
    """Return whether score ``one`` exceeds score ``other`` by more than ``much`` times (1 - ``guess``)."""
    a, b, guess = scores[one], scores[other], scores["guess"]
    return a is not None and b is not None and guess is not None and a - b > much * (1 - guess)
