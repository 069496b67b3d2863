"""What ZeRO++'s quantised messages make of numbers, in float64 and numpy: the textbook of a certificate.

It is written from the paper (2306.10209) and `docs/design/zero-plus-plus.md`, and shares no code with what sends the messages. A rank's
shard of a parameter is ⌈rows/N⌉ rows, filled with zeros where rows are missing. ZeRO-3 without tensor ranks divides columns instead where
there are fewer rows than N, which divides their number. A shard's numbers, one after the other, are divided into blocks.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: What becomes of a shard, of which each rank that exchanges has its own numbers.
Change = Callable[[Sequence[Array]], Array]


def read_back(row: Array, block: int, bits: int) -> Array:
    """The numbers `row` [n] as a receiver reads them: multiples of their block's largest magnitude ÷ (2^(bits−1) − 1), half to even."""
    blocks = -(-len(row) // block)
    whole = np.zeros((blocks, block))
    whole.reshape(-1)[: len(row)] = row
    largest, levels = np.abs(whole).max(1, keepdims=True), 2 ** (bits - 1) - 1
    shares = np.divide(whole, largest, out=np.zeros_like(whole), where=largest > 0)
    found: Array = np.rint(shares * levels) * (largest / levels)
    return found.reshape(-1)[: len(row)]


def summed(rows: Sequence[Array], block: int, bits: int, node: int | None) -> Array:
    """The sum that a rank receives of `rows` [n], one from each rank.

    `node`: how many neighbouring ranks are summed first, whose sums are quantised once more; None: all at once.
    """
    once = [read_back(row, block, bits) for row in rows]
    if node is None:
        return _added(once)
    nodes = [_added(once[first : first + node]) for first in range(0, len(once), node)]
    return _added([read_back(one, block, bits) for one in nodes])


def by_shard(values: Sequence[Array], ranks: int, change: Change, columns: bool = False) -> Array:
    """`change` for each of `ranks` shards of a parameter, of which each sender has its own `values` [rows, …]; in the parameter's shape.

    `columns`: these are divided where there are too few rows.
    """
    first = values[0]
    dim = int(columns and first.ndim > 1 and first.shape[0] < ranks and first.shape[1] % ranks == 0)
    zeros = [(0, 0)] * first.ndim
    zeros[dim] = (0, -first.shape[dim] % ranks)
    senders = [np.split(np.pad(value, zeros), ranks, axis=dim) for value in values]
    changed = [
        change([one.reshape(-1) for one in shard]).reshape(shard[0].shape) for shard in zip(*senders, strict=True)
    ]
    return np.concatenate(changed, axis=dim)[: first.shape[0]]


def by_tensor_rank(values: Sequence[Array], dim: int | None, pieces: int, change: Change) -> Array:
    """`change` for each of the `pieces` into which tensor parallelism divides dimension `dim`; None: it does not."""
    if dim is None or pieces == 1:
        return change(values)
    size = -(-values[0].shape[dim] // pieces)
    bounds = list(range(size, values[0].shape[dim], size))
    each = [np.split(value, bounds, axis=dim) for value in values]
    return np.concatenate([change(piece) for piece in zip(*each, strict=True)], axis=dim)


def _added(rows: Sequence[Array]) -> Array:
    """The sum in the order of the ranks."""
    total = rows[0].copy()
    for row in rows[1:]:
        total += row
    return total
