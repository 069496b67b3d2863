"""Which blocks compute their forward pass again."""

import functools

import pytest
import torch
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


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_the_compiler_takes_a_recomputed_block_as_one_graph(mode: str) -> None:
    block, given = nn.Linear(2, 2), torch.ones(1, 2)
    wanted = block(given)
    apply_recompute([block], Recompute.model_validate({"mode": mode}))
    compiled = torch.compile(block.forward, backend="aot_eager", fullgraph=True)
    result = compiled(given)
    result.sum().backward()
    assert result.equal(wanted)
    assert block.weight.grad is not None
