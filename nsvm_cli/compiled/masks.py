"""Dropout masks as torch draws them, from the state of its generator.

torch's generator on the CPU is the Mersenne twister MT19937 (Matsumoto and Nishimura 1998); a number in
[0, 1) has the last 53 of 64 bits, two words. On Intel's processors torch draws masks by another method, from
Intel's library. ``draws_as_torch`` finds out which it is, and then torch draws for compiled functions too.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import torch

from nsvm_cli.compiled.forms import Masks, Network
from nsvm_cli.compiled.jit import compiled
from nsvm_cli.compiled.networks import layer_of

N, M = 624, 397
CHUNK = 2048
LEFT, NEXT, WORDS = slice(8, 12), slice(16, 24), slice(24, 24 + 8 * N)
"""Where ``torch.Generator.get_state`` has the numbers of the twister: words left, the next one, all words."""


@compiled
def _mixed(upper: Any, lower: Any) -> Any:
    both = (upper & np.uint32(0x80000000)) | (lower & np.uint32(0x7FFFFFFF))
    return (both >> np.uint32(1)) ^ (np.uint32(0x9908B0DF) * (lower & np.uint32(1)))


@compiled
def _twist(words: Any) -> None:
    for i in range(N - M):
        words[i] = words[i + M] ^ _mixed(words[i], words[i + 1])
    for i in range(N - M, N - 1):
        words[i] = words[i + M - N] ^ _mixed(words[i], words[i + 1])
    words[N - 1] = words[M - 1] ^ _mixed(words[N - 1], words[0])


@compiled
def _next_words(words: Any, place: Any, out: Any) -> None:
    at = 0
    while at < len(out):
        if place[0] == N:
            _twist(words)
            place[0] = 0
        count = min(N - place[0], len(out) - at)
        of_state, of_out = words[place[0] : place[0] + count], out[at : at + count]
        for i in range(count):
            y = of_state[i]
            y ^= y >> np.uint32(11)
            y ^= (y << np.uint32(7)) & np.uint32(0x9D2C5680)
            y ^= (y << np.uint32(15)) & np.uint32(0xEFC60000)
            of_out[i] = y ^ (y >> np.uint32(18))
        place[0] += count
        at += count


@compiled
def draw(words: Any, place: Any, p: float, out: Any) -> None:
    """Write 1 / (1 - p), with probability 1 - p, or 0."""
    kept, none = out.dtype.type(1 / (1 - p)), out.dtype.type(0)
    limit = np.int64(math.ceil((1 - p) * 2.0**53))
    pairs = np.empty((CHUNK, 2), np.uint32)
    for begin in range(0, len(out), CHUNK):
        part = out[begin : begin + CHUNK]
        _next_words(words, place, pairs.reshape(-1)[: 2 * len(part)])
        for i in range(len(part)):
            number = (np.int64(pairs[i, 0] & np.uint32(2**21 - 1)) << np.int64(32)) | np.int64(pairs[i, 1])
            part[i] = kept if number < limit else none


@compiled
def mask_numbers(F: Network, rows: int) -> int:
    """Return how many numbers the masks of a batch have."""
    numbers = 0
    for number in range(len(F.layers)):
        layer = layer_of(F, number)
        numbers += layer.d if layer.masked else 0
    return numbers if F.shared else rows * numbers


@compiled
def masks_for(F: Network, masks: Masks, rows: int) -> Any:
    """Return the masks of a batch in training mode, layer by layer: none if nothing is dropped.

    Masks that torch draws must be ``ready``; they are used up.
    """
    if F.p == 0:
        return masks.drawn[:0]
    if masks.own:
        drawn = np.empty(mask_numbers(F, rows), F.theta.dtype)
        draw(masks.words, masks.place, F.p, drawn)
        return drawn
    masks.ready[0] = 0
    return masks.drawn[: mask_numbers(F, rows)]


@compiled
def waits_for_masks(F: Network, masks: Masks) -> bool:
    """Return whether torch has to draw masks before the next step in theta."""
    return F.p > 0 and not masks.own and masks.ready[0] == 0


def words_of(generator: torch.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the words of a generator's state, and the place of the next one."""
    state = generator.get_state().numpy()
    left = int(state[LEFT].view(np.int32)[0])
    return state[WORDS].view(np.uint64).astype(np.uint32), np.array([N if left == 1 else N + 1 - left])


def set_words(generator: torch.Generator, words: np.ndarray, place: np.ndarray) -> None:
    """Set a generator to this state."""
    state = generator.get_state()
    bytes_of = state.numpy()
    bytes_of[LEFT].view(np.int32)[0] = 1 if place[0] == N else N + 1 - place[0]
    bytes_of[NEXT].view(np.uint64)[0] = place[0]
    bytes_of[WORDS].view(np.uint64)[:] = words
    generator.set_state(state)


@cache
def draws_as_torch(dtype: torch.dtype) -> bool:
    """Return whether ``draw`` gives the masks that torch gives here, and leaves the same state."""
    theirs, ours = (torch.Generator().manual_seed(20110621) for _ in range(2))
    for p in (0.1, 0.5, 0.9):
        keep = torch.empty(40, 31, dtype=dtype).bernoulli_(1 - p, generator=theirs) / (1 - p)
        words, place = words_of(ours)
        out = np.empty(40 * 31, keep.numpy().dtype)
        draw(words, place, p, out)
        set_words(ours, words, place)
        if not np.allclose(keep.numpy().ravel(), out):
            return False
    a, b = (torch.rand(700, generator=generator) for generator in (theirs, ours))
    return torch.equal(a, b)
