"""The order of samples: a pseudorandom permutation of any size, computed only for the requested positions.

It takes O(requested) time and memory, never O(corpus). A Feistel network permutes the next even power of two. A value outside the
range is permuted again until it is inside (cycle walking; Black and Rogaway 2002): fewer than four times on average.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 6
Numbers = NDArray[np.uint64]


def permute(positions: NDArray[np.int64], size: int, key: str) -> NDArray[np.int64]:
    """The images of `positions` (0 ≤ position < size) under a permutation of range(size) that `key` selects."""
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    round_keys = _round_keys(key)
    values = positions.astype(np.uint64)
    outside = np.arange(len(values))
    while len(outside):
        values[outside] = _feistel(values[outside], half, round_keys)
        outside = outside[values[outside] >= size]
    return values.astype(np.int64)


def shuffled(samples: NDArray[np.int64], size: int, key: str) -> NDArray[np.int64]:
    """The numbers (below `size`) of endless `samples`: all once per epoch, in each epoch in another order that `key` selects."""
    epochs, positions = np.divmod(samples, size)
    chosen = np.empty_like(positions)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        chosen[here] = permute(positions[here], size, f"{key}/{epoch}")
    return chosen


def _round_keys(key: str) -> Numbers:
    digest = hashlib.blake2b(key.encode(), digest_size=8 * _ROUNDS).digest()
    return np.frombuffer(digest, dtype="<u8").astype(np.uint64)


def _feistel(values: Numbers, half: int, round_keys: Numbers) -> Numbers:
    """A permutation of range(4**half), for any round function: left, right = right, left ^ f(right)."""
    shift, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = values >> shift, values & mask
    for round_key in round_keys:
        left, right = right, left ^ (mix(right ^ round_key) & mask)
    return (left << shift) | right


def mix(x: Numbers) -> Numbers:
    """The finaliser of splitmix64 (Steele et al. 2014), one-to-one: every bit of the input reaches every bit of the output."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
