"""The mean of theta over the last steps, which generalises better than the theta of the last step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from nsvm_cli.models.feature_map import FeatureMap
from nsvm_cli.storage.state_dict import StateDict, loaded_tensors

Share = Annotated[float, Field(gt=0, le=1)]
"""The share of the steps, at their end, over which theta is averaged."""


class MeanTheta:
    """The mean of theta over the last ``share`` of T steps, which replaces theta after step T.

    Also known as Polyak-Ruppert averaging (Polyak and Juditsky 1992) and stochastic weight averaging
    (Izmailov et al. 2018). It includes the buffers of a network, such as running averages.
    """

    def __init__(self, F: FeatureMap, share: float, T: int) -> None:
        # these tensors share their memory with the network's and the kernel's
        theta = F.network.state_dict() | {f"kernel.{name}": p.data for name, p in F.of_kernel.items()}
        self.theta = {name: v for name, v in theta.items() if v.is_floating_point()}
        self.mean = {name: v.clone() for name, v in self.theta.items()}
        self.T, self.steps = T, max(1, round(share * T))

    def follow(self, t: int) -> None:
        """Include the theta after step t."""
        n = t - (self.T - self.steps)
        if n < 1:
            return
        for name, v in self.theta.items():
            self.mean[name] += (v - self.mean[name]) / n
            if t == self.T:
                v.copy_(self.mean[name])

    def state_dict(self) -> StateDict:
        return dict(self.mean)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore a saved mean; ValueError if it belongs to another network."""
        self.mean = loaded_tensors(self.mean, saved)
