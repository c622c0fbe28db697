"""Neural SVMs as scikit-learn estimators, with the training code of ``nsvm train``."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, check_X_y, validate_data

from nsvm_cli.artifacts.model_file import save_model
from nsvm_cli.compose.composition import compose_settings
from nsvm_cli.config.registry import OWN_PART, Instance, Registry, build, construct, fields_of, shown
from nsvm_cli.config.settings import Settings, parse_settings, plain, with_values
from nsvm_cli.datasets import Samples, Table, build_source, split_data
from nsvm_cli.datasets.base import ARRAYS, BLOCK_ROWS, as_float
from nsvm_cli.datasets.csv import tidied
from nsvm_cli.datasets.layout import Dialect, written_as
from nsvm_cli.errors import InputError, RunError, did_you_mean
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.output import saying
from nsvm_cli.parallel.device import own_threads
from nsvm_cli.runs.experiment import prepare
from nsvm_cli.runs.loop import Callback, OnLog
from nsvm_cli.runs.open_model import open_model
from nsvm_cli.tasks import encode
from nsvm_cli.terminal.progress import Progress

if TYPE_CHECKING:
    from typing import Self  # the type checks in tests reject it

SHORT = {
    "algorithm.lam": "lam",
    "algorithm.steps": "steps",
    "algorithm.batch_size": "batch_size",
    "kernel.gamma": "gamma",
    "optimizer.lr": "lr",
    "network.widths": "widths",
}
"""Settings of ``nsvm train`` that have a parameter of their own, with the name of that parameter."""

SAME_NAMES = ("dtype", "device", "engine", "threads", "class_weight")
"""Parameters with the same name as the setting of ``nsvm train`` that they set."""

PARTS = ("algorithm", "network", "kernel", "optimizer", "loss")
"""Parameters that select a part by name or as an object."""

EXTRA = (
    *("sampler", "penalties", "init", "freeze", "callbacks", "multiclass", "memory_budget"),
    *("validation", "metric", "keep", "log_every", "full_objective"),
)
"""Settings of ``nsvm train`` that can be set only in the parameter ``settings``."""

DATASET = (
    *("scaling", "validation", "drop", "include", "text", "max_codes", "missing", "decimal", "thousands"),
    "augment",
)
"""Settings of data sets that apply to arrays and data frames."""

APPLY = (*PARTS, *SAME_NAMES, *EXTRA, "seed", *(f"dataset.{key}" for key in DATASET))
"""The settings of ``nsvm train`` that apply to an estimator."""


@dataclass(eq=False, repr=False)
class _NSVM(BaseEstimator):  # type: ignore[misc]
    """Training is identical to ``nsvm train`` with the same settings.

    Args:
        algorithm, network, kernel, optimizer, loss: names as on the command line, or objects such as
            ``RBF(0.5)`` or an ``nn.Module``, which are copied before training. If the network or the kernel
            is None, it is the default of ``nsvm train dataset=csv`` with this algorithm. If the loss is None,
            it is the hinge loss or, for real targets, the epsilon-insensitive loss.
        lam, steps, batch_size, gamma, lr, widths: common settings. None selects the value in ``settings`` or,
            without such a value, the default of ``nsvm train dataset=csv`` with this algorithm.
        settings: further settings by name, such as ``{"algorithm.solver": "pegasos"}``. They may be settings
            of the five parts above, settings of data sets, such as ``dataset.scaling``, and ``sampler``,
            ``penalties``, ``init``, ``freeze``, ``callbacks``, ``multiclass``, ``memory_budget``,
            ``validation``, ``metric``, ``keep``, ``log_every`` and ``full_objective``. With
            ``dataset.validation``, samples are held out to calibrate probabilities.
        class_weight: the weights of classes, as in scikit-learn: "balanced" or a dictionary.
        callbacks: objects that observe training. They are called after the callbacks in ``settings``.
        verbose: whether ``fit`` shows progress, as bars in a notebook or terminal.
        random_state: an integer, which is the seed, or any other ``random_state`` of scikit-learn.
        dtype, device, engine, threads: the settings of ``nsvm train`` with these names.

    Attributes:
        model_: the trained model, ``nsvm_cli.models.nsvm.NSVM``.
        settings_: the settings with which the model was trained.
        search_: with ``auto`` or a grid, the candidate ``chosen``, and with ``auto`` all that were ``tried``.
        n_support_: the number of support vectors.
        kernel_parameters_: the learnt parameters of the kernel.
        n_features_in_, feature_names_in_: number and names of the features, as in scikit-learn.
    """

    _task: ClassVar[Literal["classification", "regression"]]

    algorithm: str | object = "auto"
    network: str | object | None = None
    kernel: str | object | None = None
    optimizer: str | object = "sgd"
    loss: str | object | None = None
    _: KW_ONLY
    lam: float | None = None
    steps: int | None = None
    batch_size: int | None = None
    gamma: float | None = None
    lr: float | None = None
    widths: Sequence[int] | None = None
    settings: Mapping[str, Any] | None = None
    class_weight: str | Mapping[Any, float] | None = None
    callbacks: Sequence[Callback] = ()
    verbose: bool = False
    random_state: Any = 0
    dtype: str = "float32"
    device: str = "auto"
    engine: str = "auto"
    threads: int | None = 1

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters and, if ``deep``, the parameters of objects, such as ``kernel__gamma``."""
        params: dict[str, Any] = super().get_params(deep)
        for part in PARTS if deep else ():
            params |= {f"{part}__{key}": value for key, value in (fields_of(params[part]) or {}).items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters. Setting a parameter of an object, such as ``kernel__gamma``, copies the object."""
        nested = {key: params.pop(key) for key in [*params] if "__" in key}
        super().set_params(**params)
        for key in [*nested]:
            part, _, name = key.partition("__")
            if part not in PARTS or hasattr(value := getattr(self, part), "set_params"):
                continue
            if not (settings := fields_of(value)):
                advice = f"pass an object with fields as {part}, or use settings={{'{part}.{name}': VALUE}}"
                raise InputError(f"{key} requires an object, but {part} is {shown(value)}; {advice}")
            new: dict[str, Any] = {"name": type(value).__name__, **settings, name: nested.pop(key)}
            with self._in_python():
                setattr(self, part, build({new["name"]: type(value)}, part, new))
        super().set_params(**nested)
        return self

    def _in_python_names(self, text: str) -> str:
        """Return a message in which settings of ``nsvm train`` are replaced by their names in Python."""

        def parameter(key: re.Match[str]) -> str:
            part = getattr(self, key[1])
            short = SHORT.get(f"{key[1]}.{key[2]}")
            if short and (isinstance(part, str | None) or getattr(self, short) is not None):
                return short
            return f"settings['{key[1]}.{key[2]}']" if isinstance(part, str | None) else f"{key[1]}__{key[2]}"

        text = text.replace(OWN_PART, "to use your own, import its module first")
        text = re.sub(r"""(["'])dataset\.(\w+)=(.*?)\1(?!\w)""", r"settings['dataset.\2']=\3", text)
        return re.sub(rf"(?<![\w./])\+?\b({'|'.join(PARTS)})\.(?!py\b)(\w+)", parameter, text)

    @contextlib.contextmanager
    def _in_python(self) -> Iterator[None]:
        """Context manager: in errors and warnings, use the names that settings have in Python."""

        def warn(line: str) -> None:
            warnings.warn(self._in_python_names(line), ConvergenceWarning, stacklevel=3)

        with saying(warn):
            try:
                yield
            except (InputError, RunError) as error:
                error.args = (self._in_python_names(str(error)),)
                raise

    def _section(self, part: str) -> dict[str, Any]:
        """Return the settings of a part, or the wrapped object if its class is not registered."""
        registry, value = Registry.kinds[part], getattr(self, part)
        if value is None or isinstance(value, str):
            return {} if value is None else {"name": value}
        if not isinstance(value, registry.base):
            raise InputError(
                f"{part}: expected a name or an instance of {registry.base.__name__}, got {shown(value)}"
            )
        names = [name for name, entry in registry.items() if entry is type(value)]
        with contextlib.suppress(TypeError):  # raised for fields that JSON cannot represent
            if names and (settings := fields_of(value)) is not None:
                return {"name": names[0], **json.loads(json.dumps(settings, default=np.generic.item))}
        return {"name": Instance(value)}

    def _settings(self) -> Settings:
        """Return the settings that ``nsvm train dataset=csv`` would compose."""
        sections = {part: chosen for part in PARTS if (chosen := self._section(part))}
        names = {part: chosen["name"] for part, chosen in sections.items()}
        overrides = []
        for part, name in names.items():  # an object gets the defaults of its nearest registered base class
            bases = [name] if isinstance(name, str) else Registry.kinds[part].names_of(type(name.part))
            overrides.append(f"{part}={bases[0]}" if bases else f"++{part}.name={name}")
        classes = [Registry.kinds[part].get(name) for part, name in names.items()]
        composed = _composed((*overrides,), (*classes,), self._task)
        for part, name in names.items():
            keys = composed[part] if isinstance(name, str) else Registry.kinds[part].common
            sections[part] = {key: composed[part][key] for key in keys} | sections[part]
        short = {key: value for key, name in SHORT.items() if (value := getattr(self, name)) is not None}
        shared_values = {name: getattr(self, name) for name in SAME_NAMES} | {"seed": self.random_state}
        if not isinstance(self.random_state, int | np.integer):  # parse_settings refuses true and false
            shared_values["seed"] = int(check_random_state(self.random_state).randint(2**31))
        common_keys = {f"{part}.{key}" for part in PARTS for key in Registry.kinds[part].common}
        if isinstance(self.class_weight, Mapping):
            labels = getattr(self, "classes_", np.array([])).tolist()
            names = {label: str(label) for label in labels}  # 0 and 0.0 are the same key
            weights = self.class_weight.items()
            shared_values["class_weight"] = {names.get(k, str(k)): weight for k, weight in weights}
        for key, setting in (self.settings or {}).items():
            if key in ("seed", *SAME_NAMES) or (key in PARTS and isinstance(setting, str)):
                parameter = "random_state" if key == "seed" else key
                raise InputError(f"settings: {key} is the parameter {parameter} of the estimator")
            if (section := key.partition(".")[0]) not in APPLY and key not in APPLY:
                raise InputError(
                    f"settings: {key} does not apply to estimators; {did_you_mean(section, APPLY)}"
                )
            value = getattr(self, section, None) if section in PARTS else None
            if not isinstance(value, str | None) and key not in common_keys:
                raise InputError(
                    f"settings: {key} cannot be set if {section} is an object; set it in the object"
                )
        changes = {**shared_values, **(self.settings or {}), **short}
        if isinstance(name := changes.get("sampler"), str):
            changes["sampler"] = {"name": name}
        changes = json.loads(json.dumps(changes, default=_plain))
        return parse_settings(with_values(composed, {**sections, **changes}))

    def _checked(self, X: Any, y: Any, **checks: Any) -> tuple[Any, np.ndarray]:
        """Return samples (an array or a data frame) and labels after scikit-learn's checks."""
        if not _is_table(X):
            return validate_data(self, X, y, allow_nd=True, **checks)
        validate_data(self, X, skip_check_array=True)  # sets n_features_in_ and feature_names_in_
        return X, check_X_y(np.zeros((len(X), 1)), y, estimator=self, **checks)[1]

    def _train(
        self, X: Any, y: np.ndarray, weight: Any, held_out: tuple[Any, Any], classes: Iterable[Any] = ()
    ) -> None:
        """Train on codes of ``classes`` or real targets; ``held_out`` is X_val, y_val, or (None, None)."""
        w = None if weight is None else _check_sample_weight(weight, y, dtype=np.float64)
        X, y, m = self._joined(X, y, *held_out)
        w = None if w is None else np.concatenate([w, np.ones(len(y) - m)])
        x = np.empty((len(y), 0)) if _is_table(X) else _numbers(X)
        validation = None if m == len(y) else m
        samples = Samples(
            x, y, tuple(map(str, classes)), ARRAYS, len(y), official_validation=validation, weight=w
        )
        with self._in_python(), own_threads():
            settings = self._settings()
            source: Any = build_source(settings.dataset)
            table = replace(_table(X, settings.dataset), settings=source) if _is_table(X) else None
            data = split_data(samples, source.validation, settings.seed, x.ndim > 2, self._task, table=table)
            self.records_: list[dict[str, Any]] = []
            keep_record = OnLog(lambda record: self.records_.append({**record}))
            run = prepare(settings, data=data)
            progress = Progress("fit") if self.verbose else contextlib.nullcontext(Callback())
            with progress as shown:
                run = run.with_search()
                self.search_ = run.search
                self._take(run.fit([*self.callbacks, keep_record, shown]))

    def _joined(self, X: Any, y: np.ndarray, X_val: Any, y_val: Any) -> tuple[Any, np.ndarray, int]:
        """Return the samples for training and validation, their labels, and the number of the former."""
        if (X_val is None) != (y_val is None):
            raise InputError("X_val and y_val: expected both or neither")
        if X_val is None:
            return X, y, len(y)
        if _is_table(X) != _is_table(X_val):
            raise InputError("X_val: expected a data frame if X is a data frame, otherwise an array")
        if not _is_table(X):
            X_val = validate_data(self, X_val, reset=False, allow_nd=True)
            return np.concatenate([X, X_val]), np.concatenate([y, y_val]), len(y)
        if missing := [name for name in X.columns if name not in X_val]:
            raise InputError(f"X_val: expected the columns of X, but {missing[0]!r} is missing")
        return pd.concat([X, X_val[X.columns]], ignore_index=True), np.concatenate([y, y_val]), len(y)

    @property
    def history_(self) -> pd.DataFrame:
        """The records of training, in a row each, with the columns of ``metrics.jsonl``."""
        check_is_fitted(self, "records_")
        return pd.DataFrame(self.records_)

    def _take(self, model: NSVM) -> None:
        self.model_, self.settings_ = model, model.settings
        self.n_support_, self.kernel_parameters_ = len(model.expansion.alpha), model.kernel_parameters

    def _of_model(self, compute: Callable[[NSVM, torch.Tensor], Any], X: Any) -> np.ndarray:
        """Return the result of ``compute`` for samples. A data frame is encoded like the training data."""
        check_is_fitted(self, "model_")
        encoder = self.model_.metadata.encoder
        if encoder is not None and _is_table(X):
            x = encoder(_table(X, self.settings_.dataset))
        else:
            x = _numbers(validate_data(self, X, reset=False, allow_nd=True))
        ratio = as_float(x[:BLOCK_ROWS]).std() / float(self.model_.scaling.std.mean()) if x.ndim > 2 else 0
        if ratio and not 0.02 < ratio < 50:
            problem = f"X has {ratio:.3g} times the standard deviation of the training samples"
            advice = "check that the pixels have the same range as in training, 0..1 or 0..255"
            warnings.warn(f"{problem}; {advice}", UserWarning, stacklevel=3)
        with own_threads(self.threads):
            return np.asarray(compute(self.model_, torch.from_numpy(x)).cpu())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return an estimator with the model and the settings in a model file or run directory.

        The classes are integers if all their names are integers, otherwise strings.

        Raises:
            InputError: the file is missing or damaged, or contains a model for another kind of task.
        """
        with cls()._in_python():
            model = load_model(path)
        settings, metadata = model.settings, model.metadata
        if settings.task != cls._task:
            raise InputError(f"{path}: expected a model with task={cls._task}, got task={settings.task}")
        values, section = plain(settings), settings.dataset
        parts = {part: values[part] for part in PARTS if values[part] is not None}
        extra = {f"{part}.{key}": parts[part][key] for part in parts for key in parts[part] if key != "name"}
        extra |= {name: values[name] for name in EXTRA}
        extra |= {f"dataset.{key}": section[key] for key in DATASET if key in section}
        params = {part: parts[part]["name"] for part in parts} | {name: values[name] for name in SAME_NAMES}
        estimator = cls(**params, random_state=settings.seed, settings=extra)
        estimator._take(model)
        if metadata.classes:
            estimator.classes_ = np.array(metadata.classes, dtype=object)
            with contextlib.suppress(ValueError, OverflowError):
                numbers = estimator.classes_.astype(int)
                if (*map(str, numbers),) == metadata.classes:
                    estimator.classes_ = numbers
        estimator.n_features_in_ = metadata.shape[0] if metadata.columns is None else len(metadata.columns)
        if metadata.columns is not None:
            estimator.feature_names_in_ = np.array([*metadata.columns], dtype=object)
        return estimator

    def save(self, path: str | Path) -> None:
        """Write the model to a file that ``load``, ``nsvm evaluate`` and ``nsvm predict`` can read."""
        check_is_fitted(self, "model_")
        save_model(Path(path), self.model_, named=True)


def _is_calibrated(classifier: Any) -> bool:
    if getattr(getattr(classifier, "model_", None), "sigmoids", None) is None:
        advice = "train with validation samples, for example settings={'dataset.validation': 0.1}"
        raise AttributeError(f"predict_proba requires a calibrated model; {advice}")
    return True


class NSVMClassifier(ClassifierMixin, _NSVM):  # type: ignore[misc]
    __doc__ = f"""A neural SVM for any number of classes. {_NSVM.__doc__}
        classes_: the classes, in the order of the columns of ``decision_function``.
    """

    _task = "classification"

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None
    ) -> NSVMClassifier:
        """Train on samples X of shape (m, n), or (m, channels, height, width) for images, and classes y.

        Columns of a data frame may contain text and empty cells, like columns of a CSV file. In prediction,
        columns are matched by name, and additional columns are ignored. Arrays of bytes with more than two
        dimensions are images, whose pixels are divided by 255. A sample with weight w counts as w samples.

        X_val and y_val are a validation set for calibration and, with ``settings={"validation.every": 50}``,
        for scores during training, early stopping and ``keep=best``.

        Raises:
            InputError: a parameter is invalid or does not fit the data. InputError is a ValueError.
            RunError: training diverged. RunError is a RuntimeError.
        """
        X, y = self._checked(X, y)
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        C = range(len(self.classes_))
        if y_val is not None:
            if len(unknown := np.setdiff1d(y_val, self.classes_)):
                raise InputError(f"y_val: expected classes that occur in y, got {shown(unknown.tolist()[0])}")
            y_val = encode(np.searchsorted(self.classes_, y_val), C)
        self._train(X, encode(index, C), sample_weight, (X_val, y_val), self.classes_)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return g(x), of shape (m, classes) or, for two classes, (m,): positive for the second class."""
        return self._of_model(NSVM.decision_function, X)

    def predict(self, X: Any) -> np.ndarray:
        """Return the classes of samples."""
        codes = self._of_model(NSVM.predict, X)
        return self.classes_[self.model_.task.index(codes).astype(int)]

    @available_if(_is_calibrated)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes, of shape (m, classes), if the model is calibrated."""
        return self._of_model(lambda model, x: model.probabilities(model.decision_function(x)), X)


class NSVMRegressor(RegressorMixin, _NSVM):  # type: ignore[misc]
    __doc__ = f"A neural SVM for real targets. {_NSVM.__doc__}"

    _task = "regression"

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None
    ) -> NSVMRegressor:
        """Train on samples X and targets y; see ``NSVMClassifier.fit``."""
        X, y = self._checked(X, y, y_numeric=True, ensure_min_samples=2)
        y_val = None if y_val is None else np.asarray(y_val, np.float64)
        self._train(X, np.asarray(y, np.float64), sample_weight, (X_val, y_val))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets of samples."""
        return self._of_model(NSVM.predict, X)


def load_model(path: str | Path) -> NSVM:
    """Return the trained model in a file or run directory. Raise an InputError if it is unreadable."""
    with own_threads(), saying(str):
        return open_model(path)[1]


def _plain(value: Any) -> Any:
    """Return a number or an array of NumPy as plain values. Raise an InputError for another object."""
    if isinstance(value, np.generic | np.ndarray | torch.Tensor):
        return value.tolist()
    raise InputError(f"settings: expected plain values, got {shown(value)}; pass objects as parameters")


def _is_table(X: Any) -> bool:
    """Return whether X is a data frame with unique strings as column names."""
    return isinstance(X, pd.DataFrame) and X.columns.is_unique and all(isinstance(n, str) for n in X.columns)


def _table(X: Any, settings: Mapping[str, Any]) -> Table:
    """Return a data frame as a table, with decimal signs and codes of missing values from ``settings``."""
    dialect = construct(Dialect, "", written_as(settings))
    return Table(tidied(X.reset_index(drop=True), dialect), ("X",), signs=dialect.signs)


def _numbers(x: np.ndarray) -> np.ndarray:
    """Return samples as float64. Images of bytes remain bytes, which the model scales to 0..1."""
    dtype = np.uint8 if x.dtype == np.uint8 and x.ndim > 2 else np.float64
    return np.require(x, dtype, ["C", "W"])  # torch rejects read-only arrays and negative strides


@functools.lru_cache(maxsize=64)
def _composed(overrides: tuple[str, ...], classes: tuple[object, ...], task: str) -> dict[str, Any]:
    """Return the settings of ``nsvm train`` with overrides. ``classes`` is only part of the cache key."""
    common = ["dataset=csv", f"dataset.path={ARRAYS}", f"task={task}"]
    return compose_settings([*common, *overrides], complete=False)
