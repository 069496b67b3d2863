"""Which blocks compute their forward pass again."""

import functools

import pytest
from torch import nn

from shardyard.strategies.activation_memory.checkpointing import apply_recompute
from shardyard.strategies.memory_options import Recompute


@pytest.mark.parametrize(
    ("mode", "every", "again"),
    [("none", 1, []), ("full", 1, [0, 1, 2, 3, 4]), ("full", 2, [0, 2, 4]), ("full", 3, [0, 3])],
)
def test_every_nth_block_from_the_first(mode: str, every: int, again: list[int]) -> None:
    blocks = [nn.Linear(2, 2) for _ in range(5)]
    apply_recompute(blocks, Recompute.model_validate({"mode": mode, "every": every}))
    assert [number for number, block in enumerate(blocks) if isinstance(block.forward, functools.partial)] == again
