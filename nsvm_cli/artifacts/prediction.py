"""Predictions of a saved model for samples without labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nsvm_cli.datasets.tables import parse_separator
from nsvm_cli.datasets.unlabelled import Block, blocks
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.tasks import Classification

Predictions = dict[str, list[Any]]


def predictions(model: NSVM, path: Path, separator: str | None = None) -> Iterator[Predictions]:
    """Yield the model's predictions for samples (see ``datasets.unlabelled.blocks``), block by block.

    The columns are ``prediction``, a class or a target, and for classes the ``score`` g(x), which is positive
    for the second of two, or a ``score CLASS`` for each of more; a calibrated model adds a
    ``probability_CLASS`` for each class. For a folder there is also ``file``.

    Args:
        model: the model.
        path: the file or folder.
        separator: the separator of the cells of a table; None for that of the table that the model was
            trained on, or a tab for a ``.tsv`` file.

    Raises:
        InputError: the samples are missing or damaged, or do not match the model.
        RunError: a decision value is not finite.
    """
    if separator is None:
        trained_on = str(model.settings.dataset.get("separator", ","))
        separator = "\t" if ".tsv" in path.suffixes else trained_on
    facts = model.facts
    separator = parse_separator(separator)
    for block in blocks(path, facts.shape, facts.encoder, separator, len(facts.classes)):
        yield _columns(model, block)


def _columns(model: NSVM, block: Block) -> Predictions:
    task = model.task
    g = model.decision_function(block.x).cpu()
    decided = task.decide(g).numpy()
    columns: Predictions = {} if block.files is None else {"file": [*block.files]}
    if not isinstance(task, Classification):
        return columns | {"prediction": decided.tolist()}
    columns["prediction"] = [task.classes[int(r)] for r in task.index(decided)]
    scores = {"score": g} if g.ndim == 1 else {f"score {c}": g[:, r] for r, c in enumerate(task.classes)}
    if (p := model.probabilities(g)) is not None:
        scores |= {f"probability_{c}": p[:, r] for r, c in enumerate(task.classes)}
    return columns | {name: values.tolist() for name, values in scores.items()}
