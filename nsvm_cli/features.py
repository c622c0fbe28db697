"""F_theta as the algorithms see it: a function of x, and a way to move theta."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nsvm_cli.networks import Dropout
from nsvm_cli.optimizers import Optimizer

CHUNK = 512
"""Samples in one forward pass over many; fixed, so that a prediction has the same bits everywhere."""


def features(network: nn.Module, x: Float[Tensor, "m ..."]) -> Float[Tensor, "m n"]:
    """F_theta(x_j) for all j, in chunks, without a graph. The network is in evaluation mode."""
    with torch.no_grad():
        chunks = [network(chunk) for chunk in x.split(CHUNK)]
        return torch.cat(chunks) if len(chunks) > 1 else chunks[0]


class Theta:
    """theta, with everything that moves it: the network, the optimizer, the dropout's generator.

    ``F(x)`` is F_theta(x) with dropout off, and carries no gradient. Only ``F.descend`` moves theta.
    """

    def __init__(self, network: nn.Module, optimizer: Optimizer, dropout_seed: int) -> None:
        self.network = network
        parameters = [p for p in network.parameters() if p.requires_grad]
        self.optimizer = optimizer(parameters) if parameters else None
        device = parameters[0].device if parameters else torch.device("cpu")
        self.dropout = torch.Generator(device).manual_seed(dropout_seed)
        for module in network.modules():
            if isinstance(module, Dropout):
                module.generator = self.dropout

    def __call__(self, x: Float[Tensor, "m ..."]) -> Float[Tensor, "m n"]:
        return features(self.network, x)

    def descend(self, objective: Callable[[nn.Module], Tensor]) -> Float[Tensor, ""]:
        """One gradient descent step with respect to ``objective(F)``; returns its value before it.

        Dropout is on in this forward pass, and in no other. A network without parameters stays
        as it is.
        """
        self.network.train()
        value = objective(self.network)
        self.network.eval()
        if self.optimizer is not None:
            self.optimizer.zero_grad()
            value.backward()
            self.optimizer.step()
        return value.detach()
