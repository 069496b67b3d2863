"""Any word that changes changes the checksum; votes name the minority."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shardyard.strategies.replica_checksum import ReplicaMismatch, checksum, named

PLACE, OTHER = ("a", "float32", (0,), (4,)), ("b", "float32", (0,), (4,))


@given(
    st.integers(1, 70), st.sampled_from([torch.float64, torch.float32, torch.bfloat16]), st.integers(0), st.integers(0)
)
def test_every_bit_counts(count: int, dtype: torch.dtype, byte: int, bit: int) -> None:
    tensor = torch.linspace(-3, 3, count).to(dtype)
    before = checksum(tensor).item()
    assert checksum(tensor.clone()).item() == before
    tensor.view(torch.uint8)[byte % tensor.nbytes] ^= 1 << bit % 8
    assert checksum(tensor).item() != before


def test_where_a_tensor_lies_does_not_matter() -> None:
    around = torch.randn(11)
    for start in range(3):
        part = around[start : start + 8]
        assert checksum(part).item() == checksum(part.clone()).item() == checksum(part.view(2, 4).t().t()).item()


@pytest.mark.parametrize(
    ("everyone", "expected"),
    [
        ([{PLACE: 1}, {PLACE: 1}, {PLACE: 2}], ReplicaMismatch(("a",), (2,), True)),
        ([{PLACE: 1}, {}, {PLACE: 2}], ReplicaMismatch(("a",), (0, 2), False)),
        ([{PLACE: 1}, {PLACE: 2}, {PLACE: 3}], ReplicaMismatch(("a",), (0, 1, 2), False)),
        ([{PLACE: 1, OTHER: 5}, {PLACE: 2, OTHER: 5}, {PLACE: 1, OTHER: 4}], ReplicaMismatch(("a", "b"), (1, 2), True)),
        ([{}, {PLACE: 7}, {PLACE: 7}, {PLACE: 6}], ReplicaMismatch(("a",), (3,), True)),
    ],
)
def test_the_minority_is_named_where_there_is_one(everyone: list[dict[object, int]], expected: ReplicaMismatch) -> None:
    assert named(everyone) == expected  # type: ignore[arg-type]
