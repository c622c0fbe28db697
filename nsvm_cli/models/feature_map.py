"""F_theta as the algorithms see it: a function of x, and a way to move theta."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from nsvm_cli.errors import NotFiniteError
from nsvm_cli.models.networks import Rows, dropout_masks_from, is_modeless, split_at_first_mode
from nsvm_cli.models.optimizers import OptimizerConfig
from nsvm_cli.parallel.distributed import Processes
from nsvm_cli.storage.state_dict import StateDict, expect_keys, loaded_like

CHUNK = 2**17
"""Values of x in one forward pass over many samples; fixed, so that a prediction has the same bits
everywhere, and small enough for the activations to stay in a core's cache."""

FEW, WIDE = 64, 1024
"""A layer with more outputs than ``WIDE`` gets smaller chunks, if there are more than a ``FEW`` samples."""

Objective = Callable[..., tuple[Float[Tensor, ""], Sequence[Float[Tensor, "_ n"]]]]
"""A function of features: its value, and its gradient with respect to each of its arguments."""

Augment = Callable[[Float[Tensor, "p ..."], torch.Generator, Rows | None], Float[Tensor, "p ..."]]
"""A random change of samples that leaves their labels as they are, drawn from the generator; see ``Rows``."""


@dataclass(frozen=True)
class Evaluation:
    """z = F_theta(x), without a gradient, for the theta of its making.

    ``graph`` spares a forward pass when theta moves, if there is one: it is z with its graph, if the network
    computes the same in both modes, or else what the layers before the dropout put out, with its graph.
    """

    x: Float[Tensor, "p ..."]
    z: Float[Tensor, "p n"]
    graph: Float[Tensor, "p ..."] | None = None

    def rows(self, p: Int64[np.ndarray, " v"]) -> Evaluation:
        """Return some of its samples, in ascending order."""
        # a slice is a view, which costs less than a copy
        rows = slice(p[0], p[0] + 1) if len(p) == 1 else torch.from_numpy(p).to(self.z.device)
        return Evaluation(self.x[rows], self.z[rows], None if self.graph is None else self.graph[rows])


def features(network: nn.Module, x: Float[Tensor, "m ..."], most: int | None = None) -> Float[Tensor, "m n"]:
    """Return F_theta(x_j) for all j, in chunks of at most ``most``, without a graph.

    The network is in evaluation mode.
    """
    rows = min(rows_at_a_time(network, x), most or len(x) or 1)
    with torch.no_grad():
        first: Tensor = network(x[:rows])
        if len(x) <= rows:
            return first
        z = first.new_empty(len(x), *first.shape[1:])  # not joined from chunks, between which memory is lost
        z[:rows] = first
        for z_chunk, chunk in zip(z[rows:].split(rows), x[rows:].split(rows), strict=True):
            z_chunk.copy_(network(chunk))
    return z


def rows_at_a_time(network: nn.Module, x: Float[Tensor, "m ..."]) -> int:
    """Return how many of the samples x a network should pass at a time; see ``CHUNK``."""
    rows = max(1, CHUNK // x[:1].numel()) if len(x) else 1
    if len(x) > FEW:
        widest = max((len(p) for p in network.parameters() if p.ndim), default=1)
        rows = max(1, rows // math.ceil(widest / WIDE))
    return rows


def differentiate(objective: Callable[..., Float[Tensor, ""]]) -> Objective:
    """Return an objective that gets its gradients from autograd, where there is no closed form."""

    def differentiated(*z: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        with torch.enable_grad():
            leaves = [part.detach().requires_grad_() for part in z]
            value = objective(*leaves)
            return value.detach(), torch.autograd.grad(value, leaves)

    return differentiated


@dataclass(frozen=True)
class Shard:
    """One of several processes' part of an objective: which rows of the whole batch its own are."""

    processes: Processes
    rows: Rows | None = None


class FeatureMap:
    """theta, with everything that moves it: the network, the optimizer, dropout and augmentation.

    ``F(x)`` is F_theta(x) with dropout off, and carries no gradient. Only ``F.descend`` moves theta, and
    ``theta_steps`` counts how often.
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: OptimizerConfig,
        dropout_seed: int,
        augment: Augment | None = None,
        augment_seed: int = 0,
    ) -> None:
        self.network, self.augment = network, augment
        self.theta_steps = 0
        self._parameters = [p for p in network.parameters() if p.requires_grad]
        self.optimizer = optimizer(self._parameters) if self._parameters else None
        device = self._parameters[0].device if self._parameters else torch.device("cpu")
        self.dropout = torch.Generator(device).manual_seed(dropout_seed)
        self.augmentation = torch.Generator().manual_seed(augment_seed)
        self._needs_training_pass = not self.fixed and (augment is not None or not is_modeless(network))
        self._parts = None
        if self._needs_training_pass and augment is None:
            self._parts = split_at_first_mode(network)

    @property
    def fixed(self) -> bool:
        """Whether theta never moves, because the network has no parameters."""
        return self.optimizer is None

    def __call__(self, x: Float[Tensor, "m ..."]) -> Float[Tensor, "m n"]:
        return features(self.network, x)

    def state_dict(self) -> StateDict:
        """Return theta, the optimizer's state, the states of the generators, and the count of theta steps."""
        return {
            **({"network": own} if (own := dict(self.network.state_dict())) else {}),
            **({} if self.optimizer is None else {"optimizer": self.optimizer.state_dict()}),
            "dropout": self.dropout.get_state(),
            **({} if self.augment is None else {"augmentation": self.augmentation.get_state()}),
            "theta_steps": self.theta_steps,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Make this theta the one that was saved.

        Raises:
            ValueError: it is that of another network or optimizer.
        """
        own = self.network.state_dict()
        expect_keys(saved, self.state_dict())
        if own:
            expect_keys(saved["network"], own)
            loaded = {name: loaded_like(tensor, saved["network"][name], name) for name, tensor in own.items()}
            self.network.load_state_dict(loaded)
        if self.optimizer is not None:
            self.optimizer.load_state_dict(saved["optimizer"])
        _set_state(self.dropout, saved["dropout"], "the dropout's generator")
        if self.augment is not None:
            _set_state(self.augmentation, saved["augmentation"], "the augmentation's generator")
        if type(saved["theta_steps"]) is not int:
            raise ValueError(f"theta_steps: expected int, got {saved['theta_steps']!r}")
        self.theta_steps = saved["theta_steps"]

    def evaluate(self, x: Float[Tensor, "p ..."], whole: bool = False) -> Evaluation:
        """Return F_theta(x), for an objective that may follow: of all samples (``whole``), or of a few."""
        if whole and self._parts is not None:
            before, after = self._parts
            graph = torch.cat([before(chunk) for chunk in x.split(rows_at_a_time(self.network, x))])
            return Evaluation(x, features(after, graph.detach()), graph)
        if self._needs_training_pass:
            return Evaluation(x, self(x))
        graph = self.network(x)
        return Evaluation(x, graph.detach(), graph)

    def descend(
        self,
        at: Sequence[Evaluation | Tensor],
        objective: Objective,
        t: int,
        T: int,
        shard: Shard | None = None,
    ) -> Float[Tensor, ""]:
        """Take one gradient descent step in theta, and return the objective's value before it.

        Args:
            at: the samples x whose features the objective takes, or their evaluations, if theta has not moved
                since.
            objective: see ``Objective``.
            t: this step.
            T: the last step in which theta may move; the learning rate may depend on (t - 1) / T.
            shard: where the objective is this process's part of a sum.

        Dropout and augmentation act in the forward pass that this takes, and in no other. A network without
        parameters stays as it is.

        Raises:
            NotFiniteError: the objective is not finite.
        """
        parts = [(e, None) if isinstance(e, Tensor) else (e.x, e.graph) for e in at]
        if self._parts is not None:
            before, after = self._parts
            x = [before(x) if graph is None else graph for x, graph in parts]
            graphs = self._training_pass(after, torch.cat(x), shard).split([len(part) for part in x])
        elif self._needs_training_pass:
            x = [x for x, _ in parts]
            graphs = self._training_pass(self.network, torch.cat(x), shard).split([len(part) for part in x])
        else:
            graphs = tuple(self.network(x) if graph is None else graph for x, graph in parts)
        value, gradients = objective(*(graph.detach() for graph in graphs))
        if shard:
            value = shard.processes.sum(value)
        if not math.isfinite(value):
            raise NotFiniteError("the objective", t)
        if self.optimizer is not None:
            self.theta_steps += 1
            # Passing grad_outputs makes autograd import a computer algebra system, a quarter of a second;
            # differentiating a number with the same gradient does not.
            terms = [(graph * gradient).sum() for graph, gradient in zip(graphs, gradients, strict=True)]
            by_theta = torch.autograd.grad(
                sum(terms[1:], terms[0]), self._parameters, allow_unused=True, materialize_grads=True
            )
            self.optimizer.step(shard.processes.sum_all(by_theta) if shard else by_theta, (t - 1) / T)
        return value

    def _training_pass(
        self, network: nn.Module, x: Float[Tensor, "p ..."], shard: Shard | None
    ) -> Float[Tensor, "p n"]:
        rows = shard.rows if shard else None
        if self.augment is not None:
            x = self.augment(x, self.augmentation, rows)
        network.train()
        with dropout_masks_from(self.dropout, rows):
            z: Tensor = network(x)
        network.eval()
        return z


def _set_state(generator: torch.Generator, state: Any, name: str) -> None:
    try:
        generator.set_state(state)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{name}: {error}") from None
