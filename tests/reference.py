"""A literal transcription of the paper's pseudocode: slow, dense, loop by loop, with autograd throughout.

The tests compare every trainer with this module. Both share only what the paper takes as given: the sampled
indices, the network, the optimizer, and the kernel, here as a Python function of two vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
    """Take a step of gradient descent. If the optimizer is None, theta stays fixed."""
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
    """Return alpha_1..alpha_T, y_i_1..y_i_T and z_1..z_T."""
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
    """Return g(x) = 1/(lambda T) sum_j alpha_j y_j K(z_j, x), for features x."""
    return sum(alpha[j] * y[j] * K(z[j], x) for j in range(len(y))) / (lam * T)


# Beyond the paper: more classes, real targets, other losses and mini-batches. Here alpha_j includes the sign,
# which is y_j in the paper, and has C entries for C classes.


VALUES: dict[str, Callable[[Tensor], Tensor]] = {
    "hinge": lambda m: torch.relu(1 - m),
    "squared_hinge": lambda m: torch.relu(1 - m) ** 2,
    "smoothed_hinge": lambda m: 0 * m if m >= 1 else (1 - m) ** 2 / 2 if m > 0 else 0.5 - m,
    "logistic": lambda m: torch.log(1 + torch.exp(-m)),
    "epsilon_insensitive": lambda r: torch.relu(r.abs() - EPSILON),
    "squared": lambda r: r**2 / 2,
}
"""The losses l as functions of a margin m or a residual r."""

EPSILON = 0.3


def rival(y: int, f: Tensor) -> int:
    """Return the class r != y with the largest f_r, the first such class in case of a tie."""
    best = None
    for r in range(len(f)):
        if r != y and (best is None or f[r] > f[best]):
            best = r
    assert best is not None
    return best


def loss(kind: str, l: str, y: Tensor, f: Tensor) -> Tensor:  # noqa: E741
    """Return the loss of a sample with label y and decision value f."""
    if kind == "binary":
        return VALUES[l](y * f)
    if kind == "residual":
        return VALUES[l](y - f)
    own = int(y)
    if kind == "crammer_singer":
        return VALUES[l](f[own] - f[rival(own, f)])
    return sum(VALUES[l](f[r] if r == own else -f[r]) for r in range(len(f)))


def increment(kind: str, l: str, y: Tensor, g: Tensor, kappa: float = 0.0) -> Tensor:  # noqa: E741
    """Return the increment of alpha_i: minus the derivative of the loss with respect to the decision value.

    If the slope of the loss is unbounded, the step is implicit: the derivative is taken at g plus kappa times
    the increment.
    """
    at = g.clone().requires_grad_()
    explicit = -torch.autograd.grad(loss(kind, l, y, at), at)[0]
    curvature = {"squared_hinge": 2, "squared": 1}.get(l, 0) * (2 if kind == "crammer_singer" else 1)
    return explicit / (1 + kappa * curvature)


@dataclass
class Problem:
    """A problem of some ``kind``, with the name ``l`` of its loss; ``outputs`` is the shape of f(x)."""

    data: Data
    draw: Draw
    lam: float
    K: VectorKernel
    kind: str
    l: str  # noqa: E741
    outputs: tuple[int, ...]

    def zeros(self, *shape: int) -> Tensor:
        return torch.zeros((*shape, *self.outputs), dtype=self.data.y.dtype)

    def f(self, terms: list[tuple[Tensor, Tensor]], x: Tensor, t: int) -> Tensor:
        """Return f_t(x) = 1/(lambda (t-1)) sum_s alpha_s K(z_s, x), with f_1 = 0."""
        if t == 1:
            return self.zeros()
        total = self.zeros() + 0 * x.sum()  # so that an empty sum has a gradient, which is 0
        for alpha_s, z_s in terms:
            total = total + alpha_s * self.K(z_s, x)
        return total / (self.lam * (t - 1))

    def increment(self, i: int, g: Tensor, z_i: Tensor, t: int) -> Tensor:
        return increment(self.kind, self.l, self.data.y[i], g, self.K(z_i, z_i).item() / (self.lam * t))

    def step_in_f(self, alpha: Tensor, z: list[Tensor], t: int) -> Tensor:
        """Return alpha after step t, given the features z of all samples."""
        A_t, new, terms = self.draw(t), alpha.clone(), [*zip(alpha, z, strict=True)]
        for i in A_t:
            new[i] = alpha[i] + self.increment(i, self.f(terms, z[i], t), z[i], t) / len(A_t)
        return new


def mini_batch_algorithm_0(p: Problem, z: list[Tensor], T: int) -> Tensor:
    alpha = p.zeros(p.data.m)
    for t in range(1, T + 1):
        alpha = p.step_in_f(alpha, z, t)
    return alpha


def mini_batch_algorithm_1(
    p: Problem, optimizer: torch.optim.Optimizer, T: int
) -> list[tuple[Tensor, Tensor]]:
    """Return the pairs (alpha_s, z_s) with alpha_s != 0."""
    terms: list[tuple[Tensor, Tensor]] = []
    for t in range(1, T + 1):
        A_t, new, violating = p.draw(t), [], []
        for i in A_t:
            z_i = p.data.F(i).detach()
            added = p.increment(i, p.f(terms, z_i, t), z_i, t)
            if added.any():
                new.append((added / len(A_t), z_i))
                violating.append(i)
        if violating and t > 1:
            pairs = zip(new, violating, strict=True)
            descend(optimizer, sum(-(a * p.f(terms, p.data.F(i), t)).sum() for (a, _), i in pairs))
        terms = [*terms, *new]
    return terms


def mini_batch_algorithm_2(p: Problem, optimizer: torch.optim.Optimizer, T: int) -> Tensor:
    alpha = p.zeros(p.data.m)
    for t in range(1, T + 1):
        A_t, new, falls = p.draw(t), alpha.clone(), []
        for i in A_t:
            terms, z_i = [(alpha[j], p.data.F(j)) for j in range(p.data.m) if alpha[j].any()], p.data.F(i)
            f = p.f(terms, z_i, t)
            added = p.increment(i, f.detach(), z_i.detach(), t) / len(A_t)
            if added.any():
                new[i] = alpha[i] + added
                falls.append(-(added * f).sum())
        if falls and t > 1:
            descend(optimizer, sum(falls))
        alpha = new
    return alpha


def matrix(k: int, entry: Callable[[int, int], Tensor]) -> Tensor:
    return torch.stack([torch.stack([entry(i, j) for j in range(k)]) for i in range(k)])


def ideal_kernel(p: Problem, A: list[int]) -> Tensor:
    """Return U: U_ij is 1 within a class, -1/(C-1) otherwise, and y_i y_j for two classes or real targets."""
    y = p.data.y

    def entry(i: int, j: int) -> Tensor:
        if p.outputs:
            C = p.outputs[0]
            return torch.tensor(1.0 if y[A[i]] == y[A[j]] else -1 / (C - 1)).to(y)
        return y[A[i]] * y[A[j]]

    return matrix(len(A), entry)


def cosine(U: Tensor, K: Tensor) -> Tensor:
    return (U * K).sum() / (torch.sqrt((U * U).sum()) * torch.sqrt((K * K).sum()))


def centring(k: int) -> Tensor:
    """Return H = I - 1/k."""
    return torch.eye(k, dtype=torch.float64) - torch.ones(k, k, dtype=torch.float64) / k


def batch_alignment(p: Problem, A: list[int], K_A: Tensor, centred: bool) -> Tensor:
    U, H = ideal_kernel(p, A), centring(len(A))
    return cosine(H @ U @ H, H @ K_A @ H) if centred else cosine(U, K_A)


def general_algorithm_3(
    p: Problem, optimizer: torch.optim.Optimizer, T: int, mu: float, centred: bool
) -> Tensor:
    alpha = p.zeros(p.data.m)
    for t in range(1, T + 1):
        A_t, alpha = p.draw(t), p.step_in_f(alpha, [p.data.F(j).detach() for j in range(p.data.m)], t)
        if t > 1:
            z, a = [p.data.F(i) for i in A_t], alpha[A_t]
            K_A = matrix(len(A_t), lambda i, j, z=z: p.K(z[i], z[j]))
            A_A = matrix(len(A_t), lambda i, j, a=a: (a[i] * a[j]).sum())
            fraction = cosine(A_A, K_A) if A_A.any() else 0.0
            descend(optimizer, mu * fraction - batch_alignment(p, A_t, K_A, centred))
    return alpha


def derived_algorithm_3(p: Problem, optimizer: torch.optim.Optimizer, T: int) -> Tensor:
    """Run Algorithm 3 with its derived objective, lambda/2 ||f_t||^2 plus the mean loss of A_t."""
    alpha = p.zeros(p.data.m)
    for t in range(1, T + 1):
        A_t, alpha = p.draw(t), p.step_in_f(alpha, [p.data.F(j).detach() for j in range(p.data.m)], t)
        if t > 1:
            z = [p.data.F(j) for j in range(p.data.m)]
            K_zz = matrix(p.data.m, lambda i, j, z=z: p.K(z[i], z[j]))
            f = K_zz @ alpha / (p.lam * t)
            norm = sum((alpha[j] * f[j]).sum() for j in range(p.data.m)) / (p.lam * t)
            losses = [loss(p.kind, p.l, p.data.y[i], f[i]) for i in A_t]
            descend(optimizer, p.lam / 2 * norm + sum(losses) / len(A_t))
    return alpha


def projected_algorithm_2(p: Problem, optimizer: torch.optim.Optimizer, T: int) -> Tensor:
    """Run Algorithm 2 and, after each step in theta, project f onto the span of the new K(F(x_j), .).

    The j are the samples that have violated the margin. As in the package, the linear system has a ridge, the
    square root of the machine precision for kernels with K(z, z) = 1.
    """
    alpha, used = p.zeros(p.data.m), []
    for t in range(1, T + 1):
        terms, new, falls = [(alpha[j], p.data.F(j)) for j in used], alpha.clone(), []
        for i in p.draw(t):
            z_i = p.data.F(i)
            f = p.f(terms, z_i, t)
            added = p.increment(i, f.detach(), z_i.detach(), t) / len(p.draw(t))
            if added.any():
                new[i] = alpha[i] + added
                used += [i] * (i not in used)
                falls.append(-(added * f).sum())
        alpha = new
        if falls and t > 1:
            old = [p.data.F(j).detach() for j in used]
            descend(optimizer, sum(falls))
            now = [p.data.F(j).detach() for j in used]
            ridge = torch.finfo(torch.float64).eps ** 0.5 * torch.eye(len(used), dtype=torch.float64)
            K_now = matrix(len(used), lambda i, j, z=now: p.K(z[i], z[j]))
            K_both = matrix(len(used), lambda i, j, z=now, o=old: p.K(z[i], o[j]))
            alpha[used] = torch.linalg.inv(K_now + ridge) @ K_both @ alpha[used]
    return alpha


def general_algorithm_4_part_1(
    p: Problem, optimizer: torch.optim.Optimizer, T: int, L: Callable[[float, Tensor], Tensor], centred: bool
) -> None:
    for t in range(1, T + 1):
        A_t = p.draw(t)
        z = [p.data.F(i) for i in A_t]
        K_A = matrix(len(A_t), lambda i, j, z=z: p.K(z[i], z[j]))
        descend(optimizer, L(1, batch_alignment(p, A_t, K_A, centred)))
