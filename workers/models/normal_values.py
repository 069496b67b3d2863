"""Normal values by place: a value is a function of a key, its row and its column, so that each rank draws its own slice alone.

Rows are those of a matrix; of more dimensions, all but the last are counted as one. A block of random words serves four rows of a
column: rows 4g to 4g + 3 of column c have the words of the counter (c, 0, g, 0).

Two words make two values (Box & Muller, 1958). The logarithm and the sine are series of single additions, products, quotients and
roots, which IEEE 754 rounds alike everywhere. torch's own functions may differ in the last bit between devices, and on a CPU with the
place in an array. Values have 24 bits and are at most 6.56 standard deviations: the radius comes from 30 bits and has a random
sign, the angle from 32.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from .philox import Words, philox

Key = tuple[int, int]

#: Rows per block of random words.
_ROWS: Final = 4
#: Counters drawn at once: enough that calls cost little, few enough that a CPU keeps the work in its caches.
_CHUNK: Final = {"cpu": 1 << 16}
_DEVICE_CHUNK: Final = 1 << 20

_LOG_2: Final = math.log(2)
_ROOT_2: Final = math.sqrt(2)
#: Of the series 2 artanh x = 2x + 2x³/3 + …, from the last to the first. |x| ≤ 0.172: the next term is 2e-9.
_LOGARITHM: Final = (2 / 9, 2 / 7, 2 / 5, 2 / 3, 2.0)
#: sin(πx/2) ÷ x in powers of x², |x| ≤ 1, to 6e-9 (Hart et al., Computer Approximations, 1968, SIN 3341), from the last to the first.
_SINE: Final = (0.00015148419, -0.00467376557, 0.07968967928, -0.64596371106, 1.57079631847)


@dataclass(frozen=True)
class ParamSlice:
    """The part of a tensor of `shape` that has `size` and begins at `offset`."""

    shape: tuple[int, ...]
    offset: tuple[int, ...]
    size: tuple[int, ...]

    @property
    def columns(self) -> range:
        """Those of the last dimension."""
        return range(self.offset[-1], self.offset[-1] + self.size[-1])

    def runs(self) -> Iterator[range]:
        """Rows without a gap between them, if all dimensions but the last are counted as one."""
        leading = zip(self.offset[:-1], self.size[:-1], strict=True)
        *outer, rows = [range(start, start + length) for start, length in leading] or [range(1)]
        for place in itertools.product(*outer):
            first = 0
            for index, length in zip((*place, rows.start), self.shape[:-1], strict=False):
                first = first * length + index
            yield range(first, first + len(rows))


def normal_values(key: Key, std: float, where: ParamSlice, device: torch.device) -> Tensor:
    """The values of that slice: N(0, `std`²) in float32 on `device`."""
    if 0 in where.size:
        return torch.empty(where.size, device=device)
    found = [_matrix(key, std, rows, where.columns, device) for rows in where.runs()]
    return (found[0] if len(found) == 1 else torch.cat(found)).view(where.size)


def _matrix(key: Key, std: float, rows: range, columns: range, device: torch.device) -> Tensor:
    """The values of these rows and columns [rows, columns]."""
    first, last = rows.start // _ROWS, -(-rows.stop // _ROWS)
    blocks = torch.empty(last - first, _ROWS, len(columns), device=device)
    chunk = _CHUNK.get(device.type, _DEVICE_CHUNK)
    width = max(1, min(len(columns), chunk))
    height = max(1, chunk // width)
    for top in range(first, last, height):
        for left in range(columns.start, columns.stop, width):
            groups = torch.arange(top, min(top + height, last), device=device)
            places = torch.arange(left, min(left + width, columns.stop), device=device)
            part = blocks[top - first :, :, left - columns.start :]
            _fill(part[: len(groups), :, : len(places)], _words(key, groups, places), std)
    return blocks.flatten(0, 1)[rows.start - first * _ROWS :][: len(rows)]


def _words(key: Key, groups: Tensor, columns: Tensor) -> Words:
    """The random words of every group of rows and column, each [groups, columns]."""
    none = torch.zeros((), dtype=torch.int64, device=groups.device)
    return philox((columns[None, :], none, groups[:, None], none), key)


def _fill(values: Tensor, words: Words, std: float) -> None:
    """Fill `values` [groups, 4, columns] from `words`, each [groups, columns]."""
    for row in (0, 2):
        radius, angle = _radius(words[row].to(torch.int32), std), words[row + 1].to(torch.int32)
        turn = angle.to(torch.float32).mul_(
            2**-31
        )  # in [-1, 1]: half turns, of which the sign of the radius is the other half
        torch.mul(radius, _sine(turn), out=values[:, row])
        torch.mul(radius, _sine(turn.abs_().neg_().add_(1)), out=values[:, row + 1])


def _radius(word: Tensor, std: float) -> Tensor:
    """±`std`·√(−2 ln u), with u and the sign from the bits of `word`."""
    signed = word.bitwise_or(1).to(torch.float32)  # odd: never 0
    uniform = signed.abs().mul_(2**-31)
    square = _log(uniform).mul_(-2 * std**2)
    # MKL's roots are up to an ulp off. A root in float64, rounded to float32, is the nearest even so: no root of a float32 is within
    # four float64 ulps of the middle between two.
    return torch.copysign(square.to(torch.float64).sqrt_().to(torch.float32), signed)


def _log(x: Tensor) -> Tensor:
    """ln x ≤ 0 for x in (0, 1], by x = m·2ᵉ with m in [1, 2): ln x = (e + ½) ln 2 + 2 artanh((m − √2) / (m + √2))."""
    bits = x.view(torch.int32)
    exponent = (bits >> 23).to(torch.float32).sub_(126.5)
    mantissa = (bits & 0x7FFFFF).bitwise_or_(0x3F800000).view(torch.float32)
    ratio = (mantissa - _ROOT_2).div_(mantissa.add_(_ROOT_2))
    series = _polynomial(_LOGARITHM, ratio * ratio).mul_(ratio)
    return exponent.mul_(_LOG_2).add_(series).clamp_(max=0)  # rounding may leave the logarithm of 1 above 0


def _sine(x: Tensor) -> Tensor:
    """sin(πx/2) for x in [-1, 1]."""
    return _polynomial(_SINE, x * x).mul_(x)


def _polynomial(coefficients: Sequence[float], x: Tensor) -> Tensor:
    """The polynomial's value, from the coefficient of the highest power down. One operation at a time, so that none is fused."""
    first, second, *others = coefficients
    value = (x * first).add_(second)
    for coefficient in others:
        value.mul_(x).add_(coefficient)
    return value
