"""The paper's pseudocode in straightforward PyTorch: one step at a time, with autograd throughout.

This code is the baseline of all ratios, and therefore lean: one operation sums over the support vectors, and
a step gathers, converts and stores only what it needs.

Each algorithm is a generator that yields after every step, so that a benchmark can time any part of a run.
``net(x)`` is F_theta; the network is in evaluation mode except in the forward pass of a theta step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

VectorKernel = Callable[[Tensor, Tensor], Tensor]


def rbf(gamma: float) -> VectorKernel:
    """Return the RBF kernel as a function of matrices: (p, n), (q, n) -> (p, q)."""
    return lambda a, b: torch.exp(-gamma * (a[:, None] - b[None]).square().sum(-1))


@dataclass
class Eager:
    """The inputs and the state of a run."""

    x: Tensor
    y: Tensor
    net: nn.Module
    optimizer: torch.optim.Optimizer
    draw: Callable[[int], Tensor]
    K: VectorKernel
    lam: float = 1e-4
    rate: Callable[[int], float] | None = None  # the learning rate of step t; None: the optimizer's own rate
    alpha: Tensor = field(init=False)  # Algorithms 0, 2 and 3: a coefficient for each sample
    j: Tensor = field(init=False)  # the samples with alpha > 0, in the order of their first violations
    objective: Tensor = field(init=False)  # the objective before the latest theta step
    z: Tensor = field(init=False)  # Algorithm 1: the stored features
    labels: Tensor = field(init=False)  # the labels of z

    def __post_init__(self) -> None:
        self.alpha = torch.zeros_like(self.y)
        self.j = torch.empty(0, dtype=torch.int64)
        self.net.eval()

    def F(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.net(x)

    def add(self, i: Tensor, amount: float) -> None:
        self.j = torch.cat([self.j, i[self.alpha[i] == 0]])
        self.alpha[i] += amount

    def descend(self, objective: Callable[[nn.Module], Tensor], t: int) -> None:
        if self.rate:
            self.optimizer.param_groups[0]["lr"] = self.rate(t)
        self.optimizer.zero_grad()
        self.net.train()
        value = objective(self.net)
        value.backward()
        self.objective = value.detach()
        self.net.eval()
        self.optimizer.step()

    def algorithm_0(self, z: Tensor, T: int) -> Iterator[int]:
        self.add(self.draw(1), 1)
        for t in range(2, T + 1):
            i = self.draw(t)
            j = self.j
            g = (self.alpha[j] * self.y[j]) @ self.K(z[j], z[i]) / (self.lam * (t - 1))
            if self.y[i] * g < 1:
                self.add(i, 1)
            yield t

    def algorithm_1(self, T: int) -> Iterator[int]:
        i = self.draw(1)
        self.z, self.labels = self.F(self.x[i]), self.y[i]
        for t in range(2, T + 1):
            i = self.draw(t)
            x_t, y_t = self.x[i], self.y[i]
            z, y = self.z, self.labels
            z_t = self.F(x_t)
            g = y @ self.K(z, z_t) / (self.lam * (t - 1))
            if y_t * g < 1:
                self.descend(
                    lambda F, c=-y_t / (self.lam * (t - 1)), z=z, y=y, x=x_t: (
                        c * (y @ self.K(z, F(x)))
                    ).sum(),
                    t,
                )
                self.z, self.labels = torch.cat([z, z_t]), torch.cat([y, y_t])
            yield t

    def algorithm_2(self, T: int, begin: int = 1) -> Iterator[int]:
        """Run all steps or, if ``begin`` > 1, the steps after ``begin``, whose result alpha contains."""
        if begin == 1:
            self.add(self.draw(1), 1)
        for t in range(begin + 1, T + 1):
            i = self.draw(t)
            j = self.j
            ay = self.alpha[j] * self.y[j]
            x_j, x_t, y_t = self.x[j], self.x[i], self.y[i]
            g = ay @ self.K(self.F(x_j), self.F(x_t)) / (self.lam * (t - 1))
            if y_t * g < 1:
                c = -y_t / (self.lam * (t - 1))
                if self.alpha[i] > 0:  # x_t is one of the x_j, and dropout must not give it other features
                    at = (j == i).nonzero()[:, 0]
                else:
                    x_j, at = torch.cat([x_j, x_t]), torch.tensor([len(j)])

                def objective(
                    F: nn.Module, x: Tensor = x_j, ay: Tensor = ay, c: Tensor = c, at: Tensor = at
                ) -> Tensor:
                    z = F(x)
                    return (c * (ay @ self.K(z[: len(ay)], z[at]))).sum()

                self.descend(objective, t)
                self.add(i, 1)
            yield t

    def algorithm_3(self, T: int, k: int, mu: float = 1.0, begin: int = 1) -> Iterator[int]:
        """Run all steps or the steps after ``begin``, as ``algorithm_2`` does."""
        if begin == 1:
            self.add(self.draw(1), 1 / k)
        for t in range(begin + 1, T + 1):
            A = self.draw(t)
            j = self.j
            g = (
                (self.alpha[j] * self.y[j])
                @ self.K(self.F(self.x[j]), self.F(self.x[A]))
                / (self.lam * (t - 1))
            )
            self.add(A[self.y[A] * g < 1], 1 / k)
            x_A, y_A, a_A = self.x[A], self.y[A], self.alpha[A]

            def objective(F: nn.Module, x: Tensor = x_A, y: Tensor = y_A, a: Tensor = a_A) -> Tensor:
                K_A = self.K(z := F(x), z)
                yy, aa = torch.outer(y, y), torch.outer(a, a)
                root = K_A.square().sum().sqrt()
                bottom = aa.square().sum().sqrt()
                first = (aa * yy * K_A).sum() / (bottom * root) if bottom > 0 else 0.0
                return mu * first - (yy * K_A).sum() / (k * root)

            self.descend(objective, t)
            yield t

    def algorithm_4_part_1(self, T: int, k: int) -> Iterator[int]:
        for t in range(1, T + 1):
            A = self.draw(t)
            x_A, y_A = self.x[A], self.y[A]

            def objective(F: nn.Module, x: Tensor = x_A, y: Tensor = y_A) -> Tensor:
                K_A = self.K(z := F(x), z)
                a = (torch.outer(y, y) * K_A).sum() / (k * K_A.square().sum().sqrt())
                return (1 - a) ** 2

            self.descend(objective, t)
            yield t
