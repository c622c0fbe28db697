"""The decision function g, probabilities of classes, and the trained model."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import pydantic
import torch
from jaxtyping import Bool, Float, Float64, Int64
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor, nn

from nsvm_cli.config.registry import STRICT, NonNegative, OneLine, Positive, shown
from nsvm_cli.config.settings import Settings
from nsvm_cli.datasets.base import RawSamples, Rows
from nsvm_cli.datasets.encoding import MOST_CLASSES, Columns, Name, TableEncoder
from nsvm_cli.datasets.scaling import Scaled, Scaling
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.memory import rows_at_a_time
from nsvm_cli.metrics import own_metrics
from nsvm_cli.models.composed_kernels import learnt_values
from nsvm_cli.models.feature_map import at_start, features, theta_of
from nsvm_cli.models.kernels import Kernel, kernel_sums
from nsvm_cli.tasks import Regression, Task, task_for

ROUNDING = 1e-3
"""Rounding error of decision values, relative to a margin of 1, above which float64 is used."""


@dataclass(frozen=True)
class Expansion(OneLine):
    """The decision function g, given by the non-zero terms of f in the RKHS of K (paper, Section 4)::

        g(x) = 1/scale sum_s alpha_s K(z_s, F_theta(x)) + bias

    ``alpha`` is the paper's alpha_s y_s. For C classes, each term has C numbers or, with ``one_vs_one``, a
    number for each pair of classes. ``scale`` is lambda t after step t. ``i`` contains the indices in the
    training set of the samples with features z_s, or is None for other z_s.
    """

    z: Float[Tensor, "s n"]
    alpha: Float[Tensor, " s *outputs"]
    scale: float
    bias: float | Float[Tensor, " outputs"] = 0.0
    one_vs_one: bool = False
    i: Int64[Tensor, " s"] | None = None

    def __post_init__(self) -> None:
        if self.z.dtype != self.alpha.dtype:
            raise ValueError(f"expected z and alpha of one dtype, got {self.z.dtype} and {self.alpha.dtype}")

    def without_zeros(self) -> Expansion:
        """Return the same function without the terms whose alpha is 0."""
        rows = self.alpha != 0 if self.alpha.ndim == 1 else (self.alpha != 0).any(-1)
        i = None if self.i is None else self.i[rows]
        return self if bool(rows.all()) else replace(self, z=self.z[rows], alpha=self.alpha[rows], i=i)

    @cached_property
    def exact(self) -> Expansion:
        """The same function, in float64 if the rounding errors of g could exceed ``ROUNDING``."""
        # for kernel values up to 1; the samples to predict are not used, so that batches do not matter
        eps = torch.finfo(self.z.dtype).eps
        if not float(eps / self.scale * self.alpha.norm(dim=0).max()) > ROUNDING:
            return self
        return replace(self, z=self.z.double(), alpha=self.alpha.double())

    def __call__(self, K: Kernel, z: Float[Tensor, "p n"]) -> Float[Tensor, " p *outputs"]:
        f = self.exact
        return f.of_sums(kernel_sums(K, z.to(f.z.dtype), f.z, f.alpha)).to(z.dtype)

    def of_sums(self, sums: Float[Tensor, " p *terms"]) -> Float[Tensor, " p *outputs"]:
        """Return the decision values, given sum_s alpha_s K(z_s, F_theta(x)) for each x."""
        g = sums / self.scale + self.bias
        return margins(g) if self.one_vs_one else g


def rivals(C: int) -> Int64[Tensor, "C rivals"]:
    """Return for each class r the columns of [g, -g] with the margins of r against the other classes.

    The columns of g are the pairs (r, s), r < s, where g > 0 means class r.
    """
    pairs = np.concatenate(np.triu_indices(C, 1))
    return torch.from_numpy(pairs.argsort(kind="stable").reshape(C, C - 1))  # ONNX has no stable sort


def margins(g: Float[Tensor, "p pairs"]) -> Float[Tensor, "p C"]:
    """Return the smallest margin of each class against another class.

    A class that wins against all others has the only positive margin.
    """
    C = round((1 + math.sqrt(1 + 8 * g.shape[1])) / 2)
    return torch.cat([g, -g], 1)[:, rivals(C).to(g.device)].amin(2)


Sigmoids = Float[Tensor, "2 *outputs"]
"""The coefficients a and b of P(g) = 1 / (1 + exp(a g + b)) for each decision value (Platt, 1999)."""


def fit_sigmoids(g: Float[Tensor, " p *outputs"], positive: Bool[Tensor, " p *outputs"]) -> Sigmoids:
    """Return the maximum-likelihood sigmoids for the probability that samples are ``positive``.

    The targets (m_1 + 1) / (m_1 + 2) of the m_1 positive samples and 1 / (m_0 + 2) of the m_0 negative
    samples keep probabilities away from 0 and 1 (Lin, Lin and Weng, 2007).
    """
    columns = zip(g.double().reshape(len(g), -1).T, positive.reshape(len(g), -1).T, strict=True)
    fitted = [_fit(column.numpy(), is_positive.numpy()) for column, is_positive in columns]
    return torch.from_numpy(np.stack(fitted, 1)).reshape(2, *g.shape[1:])


def _fit(g: np.ndarray, positive: np.ndarray) -> np.ndarray:
    from scipy.optimize import minimize  # slow to import
    from scipy.special import expit

    m_1 = np.count_nonzero(positive)
    m_0 = len(g) - m_1
    target = np.where(positive, (m_1 + 1) / (m_1 + 2), 1 / (m_0 + 2))
    size = np.abs(g).max() or 1.0
    inputs = np.stack([g / size, np.ones(len(g))])  # scaled to 1, for an accurate minimum

    def loss_and_gradient(ab: np.ndarray) -> tuple[Any, Any]:
        z = ab @ inputs
        return (np.logaddexp(0, z) - (1 - target) * z).sum(), inputs @ (target - expit(-z))

    start = [0.0, np.log((m_0 + 1) / (m_1 + 1))]
    precision = {"ftol": np.finfo(np.float64).eps, "gtol": 1e-10}
    minimum = minimize(loss_and_gradient, start, method="L-BFGS-B", jac=True, options=precision)
    return np.asarray(minimum.x / [size, 1])


def probabilities(sigmoids: Sigmoids, g: Float[Tensor, " p *outputs"]) -> Float[Tensor, "p C"]:
    """Return the probabilities of classes: P(g) of the second class or, for C > 2 classes, normalised P(g_r).

    The most probable class may differ from the prediction, since P(g) = 1/2 at g = -b/a, not at 0.
    """
    a, b = sigmoids
    p = torch.sigmoid(-(a * g.to(a) + b))
    if p.ndim == 1:
        return torch.stack([1 - p, p], 1)
    total = p.sum(1, keepdim=True)
    return torch.where(total > 0, p / total, 1 / p.shape[1])


def probability_scores(p: Float[Tensor, "p C"], positive: Bool[Tensor, " p *outputs"]) -> dict[str, float]:
    """Return scikit-learn's ``log_loss`` and ``brier_score``."""
    label = positive if positive.ndim == 2 else torch.stack([~positive, positive], 1)
    divisor = 2 if p.shape[1] == 2 else 1  # with two classes, the errors of both are equal
    return {
        "log_loss": float(-p[label].clamp_min(torch.finfo(p.dtype).eps).log().mean()),
        "brier_score": float((p - label.to(p)).square().sum(1).mean() / divisor),
    }


SAMPLE_VALUES = 2**22
"""Maximum number of values in a sample."""


SHA256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STRICT)
class ModelMetadata(OneLine):
    """The metadata of a trained model, its data and its training, which a model file stores as JSON.

    Attributes:
        scale, bias, one_vs_one: see ``Expansion``. For C > 2 classes, the bias is a tensor in the file.
        shape: the shape of one sample.
        absent: the classes without training samples, which are never predicted.
        sha256, plugins_sha256: checksums of the training data and of the user's modules.
        target: the mean and standard deviation of the targets for regression, which has no classes.
        theta_change, feature_change: see ``nsvm_cli.models.objectives``.
    """

    scale: Positive
    bias: float
    shape: Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=8)]
    classes: Annotated[tuple[Name, ...], Field(max_length=MOST_CLASSES)]
    absent: Annotated[tuple[Name, ...], Field(max_length=MOST_CLASSES)] = ()
    steps: NonNegativeInt
    source: Name
    sha256: SHA256
    columns: Columns | None = None
    one_vs_one: bool = False
    target: tuple[float, Positive] | None = None
    theta_change: NonNegative | None = None
    feature_change: Annotated[float, Field(ge=0, le=2)] | None = None
    plugins_sha256: SHA256 | None = None

    def __post_init__(self) -> None:
        if (values := math.prod(self.shape)) > SAMPLE_VALUES:
            raise ValueError(f"expected samples of at most {SAMPLE_VALUES} values, got {values}")
        if ((C := len(self.trained.classes)) < 2) == (self.target is None):
            raise ValueError(f"expected two or more classes, or a target, got {C} classes")
        if (encoder := self.encoder) and self.shape != (width := len(encoder.features),):
            raise ValueError(
                f"expected columns with features of shape {list(self.shape)}, got {width} features"
            )

    @property
    def encoder(self) -> TableEncoder | None:
        """The encoder of a table's cells as features, or None if the data are not a table."""
        return None if self.columns is None else TableEncoder(self.columns)

    @property
    def task(self) -> Task:
        return Regression(*self.target) if self.target else task_for(self.classes)

    @property
    def trained(self) -> Task:
        """The task for which the expansion has decision values, without the absent classes."""
        return self.task if self.target else task_for([c for c in self.classes if c not in self.absent])

    @property
    def outputs(self) -> tuple[int, ...]:
        """The shape of one row of alpha."""
        outputs = self.trained.outputs
        return (math.comb(outputs[0], 2),) if outputs and self.one_vs_one else outputs

    def fill_absent(self, g: Float[Tensor, " p *trained"]) -> Float[Tensor, " p *outputs"]:
        """Return g with values for absent classes, which are below the values of all trained classes."""
        if self.trained == self.task:
            return g
        if g.ndim == 1:
            g = torch.stack([-g - (g == 0).to(g), g], -1)  # at 0, the second of two classes is predicted
        least, columns = -1 - 2 * g.abs().amax(-1), iter(g.unbind(-1))
        return torch.stack([least if c in self.absent else next(columns) for c in self.classes], -1)


OUTPUT_BYTES = 64
"""Number of bytes for a decision value and the results that are computed from it."""


@dataclass(frozen=True, repr=False)
class NSVM:
    """A trained neural support vector machine, which makes predictions for raw samples.

    ``settings`` are the settings of the run. ``sigmoids`` is None unless the model is calibrated.
    """

    settings: Settings
    metadata: ModelMetadata
    scaling: Scaling
    network: nn.Module
    kernel: Kernel
    expansion: Expansion
    sigmoids: Sigmoids | None = None

    def __repr__(self) -> str:
        parts = ("algorithm", "network", "kernel")
        names = ", ".join(f"{part}={getattr(self.settings, part)['name']}" for part in parts)
        sizes = f"{len(self.expansion.alpha)} support vectors, {self.metadata.steps} steps"
        return f"<NSVM: {names}, {sizes}, samples of shape {self.metadata.shape}>"

    @property
    def task(self) -> Task:
        return self.metadata.task

    @property
    def parameters(self) -> int:
        """The number of parameters in theta."""
        return sum(p.numel() for p in theta_of(self.network, self.kernel).values())

    @property
    def kernel_parameters(self) -> dict[str, Any]:
        """The learnt settings and other parameters of the kernel by name, as numbers or lists."""
        return {name: value.tolist() for name, value in learnt_values(self.kernel).items()}

    def features(self, x: RawSamples) -> Float[Tensor, "p n"]:
        """Return F_theta(x) for raw samples of shape ``(p, *metadata.shape)``, which are floats or bytes.

        A RunError is raised if a feature is not finite.
        """
        x, like = self._samples(x), self.expansion.z
        z = features(self.network, Scaled(x, self.scaling, like.dtype, like.device))
        if not z.isfinite().all():
            raise RunError("the features are not finite; check the samples")
        return z

    def decision_function(self, x: RawSamples) -> Float[Tensor, " p *outputs"]:
        """Return g(x) for raw samples. Raise a RunError if a decision value is not finite."""
        x = self._samples(x)
        g = self.expansion.z.new_empty(len(x), *self.task.outputs)  # joining blocks would fragment memory
        for g_part, part in zip(g.split(self._rows), x.split(self._rows), strict=True):
            with torch.no_grad():
                g_part.copy_(self.metadata.fill_absent(self.expansion(self.kernel, self.features(part))))
        if not g.isfinite().all():
            advice = "check the samples, raise algorithm.lam, or use another kernel"
            raise RunError(f"the decision function is not finite; {advice}")
        return g

    @property
    def _rows(self) -> int:
        z, alpha = self.expansion.z, self.expansion.alpha
        return rows_at_a_time(max(z.shape[1] * z.element_size(), OUTPUT_BYTES * math.prod(alpha.shape[1:])))

    def predict(self, x: RawSamples) -> Tensor:
        """Return the predictions for raw samples: coded classes, or targets in the units of the data."""
        return self.task.decide(self.decision_function(x))

    def _samples(self, x: Any) -> RawSamples:
        """Return raw samples, which may be an array, as a tensor. Raise an InputError for other samples."""
        try:
            samples = x if isinstance(x, Rows) else torch.as_tensor(x)
        except (TypeError, ValueError, RuntimeError):
            raise InputError(f"X: expected an array or a tensor of numbers, got {shown(x)}") from None
        if (shape := tuple(samples.shape[1:])) != self.metadata.shape:
            raise InputError(f"X: expected samples of shape {self.metadata.shape}, got {shape}")
        if samples.dtype.is_complex:
            raise InputError("X: expected real numbers, got complex numbers")
        # bytes of more than one dimension are pixels, which are scaled to 0..1
        if samples.dtype == torch.bool or (samples.dtype == torch.uint8 and len(shape) < 2):
            return torch.as_tensor(samples[:]).double()
        return samples

    def before_training(self) -> NSVM:
        """Return a copy of the model with the initial theta, which the settings determine."""
        metadata, like = self.metadata, self.expansion.z
        network, K = at_start(self.settings, metadata.shape, metadata.trained.outputs, like)
        return replace(self, network=network, kernel=K)

    def with_metadata(self, **changes: Any) -> NSVM:
        """Return a copy of the model with changed metadata. Raise a ValueError for invalid metadata."""
        return replace(self, metadata=replace(self.metadata, **changes))

    def calibrated(self, x: RawSamples, y: Float[Tensor, " p"]) -> NSVM:
        """Return a copy of the model with probabilities, fitted to raw samples outside the training set."""
        return replace(self, sigmoids=fit_sigmoids(self.decision_function(x).cpu(), self._positive(y)))

    def with_threshold(self, t: float) -> NSVM:
        """Return a copy of the model with g - t instead of g, and unchanged probabilities."""
        bias, sigmoids = self.expansion.bias - t, self.sigmoids
        if sigmoids is not None:
            a, b = sigmoids
            sigmoids = torch.stack([a, b + a * t])
        expansion = replace(self.expansion, bias=bias)
        return replace(self.with_metadata(bias=bias), expansion=expansion, sigmoids=sigmoids)

    def _positive(self, y: Float[Tensor, " p"]) -> Bool[Tensor, " p *outputs"]:
        """Return which decision values should be positive for coded labels."""
        return self.task.code(y.cpu()) > 0

    def probabilities(self, g: Float[Tensor, " p *outputs"]) -> Float[Tensor, "p C"] | None:
        """Return the probability of each class, given g(x), or None if the model is not calibrated."""
        return None if self.sigmoids is None else probabilities(self.sigmoids, g.cpu())

    def score(
        self, x: RawSamples, y: Float[Tensor, " p"], weights: Float64[Tensor, " p"] | None = None
    ) -> dict[str, Any]:
        """Return the scores of predictions and probabilities for raw samples and their coded labels.

        ``weights`` are passed to the user's own metrics. All other scores ignore weights.
        """
        g = self.decision_function(x).cpu()
        p, w = self.probabilities(g), None if weights is None else weights.numpy()
        scores = scores_of(self.task, y.cpu(), g, p, w)
        return scores if p is None else scores | probability_scores(p, self._positive(y))


def scores_of(
    task: Task,
    y: Float[Tensor, " p"],
    g: Float[Tensor, " p *outputs"],
    p: Float[Tensor, "p C"] | None = None,
    weights: Float64[np.ndarray, " p"] | None = None,
) -> dict[str, Any]:
    """Return the scores of decision values g for coded labels y, with the user's own metrics.

    Without probabilities p, metrics of probabilities are absent.
    """
    decided = task.decide(g)
    scores = task.score(y, decided) | task.rank_scores(y.numpy(), g.numpy())
    if not (own := own_metrics(task.kind)):
        return scores
    true, predicted = (task.index(part).numpy() for part in (y, decided))
    given = {"labels": predicted, "decisions": g.numpy(), "probabilities": None if p is None else p.numpy()}
    for name, entry in own.items():
        if entry.function and given[entry.needs] is not None:
            value = entry.function(true, given[entry.needs], weights)
            try:
                value = math.nan if value is None else float(value)
            except (TypeError, ValueError):
                raise InputError(f"metric {name}: expected a number or None, got {shown(value)}") from None
            scores[name] = value if math.isfinite(value) else None
    return scores
