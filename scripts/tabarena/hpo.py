"""The hyperparameters of ``NSVMModel`` that TabArena searches: settings of nsvm."""

from __future__ import annotations

from autogluon.common.space import Categorical, Real

from tabarena.models.nsvm.model import NSVMModel
from tabarena.utils.config_utils import ConfigGenerator

SEARCH_SPACE = {
    "algorithm.loss": Categorical("leave_one_out", "squared"),
    "network.dropout": Real(0.0, 0.4),
    "kernel.gamma": Real(1.0, 16.0, log=True),
    "optimizer.lr": Real(0.1, 2.0, log=True),
    "optimizer.weight_decay": Real(1e-6, 1e-2, log=True),
    "dataset.max_codes": Categorical(12, 0),
}

gen_nsvm = ConfigGenerator(model_cls=NSVMModel, manual_configs=[{}], search_space=SEARCH_SPACE)
