"""A picture of the worst mistakes of a run: held-out images decided wrongly by the largest margin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
from jaxtyping import Real

from nsvm_cli.artifacts.model_file import find_model_file, load_model
from nsvm_cli.datasets import Data, SampleCache, Split, load_data
from nsvm_cli.models.nsvm import NSVM
from nsvm_cli.output import shortened
from nsvm_cli.page.plotting import new_figure, write_figure
from nsvm_cli.page.trained import are_images, pixels, range_of
from nsvm_cli.storage.run_directory import MISTAKES
from nsvm_cli.tasks import Classification

MAX_IMAGES, COLUMNS = 24, 8
"""The most images in a picture, and in a row of it."""

MAX_LABEL_LENGTH = 14
"""Characters of a class's name in a title."""


@dataclass(frozen=True)
class Mistake:
    """A sample, its class, and the class that was decided for."""

    sample: Real[np.ndarray, "..."]
    true: str
    decided: str


def draw_mistakes(run: Path, data: Data | None = None, samples: SampleCache | None = None) -> Path | None:
    """Draw the worst mistakes of a finished run as ``mistakes.png``, and return its path.

    None is returned, and nothing drawn, if the samples are no images, or there are no mistakes.

    Raises:
        InputError: the model file or the data are missing or damaged.
    """
    saved = load_model(find_model_file(run))
    task, settings, shape = saved.facts.task, saved.settings, saved.facts.shape
    if not isinstance(task, Classification) or not are_images(shape):
        return None
    data = data or load_data(settings.dataset, settings.seed, settings.task, saved.facts.known, samples)
    name = data.splits.held_out
    split = data.splits[name]
    mistakes, count = worst_mistakes(saved.model, task, split)
    if not mistakes:
        return None
    rows, columns = math.ceil(len(mistakes) / COLUMNS), min(len(mistakes), COLUMNS)
    ends = range_of(split)
    with new_figure(max(4.5, 1.2 * columns), 1.5 * rows + 0.4) as figure:
        title = f"{which(len(mistakes), count)} on the {name} set: true → decided"
        figure.suptitle(title, fontsize=10)
        for axis, mistake in zip_longest(figure.subplots(rows, columns, squeeze=False).flat, mistakes):
            axis.set_axis_off()
            if mistake:
                axis.imshow(pixels(mistake.sample, ends), cmap="gray", vmin=0, vmax=1)
                axis.set_title(_title(mistake), fontsize=8)
    return write_figure(run / MISTAKES, figure)


def which(shown: int, count: int) -> str:
    """Say which mistakes are shown."""
    return f"the worst {shown} of {count} mistakes" if count > 1 else "the only mistake"


def worst_mistakes(model: NSVM, task: Classification, split: Split) -> tuple[list[Mistake], int]:
    """Return the mistakes with the largest g_decided - g_true, the worst first, and the number of all.

    With two classes that is 2 |g|.
    """
    g = model.decision_function(split.x).double().cpu().numpy()
    true, decided = (task.index(y).astype(np.int64) for y in (split.y.numpy(), task.decide(g)))
    if g.ndim == 1:
        g = np.stack([-g, g], axis=1)
    wrong = np.flatnonzero(true != decided)
    margin = g[wrong, decided[wrong]] - g[wrong, true[wrong]]
    worst = wrong[np.argsort(-margin, kind="stable")][:MAX_IMAGES]
    names = task.classes
    mistakes = [Mistake(split.x[i].numpy(), names[true[i]], names[decided[i]]) for i in worst]
    return mistakes, len(wrong)


def _title(mistake: Mistake) -> str:
    true, decided = (shortened(name, MAX_LABEL_LENGTH) for name in (mistake.true, mistake.decided))
    line = f"{true} → {decided}"
    return line if len(line) <= MAX_LABEL_LENGTH else f"{true}\n→ {decided}"
