"""Evaluation of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nsvm_cli.config.settings import Section, code_of
from nsvm_cli.datasets import Data, Split, load_data
from nsvm_cli.datasets.encoding import ID
from nsvm_cli.errors import InputError
from nsvm_cli.models.nsvm import NSVM, Facts
from nsvm_cli.output import Say
from nsvm_cli.trainers import TRAINERS


def evaluate_model(
    file: Path, model: NSVM, split: str | None, dataset: Section | None, changes: Section, say: Say = str
) -> dict[str, Any]:
    """Return the scores of a model on one split of a data set.

    Args:
        split: ``test``, ``train``, ``validation`` or ``all``; None for what its run was evaluated on.
        dataset: another data set, as a ``dataset:`` section; None for the run's own.
        changes: settings that override those of the data set.

    Raises:
        InputError: the data are missing or damaged, or do not match the model.
    """
    settings, facts = model.settings, model.facts
    section = {**(dataset or settings.dataset), **changes}
    for other in {"test_path", "validation_path"} - {*changes} if "path" in changes else ():
        section.pop(other, None)  # it belongs to the table that is replaced
    data = data_for(model, section)
    own = settings.dataset.get("validation") or settings.dataset.get("validation_path")
    name = split or ("validation" if own else "test")
    chosen = checked_split(facts, data, name)
    svm = TRAINERS[settings.algorithm["name"]].trains_svm
    for remark in (*data.samples.remarks, *_remarks(facts, data), *data.unseen):
        say(remark)
    if facts.plugins_sha256 not in (None, code_of(settings)):
        say("the plugins, or their code, are not those of training: the scores may be those of another model")
    if split is None and data.samples.official_test is None and data.samples.sha256 != facts.sha256:
        whole = data.splits.sizes["all"]
        say(f"scoring {len(chosen)} of {whole} samples, the {name} set of other data; --split all takes all")
    return {
        "checkpoint": str(file),
        "algorithm": settings.algorithm["name"],
        "dataset": (dataset or settings.dataset)["name"],
        "split": name,
        "task": settings.task,
        **model.score(chosen.x, chosen.y),
        "samples": len(chosen),
        "support_vectors": len(model.expansion.alpha) if svm else None,
        "parameters": model.parameters,
        "theta_change": facts.theta_change,
        "feature_change": facts.feature_change,
        **({"kernel_parameters": learnt} if (learnt := model.kernel_parameters) else {}),
        "steps": facts.steps,
        "seed": settings.seed,
        "classes": list(facts.classes),
        "source": data.samples.source,
        "sha256": data.samples.sha256,
        "same_data": data.samples.sha256 == facts.sha256,
    }


def data_for(model: NSVM, section: Section) -> Data:
    """Return the data that a ``dataset:`` section names, in the form that a model takes."""
    s, facts = model.settings, model.facts
    return load_data(section, s.seed, s.task, s.memory_budget, facts.task, facts.encoder)


def checked_split(facts: Facts, data: Data, split: str) -> Split:
    """Return a split of the data.

    Raises:
        InputError: it is empty, or does not match the model.
    """
    chosen, source = data.splits[split], data.samples.source
    if len(chosen) == 0:
        raise InputError(f"--split {split}: {source} has no {split} samples with these settings")
    if (shape := tuple(chosen.x.shape[1:])) != facts.shape:
        raise InputError(f"the model expects samples of shape {facts.shape}, {source} has {shape}")
    if data.task != facts.task:
        theirs, ours = " from ".join(facts.classes), ", ".join(data.task.classes)
        raise InputError(f"the model tells {theirs}, {source} has {ours}")
    return chosen


def _remarks(facts: Facts, data: Data) -> list[str]:
    """Return lines about the columns of the data that the model does not know."""
    if facts.columns is not None and data.columns is not None:
        ignored = [column.name for column in data.columns if column.kind == ID]
        return [f"ignoring columns that the model was not trained on: {', '.join(ignored)}"] * bool(ignored)
    if (facts.columns is None and data.columns is None) or data.samples.sha256 == facts.sha256:
        return []
    which = "the model file" if facts.columns is None else data.samples.source
    return [f"{which} does not name its columns: they are matched by their order"]
