"""Blocks that are quantised and read back, and sums of them, in numpy and float64: what ZeRO++'s paper says, without our code."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Vector = Any


def rounded(row: Vector, sizes: Sequence[int], block: int, bits: int) -> Vector:
    """`row`, whose parts have `sizes` numbers, as it is read back: multiples of each block's largest magnitude ÷ (2^(bits−1) − 1)."""
    found = np.zeros_like(row)
    begin = 0
    for size in sizes:
        for first in range(begin, begin + size, block):
            some = slice(first, min(first + block, begin + size))
            largest, levels = np.abs(row[some]).max(), 2 ** (bits - 1) - 1
            found[some] = np.rint(row[some] / largest * levels) * (largest / levels) if largest else 0.0
        begin += size
    return found


def reduced(rows: Sequence[Vector], sizes: Sequence[int], block: int, bits: int, node: int | None) -> Vector:
    """The sum that one rank receives of `rows`, one from each rank: rounded, and with nodes summed in each and rounded once more."""
    once = [rounded(row, sizes, block, bits) for row in rows]
    if node is None:
        return sum(once)
    nodes = [sum(once[first : first + node]) for first in range(0, len(once), node)]
    return sum(rounded(one, sizes, block, bits) for one in nodes)
