"""nsvm's ``algorithm=auto`` as a model of AutoGluon, which TabArena runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from autogluon.core.models import AbstractModel

SHARE = 0.5
"""The share of the time limit for trying candidates; the rest is for the final training."""

METRICS = ("roc_auc", "accuracy", "balanced_accuracy")
"""Metrics by which candidates are chosen, with the same names in nsvm and in AutoGluon."""


class NSVMModel(AbstractModel):  # type: ignore[misc]
    """A neural SVM. Hyperparameters are settings of nsvm, such as ``{"algorithm.candidates": 12}``.

    The validation set calibrates the probabilities. Without one, a tenth of the samples is held out for this.
    """

    ag_key = "NSVM"
    ag_name = "NSVM"
    seed_name = "random_state"

    def _fit(
        self,
        X: pd.DataFrame,
        y: pd.Series,
        X_val: pd.DataFrame | None = None,
        y_val: pd.Series | None = None,
        time_limit: float | None = None,
        num_cpus: int = 1,
        sample_weight: Any = None,
        **_: Any,
    ) -> None:
        from nsvm_cli import NSVMClassifier, NSVMRegressor

        settings = self._get_model_params()
        seed = settings.pop(self.seed_name, 0)
        if time_limit is not None:
            settings.setdefault("algorithm.time_limit", SHARE * time_limit)
        if self.problem_type == "regression":
            estimator = NSVMRegressor
        else:
            estimator = NSVMClassifier
            if X_val is None:
                settings.setdefault("dataset.validation", 0.1)
            if self.eval_metric.name in METRICS:
                settings.setdefault("metric", self.eval_metric.name)
        X = self.preprocess(X, is_train=True)
        held_out = None if X_val is None else self.preprocess(X_val)
        self.model = estimator(settings=settings, random_state=seed, threads=num_cpus)
        y_val = None if y_val is None else np.asarray(y_val)
        self.model.fit(X, np.asarray(y), sample_weight, X_val=held_out, y_val=y_val)

    def _preprocess(self, X: pd.DataFrame, **kwargs: Any) -> pd.DataFrame:
        """Return categories as text, which nsvm encodes."""
        X = super()._preprocess(X, **kwargs)
        categories = X.select_dtypes("category").columns
        return X.astype(dict.fromkeys(categories, object))

    def _get_default_resources(self) -> tuple[int, int]:
        return 1, 0

    @classmethod
    def supported_problem_types(cls) -> list[str]:
        return ["binary", "multiclass", "regression"]
