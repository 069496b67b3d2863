"""A decoder over a grid of ranks computes one process' loss and gradients, and sends and keeps what the formulas say."""

from typing import Any

import pytest
import torch
from harness.divided_decoders import (
    BATCH,
    SIZES,
    architecture,
    decoder,
    gpt2_of,
    loss_of,
    matrix_numbers,
    numbers_kept,
    some_tokens,
    worst_gradient,
)
from harness.grids import block, counted, grid
from harness.ranks import spawn
from torch import nn

from shardyard.strategies.layout import Refusal
from shardyard.strategies.tensor_parallel.grid import Grid
from shardyard.strategies.tensor_parallel.grid_apply import apply_grid
from shardyard.workers.models.presets import Architecture
from shardyard.workers.models.registry import make

MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"family": "gpt2", "kv_heads": 4, "tied": True},
    "llama": {"family": "llama"},
    "llama-tied-norms-biases": {"family": "llama", "tied": True, "qk_norm": True, "qkv_bias": True, "head_dim": 6},
}


def _divided(arch: Architecture, on: Grid) -> nn.Module:
    model = decoder(arch)
    apply_grid(model, on)
    return model


def _compare(rank: int, world: int, port: int, numbers: dict[str, Any]) -> dict[str, float]:
    on = grid(rank, world, port)
    arch = architecture(**numbers)
    tokens = some_tokens(arch)
    whole, own = decoder(arch), _divided(arch, on)
    expected = loss_of(whole, tokens)
    expected.backward()
    loss = loss_of(own, block(tokens, on, rows=0, columns=None))
    loss.backward()
    return {
        "loss": abs(float(on.column.sum(loss.detach().clone()) - expected)),
        "gradient": worst_gradient(own, whole),
        "matrices": matrix_numbers(own),
        "all": matrix_numbers(whole),
    }


@pytest.mark.parametrize("numbers", MODELS.values(), ids=MODELS.keys())
def test_loss_and_every_gradient_are_those_of_one_process(numbers: dict[str, Any]) -> None:
    found = spawn(_compare, 4, numbers)
    for rank in found:
        assert rank["loss"] < 1e-13
        assert rank["gradient"] < 1e-13
    assert sum(rank["matrices"] for rank in found) == found[0]["all"]  # each number of a matrix is on exactly one rank


def _kept_and_sent(rank: int, world: int, port: int, layers: int) -> dict[str, float]:
    """Elements that a GPT-2 of `layers` layers keeps for the backward pass, on the grid and alone, and elements that are sent."""
    on = grid(rank, world, port)
    arch = gpt2_of(layers)
    tokens = torch.zeros(BATCH, 8, dtype=torch.int64)
    whole, model, own = decoder(arch), _divided(arch, on), block(tokens, on, rows=0, columns=None)
    kept = {"alone": numbers_kept(whole, tokens), "grid": numbers_kept(model, own)}
    with counted(on) as forward:
        out = model(own).to_local().sum()
    with counted(on) as backward:
        out.backward()
    return {**kept, "forward": _hidden(forward), "backward": _hidden(backward)}


def _hidden(traffic: Any) -> float:
    """Elements that broadcasts and reductions move: not those of all-reduces, which are numbers per token and per column."""
    plain = traffic.plain()
    return sum(
        m["elements"] for kinds in plain.values() for kind, m in kinds.items() if kind in ("broadcast", "reduce")
    )


def test_a_block_keeps_a_share_of_everything_and_sends_what_the_paper_says() -> None:
    tokens, dim, size = BATCH * 8, SIZES["dim"], 2
    shallow, deep = (spawn(_kept_and_sent, size**2, layers) for layers in (1, 2))
    for few, many in zip(shallow, deep, strict=True):
        block_of = {what: many[what] - few[what] for what in few}
        assert block_of["grid"] == block_of["alone"] / size**2
        assert block_of["alone"] == 16 * tokens * dim
        # 2104.05343, table 1, with (q − 1)/q² in the place of log₂(p)/(2√p).
        assert block_of["forward"] == (7 * tokens * dim + 12 * dim**2) * (size - 1) / size**2
        assert block_of["backward"] == 2 * block_of["forward"]


def _refused(rank: int, world: int, port: int) -> list[str]:
    on = grid(rank, world, port)
    mixture = architecture(family="moe", experts=4)
    found = []
    for model in (make(mixture), nn.Linear(2, 2)):
        with pytest.raises(Refusal) as refusal:
            apply_grid(model, on)
        found.append(str(refusal.value))
    return found


def test_a_model_without_a_whole_plan_is_refused() -> None:
    (mixture, linear), *_ = spawn(_refused, 1)
    assert "leaves out the parameters of blocks.0.mlp" in mixture
    assert "Linear has no grid_plan()" in linear
