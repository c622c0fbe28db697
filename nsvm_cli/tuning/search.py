"""Hyperparameter search with the paper's protocol: validation data and several seeds."""

from __future__ import annotations

import json
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, as_completed, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import optuna
import pydantic
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial, TrialState
from pydantic import Field, PositiveInt

from nsvm_cli.comparison.intervals import standard_error
from nsvm_cli.config.overrides import written
from nsvm_cli.config.registry import STRICT, Positive
from nsvm_cli.config.settings import code_of, flat, is_record_of, parse_settings, with_values
from nsvm_cli.datasets.base import EACH
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.metrics import METRICS, sign_of
from nsvm_cli.models.kernels import or_one_over_n
from nsvm_cli.output import say
from nsvm_cli.parallel.workers import Workers, cores
from nsvm_cli.plugins import load_plugins, plugin_errors
from nsvm_cli.runs.experiment import Experiment, load, prepare
from nsvm_cli.runs.loop import OnLog, Record
from nsvm_cli.storage.files import csv_text, locked, write_atomically
from nsvm_cli.storage.run_directory import damage_errors

FIRST_SEED = 1000
"""The first seed of a search. The seeds of reported runs start at 0."""

Value = float | int | str | bool | None
Point = dict[str, Value]
"""Maps dotted keys, such as ``optimizer.lr``, to values."""

Distribution = CategoricalDistribution | FloatDistribution | IntDistribution
Space = dict[str, Distribution]
"""Maps dotted keys to the values to search."""


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STRICT)
class Search:
    """The settings of a search, which ``conf/tune/default.yaml`` explains.

    ``space`` is nested like the settings. The leaves are lists of values or ranges ``{low, high, log}``. A
    range contains only integers if ``low`` and ``high`` are integers.
    """

    directory: str
    space: dict[str, Any]
    trials: PositiveInt = 100
    seeds: PositiveInt = 8
    finalists: PositiveInt = 5
    final_seeds: Annotated[int, Field(ge=2)] = 20
    seconds: Positive | None = None
    jobs: PositiveInt | None = None

    def suited(self, suggested: Mapping[str, Any], settings: Mapping[str, Any]) -> Space:
        """Return the space without keys of the default space ``suggested`` that ``settings`` lacks.

        Raises:
            InputError: no key remains.
        """
        unused = ranges(suggested).keys() - settings.keys()
        space = {key: values for key, values in ranges(self.space).items() if key not in unused}
        if not space:
            raise InputError("tune.space contains no setting that has an effect; add +tune.space.KEY=[A,B]")
        return space


def holds(distribution: Distribution, value: object) -> bool:
    """Return whether a distribution contains a value."""
    if isinstance(distribution, CategoricalDistribution):
        return value in distribution.choices
    return isinstance(value, (int, float)) and distribution.low <= value <= distribution.high


def ends(distribution: Distribution) -> tuple[Value, Value]:
    """Return the first and the last value of a distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[0], distribution.choices[-1]
    return distribution.low, distribution.high


def ranges(space: Mapping[str, Any], above: str = "") -> Space:
    """Return the distributions in a nested space by dotted keys.

    Raises:
        InputError: a leaf is neither a list nor a range.
    """
    distributions: Space = {}
    for key, value in space.items():
        where = f"{above}{key}"
        if isinstance(value, Mapping) and not {"low", "high"} & value.keys():
            distributions |= ranges(value, f"{where}.")
            continue
        try:
            distributions[where] = _distribution(value)
        except (TypeError, ValueError) as error:
            raise InputError(f"tune.space.{where}: {error}") from None
    return distributions


def _distribution(value: Any) -> Distribution:
    if isinstance(value, list):
        return CategoricalDistribution(value)
    if not isinstance(value, Mapping) or not {"low", "high"} <= value.keys() <= {"low", "high", "log"}:
        raise ValueError(f"expected a list or {{low, high, log}}, got {value!r}")
    integers = all(type(value[end]) is int for end in ("low", "high"))
    return (IntDistribution if integers else FloatDistribution)(**value)


@dataclass(frozen=True)
class Candidate:
    """A point of the space and its validation scores, one for each seed.

    For a finalist, ``final`` has the scores with further seeds, and ``error`` the standard error of the mean.
    """

    number: int
    metric: str
    point: Point
    scores: list[float]
    final: list[float] = field(default_factory=list)
    error: float = math.nan

    @property
    def mean(self) -> float:
        return mean(self.final or self.scores)

    @property
    def words(self) -> list[str]:
        """The point as overrides for ``nsvm train``."""
        return [f"{key}={written(value)}" for key, value in self.point.items()]

    @property
    def overrides(self) -> str:
        """The point as one line of overrides."""
        return " ".join(self.words)

    def row(self) -> dict[str, Any]:
        """Return a row of ``finalists.csv``."""
        means = {self.metric: self.mean, "standard_error": self.error}
        means |= {f"search_{self.metric}": mean(self.scores)}
        return {"candidate": self.number, **means, "overrides": self.overrides}


@plugin_errors()  # used in the worker process, since errors lose their traceback on the way to the parent
def validation_score(values: Mapping[str, Any], seed: int, seconds: float | None = None) -> float:
    """Train once and return the validation metric, or an infinity if training fails or it is undefined."""
    settings = parse_settings({**values, "seed": seed, "threshold": None})
    load_plugins(settings.plugins)
    if settings.metric is None or METRICS[settings.metric].needs != "probabilities":
        settings = replace(settings, calibration=None)
    experiment = prepare(settings)
    end = math.inf if seconds is None else time.monotonic() + seconds

    def observe(figures: Record) -> None:
        if time.monotonic() > end:
            raise RunError(f"training takes more than {seconds} seconds")

    try:
        model = experiment.train([OnLog(observe)])
        split = experiment.data.splits["validation"]
        score = model.score(split.x, split.y, split.weight)[experiment.metric]
    except RunError:
        score = None
    if score is None:
        return -sign_of(experiment.metric) * math.inf
    # R^2 has no lower bound, so one seed could dominate the mean
    return max(0.0, score) if experiment.metric == "r2" else float(score)


MOST_VALIDATION = 0.25
"""Maximum fraction of the training samples for validation, unless the user sets the number."""


def suited_validation(values: Mapping[str, Any], usual: str) -> str | float:
    """Return the size of the validation set: ``usual``, or ``MOST_VALIDATION`` if some class is too small.

    A class is too small if ``usual`` (such as ``200 each``) is more than this fraction of the class. The size
    is 0 if the data have their own validation set.
    """
    data = load(parse_settings(with_values(values, {"dataset.validation": 0})))
    if data.splits.sizes["validation"]:
        return 0
    rarest = min(int(members.sum()) for _, members in data.task.strata(data.splits["train"].y.numpy()))
    return usual if int(usual.removesuffix(EACH)) <= MOST_VALIDATION * rarest else MOST_VALIDATION


def tune(
    values: Mapping[str, Any],
    search: Search,
    suggested: Mapping[str, Any],
    observe: Callable[[Candidate], None],
) -> list[Candidate]:
    """Start or resume the search in ``search.directory``, and return the finalists, from best to worst.

    The first candidate has the values of the settings that are in the space. ``observe`` is called with
    each candidate after its evaluation.

    Raises:
        InputError: the settings, the space or the directory cannot be used.
        RunError: no candidate completed training.
    """
    experiment = prepare(parse_settings(values))
    if not experiment.data.splits.sizes["validation"]:
        raise InputError("tune requires validation data: set tune.validation above 0")
    settings = effective(values, experiment)
    space = search.suited(suggested, settings)
    for corner in (0, -1):
        point = {key: ends(d)[corner] for key, d in space.items()}
        prepare(parse_settings(with_values(values, point)))
    directory = Path(search.directory)
    with locked(directory), Workers(search.jobs or cores()) as workers:
        study = _study(values, search, space, experiment.metric, directory / "study.log")
        dataset, sizes = values["dataset"], experiment.data.splits.sizes
        validation = dataset.get("validation_path") or dataset["validation"] or sizes["validation"]
        budget = f"trials={search.trials} seeds={search.seeds} validation={validation}"
        say(f"tune {values['algorithm']['name']} on {dataset['name']}: {budget}, in {search.directory}")

        def score(point: Point, seed: int) -> Future[float]:
            return workers.submit(validation_score, with_values(values, point), seed, search.seconds)

        for candidate in _tried(study, search, space, settings, score, experiment.metric):
            observe(candidate)
        finalists = _final(study, search, score, experiment)
    if not finalists:
        raise RunError("no candidate completed training with every seed: narrow the ranges in tune.space")
    write_atomically(directory / "finalists.csv", csv_text([c.row() for c in finalists]).encode())
    return finalists


Score = Callable[[Point, int], "Future[float]"]
"""Computes ``validation_score`` for a point and a seed in a worker process."""


def _tried(
    study: optuna.Study, search: Search, space: Space, settings: Mapping[str, Any], score: Score, metric: str
) -> Iterator[Candidate]:
    """Yield candidates after their evaluation, beginning with the candidates of an interrupted search."""
    yield from (evaluated := _candidates(study, metric, TrialState.COMPLETE))
    ready = _candidates(study, metric, TrialState.RUNNING)
    left, running = search.trials - len(evaluated) - len(ready), dict[Future[float], Candidate]()
    while ready or running or left > 0:
        for candidate in ready:
            tried, trial = len(candidate.scores), study.get_trials(deepcopy=False)[candidate.number]
            failed = not math.isfinite(sum(candidate.scores))
            if failed or tried == search.seeds or study.pruner.prune(study, trial):
                study.tell(trial.number, candidate.mean)
                yield candidate
            else:
                running[score(candidate.point, FIRST_SEED + tried)] = candidate
        while left > 0 and len(running) < (search.jobs or cores()):
            candidate, left = _proposed(study, space, settings, metric), left - 1
            running[score(candidate.point, FIRST_SEED)] = candidate
        ready = []
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            ready.append(candidate := running.pop(future))
            candidate.scores.append(value := future.result())
            if math.isfinite(value):  # in a file with one study, the id of a trial is its number
                Trial(study, candidate.number).report(value, len(candidate.scores) - 1)


def _candidates(study: optuna.Study, metric: str, state: TrialState) -> list[Candidate]:
    """Return the candidates whose trials are in a state, with their scores so far."""
    return [
        Candidate(t.number, metric, t.user_attrs["point"], [*t.intermediate_values.values()])
        for t in study.get_trials(deepcopy=False, states=[state])
    ]


def _proposed(study: optuna.Study, space: Space, settings: Mapping[str, Any], metric: str) -> Candidate:
    """Choose the next candidate, by its number and the evaluated candidates, and add it in one write."""
    number = len(study.get_trials(deepcopy=False))
    sampler = optuna.samplers.TPESampler(seed=number, multivariate=True)
    copy = optuna.create_study(direction=study.direction, sampler=sampler)
    copy.add_trials(study.get_trials(deepcopy=False, states=[TrialState.COMPLETE]))
    if not number:
        copy.enqueue_trial({key: settings[key] for key in space if holds(space[key], settings.get(key))})
    trial = copy.ask({**space})
    point = {key: _rounded(value, settings.get(key)) for key, value in trial.params.items()}
    trial.set_user_attr("point", point)
    study.add_trial(copy.trials[-1])
    return Candidate(number, metric, point, [])


def effective(values: Mapping[str, Any], experiment: Experiment) -> dict[str, Any]:
    """Return the settings that have an effect, by dotted keys. A number replaces ``kernel.gamma=null``."""
    settings, F = flat(values), experiment.F
    if settings.get("kernel.gamma", 0) is None:
        settings["kernel.gamma"] = or_one_over_n(None, F(experiment.problem.x[:1]))
    unused = [] if experiment.trainer.trains_svm else ["kernel."]
    if not (experiment.trainer.moves_theta and F.parameters):
        unused += ["optimizer.", "network."]
    return {key: value for key, value in settings.items() if not key.startswith((*unused,))}


def _rounded(value: Value, setting: Value) -> Value:
    """Round a sampled float to two digits. Keep the value of a setting, which the user knows, as it is."""
    return float(f"{value:.2g}") if isinstance(value, float) and value != setting else value


def _study(values: Mapping[str, Any], search: Search, space: Space, metric: str, file: Path) -> optuna.Study:
    """Return Optuna's study in ``file``, or a new study if there is no such file."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # the pruner and the sampler are experimental, and the first candidates may all fail
    warnings.filterwarnings("ignore", ".*(WilcoxonPruner|multivariate)")
    with damage_errors(file, "; to search again, set tune.directory to a new folder"):
        if file.exists():
            # Optuna would append to a last line that a kill or a full disk has cut off
            with file.open("rb+") as journal:
                journal.truncate(journal.read().rfind(b"\n") + 1)
        # a lock within the process suffices, because the directory is locked
        backend = JournalFileBackend(str(file), lock_obj=threading.Lock())  # type: ignore[arg-type]
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name="tune",
            load_if_exists=True,
            direction="maximize" if sign_of(metric) > 0 else "minimize",
            pruner=optuna.pruners.WilcoxonPruner(p_threshold=0.1, n_startup_steps=4),
        )
        budget: dict[str, Any] = {"seeds": search.seeds, "seconds": search.seconds, "sign": sign_of(metric)}
        budget["space"] = {key: optuna.distributions.distribution_to_json(d) for key, d in space.items()}
        code = code_of(settings := parse_settings(values))
        question = json.dumps({"settings": dict(values), "code": code, **budget}, sort_keys=True)
        recorded = json.loads(study.user_attrs.setdefault("question", question))
        if not is_record_of(recorded["settings"], settings) or not budget.items() <= recorded.items():
            advice = "set tune.directory to a new folder"
            raise InputError(f"{search.directory} contains a different search: {advice}")
        if recorded["code"] != code:
            advice = "to compute all scores again, set tune.directory to a new folder"
            say(f"{search.directory}: the code of plugins has changed, and earlier scores are kept; {advice}")
        study.set_user_attr("question", question)
    return study


def _final(study: optuna.Study, search: Search, score: Score, experiment: Experiment) -> list[Candidate]:
    """Return the best candidates, ranked by new seeds, since scores of the search favour lucky candidates."""
    first = FIRST_SEED + search.seeds
    seeds = range(first, first + search.final_seeds)
    scores: dict[str, float] = dict(study.user_attrs.get("final", {}))
    sign, evaluated = sign_of(experiment.metric), _candidates(study, experiment.metric, TrialState.COMPLETE)
    complete = [c for c in evaluated if len(c.scores) == search.seeds]
    finalists = sorted(complete, key=lambda c: -sign * c.mean)[: search.finalists]
    names = {f"{c.number} {seed}": (c.point, seed) for c in finalists for seed in seeds}
    futures = {score(*names[name]): name for name in names if name not in scores}
    for future in as_completed(futures):
        scores[futures[future]] = future.result()
        study.set_user_attr("final", scores)
    data, sizes = experiment.data, experiment.data.splits.sizes
    fixed = data.samples.generated or data.samples.official_validation is not None
    overlap = 0.0 if fixed else sizes["validation"] / sizes["train"]
    samples = sizes["validation"] if experiment.metric == "accuracy" else None
    ranked = []
    for c in finalists:
        final = [scores[f"{c.number} {seed}"] for seed in seeds]
        if math.isfinite(sum(final)):
            ranked.append(replace(c, final=final, error=standard_error(final, overlap, samples)))
    return sorted(ranked, key=lambda c: -sign * c.mean)
