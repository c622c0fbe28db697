"""A literal transcription of the paper's pseudocode: slow, dense, loop by loop, with autograd throughout.

Every trainer is compared with it. It shares with the package only what the paper takes as given: the sampled
indices, the network, the optimizer, and the kernel as a Python function of two vectors.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Draw = Callable[[int], list[int]]
VectorKernel = Callable[[Tensor, Tensor], Tensor]


def rbf(gamma: float) -> VectorKernel:
    return lambda a, b: torch.exp(-gamma * ((a - b) ** 2).sum())


class Data:
    """The samples x_j, the labels y_j, and the paper's F_theta(x_j)."""

    def __init__(self, x: Tensor, y: Tensor, network: nn.Module) -> None:
        self.x, self.y, self.network, self.m = x, y, network, len(y)

    def F(self, j: int) -> Tensor:
        """Return F_theta(x_j) as a vector, for the current theta."""
        return self.network(self.x[j : j + 1])[0]


def descend(optimizer: torch.optim.Optimizer | None, objective: Tensor) -> None:
    """Take one gradient descent step; None stands for a fixed theta."""
    if optimizer is not None:
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()


def algorithm_0(x: list[Tensor], y: Tensor, draw: Draw, T: int, lam: float, K: VectorKernel) -> Tensor:
    m = len(y)
    alpha = torch.zeros(m, dtype=y.dtype)
    alpha[draw(1)[0]] = 1
    for t in range(2, T + 1):
        i_t = draw(t)[0]
        total = torch.zeros((), dtype=y.dtype)
        for j in range(m):
            if alpha[j] != 0:
                total = total + alpha[j] * y[j] * K(x[j], x[i_t])
        if y[i_t] / (lam * (t - 1)) * total < 1:
            alpha[i_t] = alpha[i_t] + 1
    return alpha


def algorithm_1(
    data: Data, optimizer: torch.optim.Optimizer | None, draw: Draw, T: int, lam: float, K: VectorKernel
) -> tuple[list[int], list[float], list[Tensor]]:
    """alpha_1..alpha_T, y_i_1..y_i_T, z_1..z_T."""
    i = [draw(t)[0] for t in range(1, T + 1)]
    alpha = [1]
    z = [data.F(i[0]).detach()]
    for t in range(2, T + 1):
        i_t = i[t - 1]
        y_t = data.y[i_t]

        def total(z_t: Tensor, t: int = t) -> Tensor:
            s_sum = torch.zeros((), dtype=data.y.dtype)
            for s in range(1, t):
                if alpha[s - 1] != 0:
                    s_sum = s_sum + alpha[s - 1] * data.y[i[s - 1]] * K(z[s - 1], z_t)
            return s_sum

        z_t = data.F(i_t).detach()
        g = 1 / (lam * (t - 1)) * total(z_t)
        if y_t * g < 1:
            descend(optimizer, -y_t / (lam * (t - 1)) * total(data.F(i_t)))
            alpha.append(1)
        else:
            alpha.append(0)
        z.append(z_t)
    return alpha, [float(data.y[j]) for j in i], z


def algorithm_2(
    data: Data, optimizer: torch.optim.Optimizer | None, draw: Draw, T: int, lam: float, K: VectorKernel
) -> Tensor:
    alpha = torch.zeros(data.m, dtype=data.y.dtype)
    alpha[draw(1)[0]] = 1
    for t in range(2, T + 1):
        i_t = draw(t)[0]

        def total(i_t: int = i_t) -> Tensor:
            j_sum = torch.zeros((), dtype=data.y.dtype)
            for j in range(data.m):
                if alpha[j] != 0:
                    j_sum = j_sum + alpha[j] * data.y[j] * K(data.F(j), data.F(i_t))
            return j_sum

        if data.y[i_t] / (lam * (t - 1)) * total().detach() < 1:
            descend(optimizer, -data.y[i_t] / (lam * (t - 1)) * total())
            alpha[i_t] = alpha[i_t] + 1
    return alpha


def first_fraction(alpha: Tensor, y: Tensor, K_A: list[list[Tensor]]) -> Tensor:
    k = len(y)
    if not alpha.any():
        return torch.zeros((), dtype=y.dtype)
    pairs = [(i, j) for i in range(k) for j in range(k)]
    top = sum(alpha[i] * alpha[j] * y[i] * y[j] * K_A[i][j] for i, j in pairs)
    return top / (
        torch.sqrt(sum((alpha[i] * alpha[j]) ** 2 for i, j in pairs))
        * torch.sqrt(sum(K_A[i][j] ** 2 for i, j in pairs))
    )


def alignment(y: Tensor, K_A: list[list[Tensor]]) -> Tensor:
    k = len(y)
    pairs = [(i, j) for i in range(k) for j in range(k)]
    return sum(y[i] * y[j] * K_A[i][j] for i, j in pairs) / (
        k * torch.sqrt(sum(K_A[i][j] ** 2 for i, j in pairs))
    )


def batch_kernel(data: Data, A: list[int], K: VectorKernel) -> list[list[Tensor]]:
    z = [data.F(i) for i in A]
    return [[K(a, b) for b in z] for a in z]


def algorithm_3(
    data: Data,
    optimizer: torch.optim.Optimizer | None,
    draw: Draw,
    T: int,
    lam: float,
    mu: float,
    k: int,
    K: VectorKernel,
) -> Tensor:
    alpha = torch.zeros(data.m, dtype=data.y.dtype)
    for j in draw(1):
        alpha[j] = 1 / k
    for t in range(2, T + 1):
        A_t = draw(t)
        new = alpha.clone()
        for i in A_t:
            g = torch.zeros((), dtype=data.y.dtype)
            for j in range(data.m):
                if alpha[j] != 0:
                    g = g + alpha[j] * data.y[j] * K(data.F(j), data.F(i)).detach()
            if data.y[i] * (g / (lam * (t - 1))) < 1:
                new[i] = alpha[i] + 1 / k
        alpha = new
        K_A = batch_kernel(data, A_t, K)
        y_A = data.y[A_t]
        descend(optimizer, mu * first_fraction(alpha[A_t], y_A, K_A) - alignment(y_A, K_A))
    return alpha


def algorithm_4_part_1(
    data: Data,
    optimizer: torch.optim.Optimizer | None,
    draw: Draw,
    T: int,
    L: Callable[[float, Tensor], Tensor],
    K: VectorKernel,
) -> None:
    for t in range(1, T + 1):
        A_t = draw(t)
        descend(optimizer, L(1, alignment(data.y[A_t], batch_kernel(data, A_t, K))))


def decision(
    alpha: Tensor, y: Tensor, z: list[Tensor], x: Tensor, lam: float, T: int, K: VectorKernel
) -> Tensor:
    """g at the features x: 1/(lambda T) sum_j alpha_j y_j K(z_j, x)."""
    return sum(alpha[j] * y[j] * K(z[j], x) for j in range(len(y))) / (lam * T)
