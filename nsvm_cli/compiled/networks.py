"""F_theta for fully connected layers, compiled: forwards and backwards, for some rows of a batch.

``H`` holds what the layers put out, one layer after the other with ``room`` rows for each, so that the rows
of a layer lie together.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nsvm_cli.compiled.forms import Network
from nsvm_cli.compiled.jit import compiled

ROWS = 256
"""Rows that pass through all layers before the next ones, so that they stay in a core's cache."""


@compiled
def room_for(F: Network, room: int) -> Any:
    """Return H for so many rows."""
    return np.empty(room * F.widths[1:].sum(), F.theta.dtype)


@compiled
def forward(F: Network, x: Any, H: Any, room: int, z: Any, masks: Any, begin: int, end: int) -> None:
    """Write z = F_theta(x) for the rows from ``begin`` to ``end``, and what the layers put out to H.

    ``masks``, if there are any, have the masks of all rows of the batch, layer by layer, or with ``F.shared``
    one for each layer. They are divided by 1 - p.
    """
    for first in range(begin, end, ROWS):
        _forward(F, x, H, room, z, masks, first, min(first + ROWS, end), len(x))


@compiled
def features(F: Network, x: Any) -> Any:
    """Return F_theta(x), without dropout."""
    z = np.empty((len(x), F.widths[-1]), F.theta.dtype)
    forward(F, x, room_for(F, len(x)), len(x), z, F.theta[:0], 0, len(x))
    return z


@compiled
def _forward(
    F: Network, x: Any, H: Any, room: int, z: Any, masks: Any, begin: int, end: int, total: int
) -> None:
    real, layers = F.theta.dtype.type, len(F.widths) - 1
    h, offset, at, mask_at = x[begin:end], 0, 0, 0
    for layer in range(1, layers + 1):
        p, q = F.widths[layer - 1], F.widths[layer]
        W = F.theta[offset : offset + p * q].reshape((q, p))
        b = F.theta[offset + p * q : offset + p * q + q]
        out = H[at + begin * q : at + end * q].reshape((end - begin, q))
        np.dot(h, W.T, out)
        for i in range(end - begin):
            for k in range(q):
                value = out[i, k] + b[k]
                out[i, k] = value if not value < real(0) else real(0)
        if len(masks) > 0 and layer < layers:  # no dropout on the features themselves
            for i in range(end - begin):
                row = mask_at + (0 if F.shared else (begin + i) * q)
                for k in range(q):
                    out[i, k] *= masks[row + k]
            mask_at += q if F.shared else total * q
        offset, at, h = offset + (p + 1) * q, at + room * q, out
    n = F.widths[layers]
    for i in range(end - begin):
        if F.normalize:
            square = real(0)
            for k in range(n):
                square += h[i, k] * h[i, k]
            norm = real(math.sqrt(square))
            factor = F.scale / (norm if not norm < F.eps else F.eps)
            for k in range(n):
                z[begin + i, k] = h[i, k] * factor
        else:
            for k in range(n):
                z[begin + i, k] = h[i, k]


@compiled
def backward(
    F: Network,
    x: Any,
    H: Any,
    room: int,
    z: Any,
    by_z: Any,
    dropped: bool,
) -> Any:
    """Return the gradient with respect to theta, given that with respect to z, for the first rows, which
    ``forward`` has passed; ``dropped`` says whether with masks. It overwrites ``by_z``.
    """
    by_theta = np.zeros_like(F.theta)
    for first in range(0, len(by_z), ROWS):
        _backward(F, x, H, room, z, by_z, dropped, first, min(first + ROWS, len(by_z)), by_theta)
    return by_theta


@compiled
def _backward(
    F: Network,
    x: Any,
    H: Any,
    room: int,
    z: Any,
    by_z: Any,
    dropped: bool,
    begin: int,
    end: int,
    by_theta: Any,
) -> None:
    real, layers, rows = F.theta.dtype.type, len(F.widths) - 1, end - begin
    at, offset = room * F.widths[1:].sum(), len(F.theta)
    D = by_z[begin:end]
    if F.normalize:
        n = F.widths[layers]
        h = H[at - room * n + begin * n : at - room * n + end * n].reshape((rows, n))
        for i in range(rows):
            square, along = real(0), real(0)
            for k in range(n):
                square += h[i, k] * h[i, k]
                along += D[i, k] * z[begin + i, k]
            norm = real(math.sqrt(square))
            if norm < F.eps:
                for k in range(n):
                    D[i, k] *= F.scale / F.eps
            else:
                along /= F.scale * F.scale
                for k in range(n):
                    D[i, k] = (D[i, k] - along * z[begin + i, k]) * (F.scale / norm)
    keep = real(1 / (1 - F.p)) if dropped else real(1)
    for layer in range(layers, 0, -1):
        p, q = F.widths[layer - 1], F.widths[layer]
        at, offset = at - room * q, offset - (p + 1) * q
        out = H[at + begin * q : at + end * q].reshape((rows, q))
        by_b = by_theta[offset + p * q : offset + p * q + q]
        factor = keep if layer < layers else real(1)
        for i in range(rows):
            for k in range(q):
                D[i, k] = D[i, k] * factor if out[i, k] > real(0) else real(0)
                by_b[k] += D[i, k]
        below = x[begin:end]
        if layer > 1:
            below = H[at - room * p + begin * p : at - room * p + end * p].reshape((rows, p))
        by_W = np.dot(D.T, below).reshape(-1)
        for k in range(p * q):
            by_theta[offset + k] += by_W[k]
        if layer > 1:
            D = np.dot(D, F.theta[offset : offset + p * q].reshape((q, p)))
