"""Blocks are read back within half a step, as a textbook in plain Python rounds them; messages have the length that the formula says."""

import math
from collections.abc import Sequence

import pytest
import torch

from shardyard.strategies.data_parallel.quantized_blocks import BlockQuantizer

SIZES = ([64, 32], [33, 1, 64, 7], [5])


def textbook(row: Sequence[float], sizes: Sequence[int], block: int, levels: int) -> tuple[list[float], list[float]]:
    """What is read back, and the step of each number."""
    found: list[float] = []
    steps: list[float] = []
    begin = 0
    for size in sizes:
        for first in range(begin, begin + size, block):
            numbers = row[first : min(first + block, begin + size)]
            largest = max(map(abs, numbers))
            step = largest / levels
            found += [round(number / largest * levels) * step if step else 0.0 for number in numbers]
            steps += [step] * len(numbers)
        begin += size
    return found, steps


def rows_of(count: int, numbers: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    drawn = torch.randn(count, numbers, dtype=torch.float64, generator=torch.Generator().manual_seed(numbers))
    return (drawn * torch.logspace(-4, 2, numbers, dtype=torch.float64)).to(dtype)  # blocks of very different sizes


def read_back(quantizer: BlockQuantizer, rows: torch.Tensor) -> torch.Tensor:
    messages = quantizer.encode(rows)
    assert messages.dtype == torch.uint8
    assert messages.shape == (rows.shape[0], quantizer.message_bytes(rows.dtype))
    return quantizer.decode(messages, torch.full_like(rows, math.nan))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("bits", "levels"), [(8, 127), (4, 7)])
def test_equals_the_textbook_and_is_within_half_a_step(bits: int, levels: int, sizes: list[int]) -> None:
    rows = rows_of(3, sum(sizes))
    found = read_back(BlockQuantizer(bits, 32, sizes), rows)
    largest = 0.0
    for row, back in zip(rows.tolist(), found.tolist(), strict=True):
        expected, steps = textbook(row, sizes, 32, levels)
        assert back == expected
        parts = [abs(a - b) / step for a, b, step in zip(row, back, steps, strict=True)]
        assert max(parts) <= 0.5 * (1 + 1e-12)
        largest = max(largest, *parts)
    assert largest > 0.4 or sum(sizes) < 10, "the bound is not much smaller"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_16_bit_values_are_within_half_a_step_and_their_own_rounding(dtype: torch.dtype) -> None:
    rows = rows_of(2, 96, dtype)
    found = read_back(BlockQuantizer(8, 32, [64, 32]), rows)
    for row, back in zip(rows.tolist(), found.tolist(), strict=True):
        _, steps = textbook(row, [64, 32], 32, 127)
        bounds = [step * 0.5001 + abs(number) * 2**-8 + 2**-24 for number, step in zip(row, steps, strict=True)]
        assert all(abs(a - b) <= bound for a, b, bound in zip(row, back, bounds, strict=True))


@pytest.mark.parametrize(("bits", "sizes", "expected"), [(8, [33, 7], 40 + 3 * 8), (4, [33, 7], 17 + 4 + 3 * 8)])
def test_a_message_has_the_bytes_of_codes_and_scales(bits: int, sizes: list[int], expected: int) -> None:
    quantizer = BlockQuantizer(bits, 32, sizes)
    assert quantizer.message_bytes(torch.float64) == expected
    assert quantizer.message_bytes(torch.bfloat16) == expected - 3 * 4


@pytest.mark.parametrize("bits", [8, 4])
def test_zeros_stay_zeros_and_the_largest_number_stays_itself(bits: int) -> None:
    rows = torch.zeros(2, 70, dtype=torch.float64)
    rows[1, 69] = -3.0
    found = read_back(BlockQuantizer(bits, 32, [64, 6]), rows)
    assert torch.equal(found[0], rows[0]) and torch.equal(found[1, :69], rows[1, :69])
    assert found[1, 69].item() == pytest.approx(-3.0, rel=1e-15)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_does_not_become_finite(bits: int, value: float) -> None:
    rows = torch.ones(1, 64)
    rows[0, 40] = value
    found = read_back(BlockQuantizer(bits, 32, [64]), rows)
    assert found[0, :32].isfinite().all()
    assert not found[0, 40].isfinite()


def test_a_message_may_begin_anywhere_in_memory() -> None:
    quantizer = BlockQuantizer(8, 32, [33])
    rows = rows_of(1, 33)
    message = quantizer.encode(rows)
    memory = torch.zeros(message.numel() + 3, dtype=torch.uint8)
    memory[3:] = message[0]
    found = quantizer.decode(memory[3:].view(1, -1), torch.empty_like(rows))
    assert torch.equal(found, quantizer.decode(message, torch.empty_like(rows)))


@pytest.mark.parametrize("bits", [8, 4])
def test_half_of_the_largest_number_has_one_code_whatever_its_last_bits_are(bits: int) -> None:
    """Sums of codes have such numbers: 3.5 of 7 and 63.5 of 127 levels, which go to the even one."""
    largest = 1 + torch.arange(1000, dtype=torch.float64).view(-1, 1) * 2**-52
    rows = torch.cat([largest, largest / 2], 1)
    found = read_back(BlockQuantizer(bits, 32, [2]), rows)
    assert (found[:, 1] > rows[:, 1]).all()
