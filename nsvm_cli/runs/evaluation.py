"""Judging a trained model that comes from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nsvm_cli.config.settings import Section
from nsvm_cli.datasets import Data, Split, load_data
from nsvm_cli.errors import InputError
from nsvm_cli.runs.model_file import SavedModel, find_model_file, load_model


def evaluate_model(
    path: str | Path, split: str | None, runtime: Mapping[str, Any], dataset: Section | None, changes: Section
) -> dict[str, Any]:
    """Accuracy and errors of the model in ``path`` on one split of a data set.

    Args:
        path: a run directory or a checkpoint file.
        split: ``test``, ``train``, ``validation`` or ``all``; None for what its run was judged on.
        runtime: ``device`` and ``threads``, where they should differ from the run's.
        dataset: another data set, as a ``dataset:`` section; None for the run's own.
        changes: settings that replace those of this section.

    Raises:
        InputError: the checkpoint or the data are missing, damaged, or do not fit together.
    """
    file = find_model_file(path)
    checkpoint = load_model(file, runtime)
    settings = checkpoint.settings
    data = load_data({**(dataset or settings.dataset), **changes}, settings.seed)
    name = split or ("validation" if settings.dataset.get("validation") else "test")
    part = _fitting(checkpoint, data, name)
    errors = checkpoint.model.errors(part.x, part.y)
    return {
        "checkpoint": str(file),
        "algorithm": settings.algorithm["name"],
        "dataset": (dataset or settings.dataset)["name"],
        "split": name,
        "accuracy": 1 - errors / len(part),
        "errors": errors,
        "samples": len(part),
        "support_vectors": len(checkpoint.model.expansion.alpha),
        "steps": checkpoint.facts.steps,
        "seed": settings.seed,
        "classes": list(checkpoint.facts.classes),
        "source": data.source,
        "sha256": data.sha256,
        "same_data": data.sha256 == checkpoint.facts.sha256,
    }


def _fitting(checkpoint: SavedModel, data: Data, split: str) -> Split:
    """That part of the data, if it has samples and is what the model was made for."""
    part, facts = data.splits[split], checkpoint.facts
    if len(part) == 0:
        raise InputError(f"split={split}: {data.source} has no {split} samples with these settings")
    if (shape := tuple(part.x.shape[1:])) != facts.shape:
        raise InputError(f"the model expects samples of shape {facts.shape}, {data.source} has {shape}")
    if data.classes != facts.classes:
        raise InputError(
            f"the model tells {' from '.join(facts.classes)}, {data.source} has {', '.join(data.classes)}"
        )
    return part
