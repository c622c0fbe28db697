"""Baselines in addition to nsvm's own, as a plugin: ``plugins=[studies.baselines]``.

``l2_svm`` is the network with linear SVMs of Tang (2013). ``realmlp`` and ``xrfm`` have the default settings
of the package pytabkit, and require it; ``xrfm`` also requires the package xrfm. For both, add
``network=identity kernel=linear``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pydantic
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.torchvision_import import import_torchvision
from nsvm_cli.models.feature_map import Training
from nsvm_cli.models.kernels import Kernel
from nsvm_cli.models.nsvm import Expansion
from nsvm_cli.trainers import TRAINERS
from nsvm_cli.trainers.base import Problem, State
from nsvm_cli.trainers.cross_entropy import CrossEntropy
from nsvm_cli.trainers.direct import DirectSolver, TreeEnsemble


@TRAINERS.register("l2_svm")
class L2SVM(CrossEntropy):
    """Linear SVMs with squared hinge losses, one for each class, trained end to end (Tang 2013)."""

    def step(self, problem: Problem, state: State) -> None:
        t, outputs = state.t + 1, problem.task.outputs
        x_A, y_A = problem[state.sampler(t)]
        c_A = 2.0 * functional.one_hot(y_A.long(), outputs[0]) - 1 if outputs else y_A[:, None]

        def objective(F: Training, K: Kernel) -> Tensor:
            return (1 - c_A * F(x_A)).clamp(min=0).square().sum(1).mean()

        self.descend(problem, state, objective)
        state.t = t


def pytabkit_machine(name: str, seed: int, metric: str | None) -> Any:
    """Return an estimator of pytabkit with default settings, which validates by ``metric``."""
    import_torchvision("transforms")  # pytabkit imports it
    import pytabkit

    threads = torch.get_num_threads()
    return getattr(pytabkit, name)(random_state=seed, device="cpu", n_threads=threads, val_metric_name=metric)


@TRAINERS.register("realmlp")
@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class RealMLP(DirectSolver):
    """RealMLP (Holzmüller, Grinsztajn and Steinwart 2024), for classes."""

    trains_svm: ClassVar[bool] = False
    saves_model: ClassVar[bool] = False
    classifier: ClassVar[str] = "RealMLP_TD_Classifier"

    def solve(self, problem: Problem, z: Float[Tensor, "m n"]) -> Expansion:
        machine = pytabkit_machine(self.classifier, problem.seed % 2**32, "class_error")
        machine.fit(z.cpu().numpy(), problem.y.cpu().numpy())

        def decision_function(z: np.ndarray) -> np.ndarray:
            log_p = np.log(np.clip(machine.predict_proba(z.astype(np.float32)), 1e-30, 1))
            return log_p if problem.task.outputs else log_p[:, 1] - log_p[:, 0]

        machine.decision_function = decision_function
        return TreeEnsemble(z[:0], z.new_zeros(0, *problem.task.outputs), 1.0, trees=machine)


@TRAINERS.register("xrfm")
class XRFM(RealMLP):
    """xRFM, a kernel machine that learns a linear map of its inputs (Beaglehole et al. 2025), for classes."""

    classifier: ClassVar[str] = "XRFM_D_Classifier"
