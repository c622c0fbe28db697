"""Compiled forward and backward passes of F_theta, with the dropout of ``nsvm_cli.models.dropout.Masks``.

Samples pass through all layers in blocks of ``ROWS``, so that a block stays in a core's cache. The output of
a layer for n samples consists of rows of n numbers: pixel x, y of channel c is row (c height + y) width + x.
An output row of a convolution is a sum of matrix products, one for each input channel and row of the filters.
The product multiplies the weights of this filter row by shifted views of a row of the image. View k begins
k n numbers later, that is, k pixels further along the row.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from nsvm_cli import randomness
from nsvm_cli.engines.numba.arrays import MatrixAt, RowsAt, add_inner_products, add_products
from nsvm_cli.engines.numba.forms import Layer, Network
from nsvm_cli.engines.numba.jit import jit
from nsvm_cli.randomness import GOLDEN, LAYER

ROWS = 256
"""Number of samples in a block."""

BLAS_BELOW = 48
"""Fully connected layers use BLAS for at least two and fewer than this number of samples."""


class ForwardCache(NamedTuple):
    """The results of a forward pass that the backward pass needs."""

    H: np.ndarray  # the values of x and of all layers, block by block
    largest: np.ndarray  # the index, 0 to 3, of the largest pixel of each 2x2 square


@jit
def layer_of(F: Network, number: int) -> Any:
    layers, i = F.layers, number  # a row of ``layers`` would be an additional counted reference
    c, h, w, d, p, q = layers[i, 0], layers[i, 1], layers[i, 2], layers[i, 3], layers[i, 4], layers[i, 5]
    return Layer(c, h, w, d, p, q, layers[i, 6], layers[i, 7] > 0, layers[i, 8], layers[i, 9])


@jit
def places(layer: Layer, start: int, n: int) -> Any:
    """Return where a layer's input and output begin in ``ForwardCache.H``, for n samples after ``start``."""
    at = start + layer.below * n
    return at, at + layer.c * layer.h * layer.w * n


@jit
def room_for(F: Network, rows: int) -> ForwardCache:
    """Return memory for a forward pass of ``rows`` samples."""
    total = rows * F.height
    convolves = layer_of(F, 0).side > 1
    return ForwardCache(np.empty(total, F.theta.dtype), np.empty(total if convolves else 0, np.int8))


@jit
def features(F: Network, x: Any) -> Any:
    """Return F_theta(x), without dropout."""
    z = np.empty((len(x), F.width), F.theta.dtype)
    forward(F, x, room_for(F, len(x)), z, 0, np.empty(0, np.int64), 0)
    return z


@jit
def feature_columns(F: Network, x: Any, i: Any, passed: ForwardCache, z: Any) -> None:
    """Write F_theta(x_i) for samples i, without dropout, to the first columns of z."""
    n = len(i)
    of_input = passed.H[: x.shape[1] * n].reshape((x.shape[1], n))
    for k in range(len(of_input)):
        for j in range(n):
            of_input[k, j] = x[i[j], k]
    _pass(F, passed, 0, n, 0, i, False)
    features = _top(F, passed, 0, n)
    factor = _factors(F, features)
    for k in range(len(z)):
        for j in range(n):
            z[k, j] = features[k, j] * factor[j]


@jit
def forward(F: Network, x: Any, passed: ForwardCache, z: Any, t: int, i: Any, evaluated: int) -> None:
    """Write z = F_theta(x), and store the values that ``backward`` needs.

    If t > 0, dropout is active, with the masks of samples i in step t. If dropout is inactive, the values
    that an earlier call stored for the first ``evaluated`` samples are used again.
    """
    for begin in range(0, len(x), ROWS):
        end = min(begin + ROWS, len(x))
        at, n = begin * F.height, end - begin
        if end > evaluated:
            _write_columns(x[begin:end], passed.H[at : at + x.shape[1] * n].reshape((x.shape[1], n)))
        if end > evaluated or (t > 0 and F.drops):
            _pass(F, passed, at, n, t, i[begin:end], end <= evaluated)
            _write_rows(F, _top(F, passed, at, n), z[begin:end])


@jit
def _pass(F: Network, passed: ForwardCache, at: int, n: int, t: int, i: Any, evaluated: bool) -> None:
    """Pass n samples, which begin at ``at`` in ``ForwardCache.H``, through all layers; see ``forward``."""
    masked = 0
    for number in range(len(F.layers)):
        layer = layer_of(F, number)
        if not evaluated and layer.side > 1:
            _convolve(F, layer, passed, at, n)
        elif not evaluated:
            _connect(F, layer, passed, at, n)
        if t > 0 and layer.masked:
            evaluated = False
            (_, o), pixels = places(layer, at, n), layer.p * layer.q
            of_layer = passed.H[o : o + layer.d * pixels * n].reshape((layer.d, pixels, n))
            _mask(F, of_layer, number_at(F.seed, t), masked * LAYER, i)
            masked += 1


@jit
def _top(F: Network, passed: ForwardCache, start: int, n: int) -> Any:
    """Return the features, before normalisation, of n samples that begin at ``start``."""
    stop = start + F.height * n
    return passed.H[stop - F.width * n : stop].reshape((F.width, n))


@jit
def _write_columns(x: Any, out: Any) -> None:
    for first in range(0, len(out), 16):  # so that each line of the cache is read once
        for k in range(first, min(first + 16, len(out))):
            for j in range(out.shape[1]):
                out[k, j] = x[j, k]


@jit
def _mask(F: Network, out: Any, key: int, first: int, i: Any) -> None:
    """Apply dropout to samples i, using the random sequence of ``key`` from place ``first`` on."""
    d, pixels, n = out.shape
    for channel in range(d):
        factor = np.empty(n, out.dtype)
        for j in range(n):
            place = first + (0 if F.shared else i[j]) * d + channel
            factor[j] = out.dtype.type(0) if number_at(key, place) < F.dropped_below else F.factor
        for k in range(pixels):
            for j in range(n):
                out[channel, k, j] *= factor[j]


mixed = jit(randomness.mixed)


@jit
def number_at(key: int, place: int) -> Any:
    """Return the number at a place in the random sequence of ``key``; see ``nsvm_cli.randomness``."""
    return mixed(np.int64(place) * np.int64(GOLDEN) + np.int64(key))


@jit
def _connect(F: Network, layer: Layer, passed: ForwardCache, start: int, n: int) -> None:
    """Write the output of a fully connected layer for n samples, from sample ``start`` on."""
    theta, H, offset, (at, o) = F.theta, passed.H, layer.weights, places(layer, start, n)
    real, c, d = theta.dtype.type, layer.c, layer.d
    out, bias = H[o : o + d * n].reshape((d, n)), offset + c * d
    if n == 1:
        out[:] = real(0)
        add_inner_products(MatrixAt(H, o, 1, 0), RowsAt(theta, offset, c), RowsAt(H, at, 0), d, 1, c)
    elif n < BLAS_BELOW:
        W = theta[offset:bias].reshape((d, c))
        np.dot(W, H[at : at + c * n].reshape((c, n)), out)
    else:
        out[:] = real(0)
        add_products(RowsAt(H, o, n), MatrixAt(theta, offset, c, 1), RowsAt(H, at, n), d, c, n)
    for i in range(d):
        b = theta[bias + i]
        for j in range(n):
            value = out[i, j] + b
            out[i, j] = value if not value < real(0) else real(0)


@jit
def _convolve(F: Network, layer: Layer, passed: ForwardCache, start: int, n: int) -> None:
    """Write the output of a convolution for n samples that begin at ``start``."""
    theta, (at, o) = F.theta, places(layer, start, n)
    real, (c, h, w, d, p, q, side, _, offset, _) = theta.dtype.type, layer
    weights, m = c * side * side, 2 * q * n
    bias, two_rows = offset + d * weights, np.empty(2 * d * m, theta.dtype)
    for y in range(p):
        two_rows[:] = real(0)
        for lower in range(2):
            out = RowsAt(two_rows, lower * d * m, m)
            for channel in range(c):
                for down in range(side):
                    W = MatrixAt(theta, offset + (channel * side + down) * side, weights, 1)
                    row = (channel * h + 2 * y + lower + down) * w
                    add_products(out, W, RowsAt(passed.H, at + row * n, n), d, side, m)
        for i in range(d):
            place = o + (i * p + y) * q * n
            squares = two_rows[i * m : (i + 1) * m], two_rows[(d + i) * m : (d + i + 1) * m]
            out_i, largest = passed.H[place : place + q * n], passed.largest[place : place + q * n]
            _pool(squares[0], squares[1], theta[bias + i], n, out_i, largest)


@jit
def _pool(upper: Any, lower: Any, bias: Any, n: int, out: Any, largest: Any) -> None:
    """Apply 2x2 max-pooling, bias and ReLU. Write the position of the first maximum to ``largest``."""
    zero = out.dtype.type(0)
    for x in range(len(out) // n):
        left, right = upper[2 * x * n : (2 * x + 1) * n], upper[(2 * x + 1) * n : (2 * x + 2) * n]
        left_2, right_2 = lower[2 * x * n : (2 * x + 1) * n], lower[(2 * x + 1) * n : (2 * x + 2) * n]
        out_x, largest_x = out[x * n : (x + 1) * n], largest[x * n : (x + 1) * n]
        for j in range(n):
            best, which = left[j], np.int8(0)
            if right[j] > best or right[j] != right[j]:  # NaN stays NaN
                best, which = right[j], np.int8(1)
            if left_2[j] > best or left_2[j] != left_2[j]:
                best, which = left_2[j], np.int8(2)
            if right_2[j] > best or right_2[j] != right_2[j]:
                best, which = right_2[j], np.int8(3)
            best += bias
            out_x[j] = best if not best < zero else zero
            largest_x[j] = which


@jit
def _lengths(features: Any) -> Any:
    square = np.zeros(features.shape[1], features.dtype)
    for k in range(len(features)):
        for j in range(features.shape[1]):
            square[j] += features[k, j] * features[k, j]
    for j in range(len(square)):
        square[j] = math.sqrt(square[j])
    return square


@jit
def _factors(F: Network, features: Any) -> Any:
    """Return the factors that normalise the features of a block, or 1 without normalisation."""
    factor = np.ones(features.shape[1], features.dtype)
    if F.normalize:
        lengths = _lengths(features)
        for j in range(len(factor)):
            factor[j] = F.scale / (lengths[j] if not lengths[j] < F.eps else F.eps)
    return factor


@jit
def _write_rows(F: Network, features: Any, z: Any) -> None:
    """Write the features of a block, normalised if F normalises, as rows of z."""
    factor = _factors(F, features)
    for first in range(0, len(features), 16):
        for k in range(first, min(first + 16, len(features))):
            for j in range(len(factor)):
                z[j, k] = features[k, j] * factor[j]


@jit
def backward(F: Network, passed: ForwardCache, grad_z: Any) -> Any:
    """Return the gradient with respect to theta, given the gradient with respect to the z of ``forward``."""
    grad_theta = np.zeros_like(F.theta)
    for begin in range(0, len(grad_z), ROWS):
        _backward(F, passed, grad_z, begin, min(begin + ROWS, len(grad_z)), grad_theta)
    return grad_theta


@jit
def _backward(F: Network, passed: ForwardCache, grad_z: Any, begin: int, end: int, grad_theta: Any) -> None:
    real, n, start = F.theta.dtype.type, end - begin, begin * F.height
    D = _by_features(F, _top(F, passed, start, n), grad_z[begin:end])
    for number in range(len(F.layers) - 1, -1, -1):
        layer = layer_of(F, number)
        at, o = places(layer, start, n)
        bias, pixels = layer.weights + layer.d * layer.c * layer.side * layer.side, layer.p * layer.q
        out, factor = passed.H[o : o + len(D)], F.factor if layer.masked else real(1)
        grad_out, values = D.reshape((layer.d, pixels * n)), out.reshape((layer.d, pixels * n))
        for i in range(layer.d):
            grad_b = real(0)
            for j in range(pixels * n):
                grad_out[i, j] = grad_out[i, j] * factor if values[i, j] > real(0) else real(0)
                grad_b += grad_out[i, j]
            grad_theta[bias + i] += grad_b
        below = np.zeros(o - at if number > 0 else 0, D.dtype)
        if layer.side > 1:
            _convolve_back(F, layer, passed, start, n, D, below, grad_theta)
        else:
            _connect_back(F, layer, passed, start, n, D, below, grad_theta)
        D = below


@jit
def _by_features(F: Network, features: Any, grad_z: Any) -> Any:
    """Return the gradient with respect to the features of a block before normalisation, given ``grad_z``."""
    n, real = features.shape[1], grad_z.dtype.type
    D = np.empty(features.shape, grad_z.dtype)
    _write_columns(grad_z, D)
    if F.normalize:
        lengths, along = _lengths(features), np.zeros(n, grad_z.dtype)
        for k in range(len(D)):
            for j in range(n):
                along[j] += D[k, j] * features[k, j]
        for j in range(n):
            short = lengths[j] < F.eps
            along[j] = real(0) if short else along[j] / (lengths[j] * lengths[j])
            lengths[j] = F.scale / (F.eps if short else lengths[j])
        for k in range(len(D)):
            for j in range(n):
                D[k, j] = (D[k, j] - along[j] * features[k, j]) * lengths[j]
    return D.reshape(-1)


@jit
def _connect_back(
    F: Network, layer: Layer, passed: ForwardCache, start: int, n: int, D: Any, below: Any, grad_theta: Any
) -> None:
    """Add the gradient for the weights to ``grad_theta``, and the gradient for the input to ``below``.

    D is the gradient with respect to the output before ReLU. For the first layer, ``below`` is empty.
    """
    theta, H, c, d, offset = F.theta, passed.H, layer.c, layer.d, layer.weights
    at, _ = places(layer, start, n)
    if n == 1:
        add_products(RowsAt(grad_theta, offset, c), MatrixAt(D, 0, 1, 0), RowsAt(H, at, 0), d, 1, c)
        if len(below) > 0:
            add_products(RowsAt(below, 0, 0), MatrixAt(D, 0, 0, 1), RowsAt(theta, offset, c), 1, d, c)
    elif n < BLAS_BELOW:
        grad_out, x = D.reshape((d, n)), H[at : at + c * n].reshape((c, n))
        by_W = np.dot(grad_out, x.T).reshape(-1)
        for i in range(len(by_W)):
            grad_theta[offset + i] += by_W[i]
        if len(below) > 0:
            np.dot(theta[offset : offset + c * d].reshape((d, c)).T, grad_out, below.reshape((c, n)))
    else:
        add_inner_products(MatrixAt(grad_theta, offset, c, 1), RowsAt(D, 0, n), RowsAt(H, at, n), d, c, n)
        if len(below) > 0:
            add_products(RowsAt(below, 0, n), MatrixAt(theta, offset, 1, c), RowsAt(D, 0, n), c, d, n)


@jit
def _convolve_back(
    F: Network, layer: Layer, passed: ForwardCache, start: int, n: int, D: Any, below: Any, grad_theta: Any
) -> None:
    """Do for a convolution what ``_connect_back`` does for a connected layer."""
    theta, H, (at, o) = F.theta, passed.H, places(layer, start, n)
    c, h, w, d, p, q, side, _, offset, _ = layer
    largest = passed.largest[o : o + len(D)]
    weights, m = c * side * side, 2 * q * n
    row = np.empty(d * m, theta.dtype)
    for y in range(p):
        for lower in range(2):
            for i in range(d):
                place = (i * p + y) * q * n
                grad_out, which = D[place : place + q * n], largest[place : place + q * n]
                _unpool(grad_out, which, lower, n, row[i * m : (i + 1) * m])
            for channel in range(c):
                for down in range(side):
                    W = MatrixAt(grad_theta, offset + (channel * side + down) * side, weights, 1)
                    image = RowsAt(H, at + (channel * h + 2 * y + lower + down) * w * n, n)
                    add_inner_products(W, RowsAt(row, 0, m), image, d, side, m)
            if len(below) > 0:
                for down in range(side):
                    for right in range(side):
                        place = (2 * y + lower + down) * w + right
                        W = MatrixAt(theta, offset + down * side + right, side * side, weights)
                        add_products(RowsAt(below, place * n, h * w * n), W, RowsAt(row, 0, m), c, d, m)


@jit
def _unpool(D: Any, largest: Any, lower: int, n: int, out: Any) -> None:
    """Backpropagate the gradient D of max pooling to one row of pixels, ``out``.

    ``lower`` is 0 for the upper row of the 2x2 squares, and 1 for the lower row. ``largest`` is the index (0
    to 3) of the largest pixel of each square; the other pixels have gradient 0.
    """
    zero, first = D.dtype.type(0), np.int8(2 * lower)
    for x in range(len(D) // n):
        D_x, which = D[x * n : (x + 1) * n], largest[x * n : (x + 1) * n]
        left, right = out[2 * x * n : (2 * x + 1) * n], out[(2 * x + 1) * n : (2 * x + 2) * n]
        for j in range(n):
            left[j] = D_x[j] if which[j] == first else zero
            right[j] = D_x[j] if which[j] == first + np.int8(1) else zero
