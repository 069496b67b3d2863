"""Initial values one by one, in plain integers and numpy's float32: the naive twin of `workers/models/normal_values.py`."""

import math

import numpy as np

WORD = 2**32 - 1
_LOGARITHM = (2 / 9, 2 / 7, 2 / 5, 2 / 3, 2.0)
_SINE = (0.00015148419, -0.00467376557, 0.07968967928, -0.64596371106, 1.57079631847)
F = np.float32


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox-4x32-10 as the paper defines it."""
    a, b, c, d = counter
    first, second = key
    for _ in range(10):
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = right >> 32 ^ b ^ first, right & WORD, left >> 32 ^ d ^ second, left & WORD
        first, second = (first + 0x9E3779B9) & WORD, (second + 0xBB67AE85) & WORD
    return [a, b, c, d]


def normal(row: int, column: int, key: list[int], std: float) -> float:
    """The value in that row and column. Every float operation is rounded to float32 by itself."""
    words = [word - 2**32 if word >> 31 else word for word in philox([column, 0, row // 4, 0], key)]
    first, second = words[row % 4 // 2 * 2 :][:2]
    signed, turn = F(first | 1), F(second) * F(2**-31)
    radius = np.copysign(np.sqrt(_log(np.abs(signed) * F(2**-31)) * F(-2 * std**2)), signed)
    if row % 2:
        turn = F(1) - np.abs(turn)
    return float(radius * (_polynomial(_SINE, turn * turn) * turn))


def _log(x: np.float32) -> np.float32:
    bits = int(x.view(np.int32))
    mantissa = np.int32(bits & 0x7FFFFF | 0x3F800000).view(F)
    ratio = (mantissa - F(math.sqrt(2))) / (mantissa + F(math.sqrt(2)))
    exponent = F(bits >> 23) - F(126.5)
    return min(exponent * F(math.log(2)) + _polynomial(_LOGARITHM, ratio * ratio) * ratio, F(0))


def _polynomial(coefficients: tuple[float, ...], x: np.float32) -> np.float32:
    value = F(0)
    for coefficient in coefficients:
        value = value * x + F(coefficient)
    return value
