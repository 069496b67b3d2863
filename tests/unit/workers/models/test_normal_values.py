"""A slice's values are those of the whole to the bit, wherever it is cut and however it is drawn; and they are normal."""

import math
import random

import pytest
import torch
from harness.plain_normal import normal

from shardyard.workers.models import normal_values as module
from shardyard.workers.models.normal_values import ParamSlice, normal_values

CPU = torch.device("cpu")
KEY = (0x01234567, 0x89ABCDEF)


def drawn(
    shape: tuple[int, ...], offset: tuple[int, ...] | None = None, size: tuple[int, ...] | None = None
) -> torch.Tensor:
    where = ParamSlice(shape, offset or (0,) * len(shape), shape if size is None else size)
    return normal_values(KEY, 1.0, where, CPU)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.int32)


SHAPES = [(61,), (1, 37), (129, 1), (50, 67), (257, 131), (5, 13, 9), (3, 4, 17), (2, 3, 5, 7)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_slice_has_the_bits_of_the_whole(shape: tuple[int, ...]) -> None:
    whole, choice = drawn(shape), random.Random(0)
    for _ in range(20):
        offset = tuple(choice.randrange(length) for length in shape)
        size = tuple(choice.randint(1, length - start) for start, length in zip(offset, shape, strict=True))
        expected = whole[tuple(slice(at, at + length) for at, length in zip(offset, size, strict=True))]
        found = drawn(shape, offset, size)
        assert found.shape == size and torch.equal(bits(found), bits(expected)), (offset, size)


@pytest.mark.parametrize("chunk", [7, 1000, 1 << 20])
@pytest.mark.parametrize("threads", [1, 2])
def test_neither_chunks_nor_threads_change_a_bit(chunk: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, before = ((9, 41) if chunk < 1000 else (301, 523)), torch.get_num_threads()
    expected = drawn(shape)
    monkeypatch.setattr(module, "_CHUNK", {"cpu": chunk})
    torch.set_num_threads(threads)
    try:
        assert torch.equal(bits(drawn(shape)), bits(expected))
    finally:
        torch.set_num_threads(before)


def test_a_small_part_of_a_parameter_that_no_machine_could_hold() -> None:
    """2⁵⁰ values: only the part is drawn."""
    shape = (1 << 28, 1 << 22)
    found = drawn(shape, (shape[0] - 5, shape[1] - 3), (5, 3))
    assert found.shape == (5, 3) and len(set(found.flatten().tolist())) == 15
    assert torch.equal(found[1:4, 1:], drawn(shape, (shape[0] - 4, shape[1] - 2), (3, 2)))


def test_equals_single_operations_in_float32() -> None:
    """Bit for bit, so that no library's vectors, fused operations or device decide about a value."""
    shape, offset, size = (10**6, 50_000), (123_457, 4_321), (13, 11)
    found = normal_values(KEY, 0.0125, ParamSlice(shape, offset, size), CPU)
    expected = [
        [normal(offset[0] + row, offset[1] + column, list(KEY), 0.0125) for column in range(11)] for row in range(13)
    ]
    assert found.tolist() == expected


def test_a_part_without_rows_or_columns_is_empty() -> None:
    assert drawn((6, 4), (6, 0), (0, 4)).shape == (0, 4)
    assert drawn((3, 6, 4), (1, 2, 4), (2, 3, 0)).shape == (2, 3, 0)


def test_every_key_row_and_column_has_values_of_its_own() -> None:
    values = drawn((64, 64))
    assert len(set(values.flatten().tolist())) > 4090  # of 24 bits each, a few may be equal
    other = normal_values((KEY[0], KEY[1] ^ 1), 1.0, ParamSlice((64, 64), (0, 0), (64, 64)), CPU)
    assert abs(torch.corrcoef(torch.stack([values.flatten(), other.flatten()]))[0, 1].item()) < 0.06


def test_values_are_normal() -> None:
    """Moments, and the distance to the distribution function (Kolmogorov and Smirnov), within what half a million of them may differ by."""
    values = drawn((1001, 499)).double()
    count = values.numel()
    assert abs(values.mean().item()) < 4 / count**0.5
    assert values.square().mean().item() == pytest.approx(1, abs=4 * (2 / count) ** 0.5)
    assert abs(values.pow(3).mean().item()) < 4 * (15 / count) ** 0.5
    assert values.pow(4).mean().item() == pytest.approx(3, abs=4 * (96 / count) ** 0.5)
    ordered = torch.special.ndtr(values.flatten().sort().values)
    assert (ordered - (torch.arange(count) + 0.5) / count).abs().max().item() < 1.95 / count**0.5
    for sigmas in (2, 3, 4):
        expected = count * math.erfc(sigmas / 2**0.5)
        assert abs((values.abs() > sigmas).sum().item() - expected) < 4 * expected**0.5


@pytest.mark.parametrize(("rows", "columns"), [(0, 1), (1, 0), (1, 1), (2, 0), (3, 0), (4, 0), (0, 4)])
def test_neighbours_are_independent(rows: int, columns: int) -> None:
    """Values that share random words among them, and their squares: a common radius would show there."""
    values = drawn((700, 700)).double()
    here = values[: values.shape[0] - rows, : values.shape[1] - columns].flatten()
    there = values[rows:, columns:].flatten()
    for a, b in ((here, there), (here.square() - 1, there.square() - 1), (here, there.square() - 1)):
        together = (a * b).mean() / (a.square().mean() * b.square().mean()).sqrt()
        assert abs(together.item()) < 4.5 / a.numel() ** 0.5


def test_series_are_as_near_as_float32_is() -> None:
    x = torch.cat([torch.rand(100_000, generator=torch.Generator().manual_seed(0)), 2.0 ** torch.arange(-31, 1)])
    x = x.clamp_(min=2**-31)
    exact = x.double().log()
    assert ((module._log(x) - exact).abs() / exact.abs().clamp(min=1)).max().item() < 2e-7
    assert module._log(x).max().item() <= 0
    turn = x * torch.where(torch.arange(len(x)) % 2 == 0, 1, -1)
    assert (module._sine(turn) - (turn.double() * torch.pi / 2).sin()).abs().max().item() < 3e-7


def test_extreme_words_give_finite_values_within_the_stated_bound() -> None:
    extreme = torch.tensor([0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1])
    first, second = (word.flatten() for word in torch.meshgrid(extreme, extreme, indexing="ij"))
    values = torch.empty(1, 4, len(first))
    module._fill(values, (first[None], second[None], second[None], first[None]), 1.0)
    assert values.isfinite().all()
    assert values.abs().max().item() == pytest.approx(6.56, abs=0.01)
