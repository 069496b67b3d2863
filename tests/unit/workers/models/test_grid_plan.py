"""A decoder over a grid of ranks computes one process' loss and gradients, and sends and keeps what the formulas say."""

from functools import partial
from typing import Any

import pytest
from harness.divided_decoders import BATCH, SIZES, assert_equals_whole, compared, kept_and_sent, refusals
from harness.grids import block, counted, grid
from harness.ranks import spawn

from shardyard.strategies.tensor_parallel.grid_apply import apply_grid

MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"family": "gpt2", "kv_heads": 4, "tied": True},
    "llama": {"family": "llama"},
    "llama-tied-norms-biases": {"family": "llama", "tied": True, "qk_norm": True, "qkv_bias": True, "head_dim": 6},
}


def _compare(rank: int, world: int, port: int, numbers: dict[str, Any]) -> dict[str, float]:
    on = grid(rank, world, port)
    own = partial(block, on=on, rows=0, columns=None)
    return compared(numbers, partial(apply_grid, grid=on), own, on.column.sum)


@pytest.mark.parametrize("name", MODELS)
def test_loss_and_every_gradient_are_those_of_one_process(name: str) -> None:
    assert_equals_whole(spawn(_compare, 4, MODELS[name]), name)


def _kept_and_sent(rank: int, world: int, port: int, layers: int) -> dict[str, float]:
    on = grid(rank, world, port)
    own = partial(block, on=on, rows=0, columns=None)
    return kept_and_sent(layers, partial(apply_grid, grid=on), own, partial(counted, on), ("broadcast", "reduce"))


def test_a_block_keeps_a_share_of_everything_and_sends_what_the_paper_says() -> None:
    tokens, dim, size = BATCH * 8, SIZES["dim"], 2
    shallow, deep = (spawn(_kept_and_sent, size**2, layers) for layers in (1, 2))
    for few, many in zip(shallow, deep, strict=True):
        block_of = {what: many[what] - few[what] for what in few}
        assert block_of["divided"] == block_of["alone"] / size**2
        assert block_of["alone"] == 16 * tokens * dim
        # 2104.05343, table 1, with (q − 1)/q² in the place of log₂(p)/(2√p).
        assert block_of["forward"] == (7 * tokens * dim + 12 * dim**2) * (size - 1) / size**2
        assert block_of["backward"] == 2 * block_of["forward"]


def _refused(rank: int, world: int, port: int) -> list[str]:
    return refusals(partial(apply_grid, grid=grid(rank, world, port)))


def test_a_model_without_a_whole_plan_is_refused() -> None:
    (mixture, linear), *_ = spawn(_refused, 1)
    assert "leaves out the parameters of blocks.0.mlp" in mixture
    assert "Linear has no grid_plan()" in linear
