"""Loading and evaluating the models of finished and unfinished runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nsvm_cli.artifacts.model_file import expect_tensors, load_model, within_means
from nsvm_cli.config.settings import Section, code_of, parse_settings, with_values
from nsvm_cli.datasets import Data, Split, load_data
from nsvm_cli.datasets.base import ARRAYS
from nsvm_cli.datasets.encoding import ID
from nsvm_cli.errors import InputError
from nsvm_cli.models.nsvm import NSVM, ModelMetadata
from nsvm_cli.output import say
from nsvm_cli.runs.checkpoint import KIND, Checkpoint, newest_intact, restore_state, with_engine_of
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.storage import tensor_file
from nsvm_cli.storage.run_directory import CONFIG, checkpoints_in, read_config
from nsvm_cli.storage.tensor_file import unusable
from nsvm_cli.trainers import TRAINERS


class NoModelYetError(InputError):
    """Raised for a checkpoint of Part 1 of Algorithm 4, which contains no SVM yet."""


def open_model(path: str | Path, runtime: Mapping[str, Any] | None = None) -> tuple[Path, NSVM]:
    """Return the path of a trained model's file, and the model. The file may come from an untrusted source.

    Args:
        path: a model file, a checkpoint or a run directory. If the run has no model file yet, the model is
            taken from its newest intact checkpoint.
        runtime: settings that override the settings in the file (see ``load_model``).

    Raises:
        NoModelYetError: the checkpoint contains no SVM.
        InputError: the file, or the data of a checkpoint, are missing, damaged or inconsistent.
    """
    path, runtime = Path(path), runtime or {}
    final = path / "final.safetensors" if path.is_dir() else path
    unfinished = path.is_dir() and not final.is_file()
    if not unfinished:
        try:
            tensor_file.read(final, KIND)
        except InputError:  # it is not a checkpoint, or load_model says what is wrong
            return final, load_model(final, runtime)
    newest = newest_intact(checkpoints_in(path) if unfinished else [final])
    if newest is None:
        if (path / CONFIG).is_file():
            expect_tensors(read_config(path))
        raise InputError(f"{path} has no {final.name}: expected a run with this file or a checkpoint")
    return newest[0], _model_of(*newest, runtime)


def load_trained(run: Path, runtime: Mapping[str, Any]) -> tuple[NSVM, Data]:
    """Return the model of a run (see ``open_model``) and its data. Raise an InputError on a mismatch."""
    _, model = open_model(run, runtime)
    if model.metadata.source == ARRAYS:
        raise InputError(
            f"{run} was saved by an estimator, so the arrays on which it was trained are not available; use "
            "a model that was trained with nsvm train"
        )
    data = data_for(model, model.settings.dataset)
    _expect_same(data, model.metadata.sha256)
    checked_split(model.metadata, data, data.splits.held_out)
    i, m = model.expansion.i, data.splits.sizes["train"]
    if i is not None and len(i) and (last := int(i.max())) >= m:
        raise InputError(f"the model file refers to training sample {last}, but the data have only {m}")
    return model, data


def _model_of(file: Path, checkpoint: Checkpoint, runtime: Mapping[str, Any]) -> NSVM:
    expect_tensors(checkpoint.settings)
    # the engine of the checkpoint is selected below; its logger and callbacks are not used
    means = {"engine": "auto", "logger": {"name": "none"}, "callbacks": [], **runtime}
    settings = within_means(parse_settings(with_values(checkpoint.settings, checkpoint.chosen)), means)
    e = with_engine_of(checkpoint, prepare(settings))
    _expect_same(e.data, checkpoint.environment.get("data"), f"{file}: ")
    state = restore_state(e, checkpoint)
    step = f"step {state.t} of {e.trainer.total}"
    if not (e.trainer.parts[-1].chooses_steps or e.trainer.has_svm(state)):
        raise NoModelYetError(f"{file} has no SVM yet, at {step}: expected a checkpoint of Part 2")
    say(f"{file}: using the model after {step}")
    try:
        model, _ = e.with_threshold(e.with_changes(e.calibrated(e.model(state))))
        return model.with_metadata(plugins_sha256=checkpoint.environment.get("plugins_sha256"))
    except ValueError as error:  # theta may be finite, but not its norm
        raise unusable(file, error) from None


def _expect_same(data: Data, sha256: str | None, where: str = "") -> None:
    if data.samples.sha256 != sha256:
        raise InputError(
            f"{where}{data.samples.source} or its test set has changed since the run: restore the data"
        )


def evaluate_model(
    file: Path, model: NSVM, split: str | None, dataset: Section | None, changes: Section
) -> dict[str, Any]:
    """Return the scores of a model on one split of a data set.

    Args:
        split: ``test``, ``train``, ``validation`` or ``all``. The default is the validation set if the data
            have one, otherwise the test set.
        dataset: the ``dataset:`` section of a different data set; None for the data set of the run.
        changes: settings that override the settings of the data set.

    Raises:
        InputError: the data are missing or damaged, or do not match the model.
    """
    settings, metadata = model.settings, model.metadata
    if metadata.source == ARRAYS and dataset is None and "path" not in changes:
        needed = "dataset.path=FILE dataset.label=NAME --split all"
        raise InputError(f"{file} was saved by an estimator: to evaluate it on a table, add {needed}")
    section = {**(dataset or settings.dataset), **changes}
    for key in {"test_path", "validation_path"} - {*changes} if "path" in changes else ():
        section.pop(key, None)  # these files belong to the replaced table
    data = data_for(model, section)
    name = split or data.splits.held_out
    chosen = checked_split(metadata, data, name)
    svm = TRAINERS[settings.algorithm["name"]].trains_svm
    for remark in (*data.samples.remarks, *_column_remarks(metadata, data), *data.unseen):
        say(remark)
    if metadata.plugins_sha256 not in (None, code_of(settings)):
        say("the code of plugins has changed since training, so the scores may differ from earlier scores")
    if split is None and data.samples.official_test is None and data.samples.sha256 != metadata.sha256:
        whole = data.splits.sizes["all"]
        advice = "to evaluate on all samples, add --split all"
        say(f"evaluating on {len(chosen)} of {whole} samples, the {name} set of new data; {advice}")
    return {
        "checkpoint": str(file),
        "algorithm": settings.algorithm["name"],
        "dataset": (dataset or settings.dataset)["name"],
        "split": name,
        "task": settings.task,
        **model.score(chosen.x, chosen.y, chosen.weight),
        "samples": len(chosen),
        "support_vectors": len(model.expansion.alpha) if svm else None,
        "parameters": model.parameters,
        "theta_change": metadata.theta_change,
        "feature_change": metadata.feature_change,
        **({"kernel_parameters": learnt} if (learnt := model.kernel_parameters) else {}),
        "steps": metadata.steps,
        "seed": settings.seed,
        "classes": list(metadata.classes),
        "source": data.samples.source,
        "sha256": data.samples.sha256,
        "same_data": data.samples.sha256 == metadata.sha256,
    }


def data_for(model: NSVM, section: Section) -> Data:
    """Load the data set of a ``dataset:`` section, encoded for a model."""
    s, metadata = model.settings, model.metadata
    return load_data(section, s.seed, s.task, s.memory_budget, metadata.task, metadata.encoder)


def checked_split(metadata: ModelMetadata, data: Data, split: str) -> Split:
    """Return a split of the data. Raise an InputError if the split is empty or does not match the model."""
    chosen, source = data.splits[split], data.samples.source
    if len(chosen) == 0:
        raise InputError(f"--split {split}: {source} has no {split} samples with these settings")
    if (shape := tuple(chosen.x.shape[1:])) != metadata.shape:
        raise InputError(
            f"the model expects samples of shape {metadata.shape}, but {source} has samples of shape {shape}"
        )
    if data.task != metadata.task:
        known, found = ", ".join(metadata.classes), ", ".join(data.task.classes)
        raise InputError(f"the model has the classes {known}, but {source} has the classes {found}")
    return chosen


def _column_remarks(metadata: ModelMetadata, data: Data) -> list[str]:
    """Return remarks on ignored columns, and on columns that are matched by their order."""
    if metadata.columns is not None and data.columns is not None:
        ignored = [column.name for column in data.columns if column.kind == ID]
        return [f"ignoring columns that the model was not trained on: {', '.join(ignored)}"] * bool(ignored)
    if (metadata.columns is None and data.columns is None) or data.samples.sha256 == metadata.sha256:
        return []
    which = "the model file" if metadata.columns is None else data.samples.source
    return [f"{which} has no column names: columns are matched by position"]
