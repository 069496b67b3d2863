"""A decoder over a cube of ranks computes one process' loss and gradients, and sends and keeps what the formulas say."""

from functools import partial
from typing import Any

from harness.cubes import counted, cube, part
from harness.divided_decoders import BATCH, SIZES, assert_equals_whole, compared, kept_and_sent, refusals
from harness.ranks import spawn
from torch import Tensor

from shardyard.strategies.tensor_parallel.cube import Cube
from shardyard.strategies.tensor_parallel.cube_apply import apply_cube

MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"family": "gpt2", "kv_heads": 4, "tied": True},
    "llama-tied-norms-biases": {"family": "llama", "tied": True, "qk_norm": True, "qkv_bias": True, "head_dim": 6},
    "llama-odd": {"family": "llama", "dim": 15, "heads": 2, "kv_heads": 2, "head_dim": 4, "hidden": 18},
}


def _own(tokens: Tensor, on: Cube) -> Tensor:
    return part(tokens, [(on.depth, 0), (on.row, 0)])


def _summed(loss: Tensor, on: Cube) -> Tensor:
    return on.depth.sum(on.row.sum(loss))


def _compare_all(rank: int, world: int, port: int) -> dict[str, dict[str, float]]:
    on = cube(rank, world, port)
    parts = partial(apply_cube, cube=on), partial(_own, on=on), partial(_summed, on=on)
    return {name: compared(numbers, *parts) for name, numbers in MODELS.items()}


def test_loss_and_every_gradient_are_those_of_one_process() -> None:
    ranks = spawn(_compare_all, 8)
    for name in MODELS:
        assert_equals_whole([rank[name] for rank in ranks], name)


def _kept_and_sent(rank: int, world: int, port: int) -> list[dict[str, float]]:
    """By number of layers, one and two."""
    on = cube(rank, world, port)
    divide, own, kinds = partial(apply_cube, cube=on), partial(_own, on=on), ("all_gather", "reduce_scatter")
    return [kept_and_sent(layers, divide, own, partial(counted, on), kinds) for layers in (1, 2)]


def test_a_block_keeps_a_share_of_everything_and_sends_what_the_paper_says() -> None:
    tokens, dim, size = BATCH * 8, SIZES["dim"], 2
    for few, many in spawn(_kept_and_sent, size**3):
        block_of = {what: many[what] - few[what] for what in few}
        assert block_of["divided"] == block_of["alone"] / size**3
        assert block_of["alone"] == 16 * tokens * dim
        # 2105.14450, section 3.1: each operand of a product, gathered or summed along one line of l of the l³ ranks.
        assert block_of["forward"] == (16 * tokens * dim + 12 * dim**2) * (size - 1) / size**3
        assert block_of["backward"] == (23 * tokens * dim + 24 * dim**2) * (size - 1) / size**3


def _refused(rank: int, world: int, port: int) -> list[str]:
    return refusals(partial(apply_cube, cube=cube(rank, world, port)))


def test_a_model_without_a_whole_plan_is_refused() -> None:
    (mixture, linear), *_ = spawn(_refused, 1)
    assert "leaves out the parameters of blocks.0.mlp" in mixture
    assert "Linear has no cube_plan()" in linear
