"""The algorithms, by the names that ``algorithm=`` accepts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsvm_cli.config.registry import Registry, build
from nsvm_cli.trainers.alg1 import Alg1
from nsvm_cli.trainers.alg2 import Alg2
from nsvm_cli.trainers.alg3 import Alg3
from nsvm_cli.trainers.alg4 import Alg4
from nsvm_cli.trainers.base import Problem, State, Trainer
from nsvm_cli.trainers.cross_entropy import CrossEntropy
from nsvm_cli.trainers.direct import Majority
from nsvm_cli.trainers.linear_models import LinearSVM, Logistic
from nsvm_cli.trainers.linear_pegasos import LinearPegasos
from nsvm_cli.trainers.nystroem import Nystroem
from nsvm_cli.trainers.pegasos import Pegasos
from nsvm_cli.trainers.svc import SVC
from nsvm_cli.trainers.trees import Trees

__all__ = ["TRAINERS", "Problem", "State", "Trainer", "build_trainer"]

TRAINERS: Registry[type[Trainer[Any]]] = Registry("algorithm", Trainer)
TRAINERS |= {
    "pegasos": Pegasos,
    "linear_pegasos": LinearPegasos,
    "alg1": Alg1,
    "alg2": Alg2,
    "alg3": Alg3,
    "alg4": Alg4,
    "svc": SVC,
    "linear_svm": LinearSVM,
    "nystroem": Nystroem,
    "cross_entropy": CrossEntropy,
    "logistic": Logistic,
    "trees": Trees,
    "majority": Majority,
}


def build_trainer(settings: Mapping[str, Any]) -> Trainer[Any]:
    """Return the trainer that an ``algorithm:`` section names.

    Raises:
        InputError: the algorithm or one of its settings is wrong.
    """
    return build(TRAINERS, "algorithm", settings)
