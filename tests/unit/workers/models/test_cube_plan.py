"""A decoder over a cube of ranks computes one process' loss and gradients, and sends and keeps what the formulas say."""

from typing import Any

import pytest
import torch
from harness.cubes import counted, cube, part
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
from harness.ranks import spawn
from torch import Tensor, nn

from shardyard.strategies.layout import Refusal
from shardyard.strategies.tensor_parallel.cube import Cube
from shardyard.strategies.tensor_parallel.cube_apply import apply_cube
from shardyard.workers.models.presets import Architecture
from shardyard.workers.models.registry import make

MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"family": "gpt2", "kv_heads": 4, "tied": True},
    "llama-tied-norms-biases": {"family": "llama", "tied": True, "qk_norm": True, "qkv_bias": True, "head_dim": 6},
    "llama-odd": {"family": "llama", "dim": 15, "heads": 2, "kv_heads": 2, "head_dim": 4, "hidden": 18},
}


def _divided(arch: Architecture, on: Cube) -> nn.Module:
    model = decoder(arch)
    apply_cube(model, on)
    return model


def _own(tokens: Tensor, on: Cube) -> Tensor:
    return part(tokens, [(on.depth, 0), (on.row, 0)])


def _compare_all(rank: int, world: int, port: int) -> dict[str, dict[str, float]]:
    on = cube(rank, world, port)
    return {name: _compare(on, numbers) for name, numbers in MODELS.items()}


def _compare(on: Cube, numbers: dict[str, Any]) -> dict[str, float]:
    arch = architecture(**numbers)
    tokens = some_tokens(arch)
    whole, own = decoder(arch), _divided(arch, on)
    expected = loss_of(whole, tokens)
    expected.backward()
    loss = loss_of(own, _own(tokens, on))
    loss.backward()
    return {
        "loss": abs(on.depth.sum(on.row.sum(loss.detach().clone())).item() - expected.item()),
        "gradient": worst_gradient(own, whole),
        "matrices": matrix_numbers(own),
        "all": matrix_numbers(whole),
    }


def test_loss_and_every_gradient_are_those_of_one_process() -> None:
    ranks = spawn(_compare_all, 8)
    for name in MODELS:
        found = [rank[name] for rank in ranks]
        assert max(rank["loss"] for rank in found) < 1e-13, name
        assert max(rank["gradient"] for rank in found) < 1e-13, name
        assert sum(rank["matrices"] for rank in found) == found[0]["all"], "a number of a matrix is on exactly one rank"


def _kept_and_sent(rank: int, world: int, port: int) -> list[dict[str, float]]:
    """By number of layers, one and two."""
    on = cube(rank, world, port)
    return [_of_layers(on, layers) for layers in (1, 2)]


def _of_layers(on: Cube, layers: int) -> dict[str, float]:
    """Elements that a GPT-2 of `layers` layers keeps for the backward pass, on the cube and alone, and elements that are sent."""
    arch = gpt2_of(layers)
    tokens = torch.zeros(BATCH, 8, dtype=torch.int64)
    whole, model, own = decoder(arch), _divided(arch, on), _own(tokens, on)
    kept = {"alone": numbers_kept(whole, tokens), "cube": numbers_kept(model, own)}
    with counted(on) as forward:
        out = model(own).to_local().sum()
    with counted(on) as backward:
        out.backward()
    return {**kept, "forward": _hidden(forward), "backward": _hidden(backward)}


def _hidden(traffic: Any) -> float:
    """Elements that are gathered and summed in parts: not those of all-reduces, which are numbers per token and per column."""
    plain = traffic.plain()
    kinds = ("all_gather", "reduce_scatter")
    return sum(found[kind]["elements"] for found in plain.values() for kind in kinds if kind in found)


def test_a_block_keeps_a_share_of_everything_and_sends_what_the_paper_says() -> None:
    tokens, dim, size = BATCH * 8, SIZES["dim"], 2
    for few, many in spawn(_kept_and_sent, size**3):
        block_of = {what: many[what] - few[what] for what in few}
        assert block_of["cube"] == block_of["alone"] / size**3
        assert block_of["alone"] == 16 * tokens * dim
        # 2105.14450, section 3.1: each operand of a product, gathered or summed along one line of l of the l³ ranks.
        assert block_of["forward"] == (16 * tokens * dim + 12 * dim**2) * (size - 1) / size**3
        assert block_of["backward"] == (23 * tokens * dim + 24 * dim**2) * (size - 1) / size**3


def _refused(rank: int, world: int, port: int) -> list[str]:
    on = cube(rank, world, port)
    mixture = architecture(family="moe", experts=4)
    found = []
    for model in (make(mixture), nn.Linear(2, 2)):
        with pytest.raises(Refusal) as refusal:
            apply_cube(model, on)
        found.append(str(refusal.value))
    return found


def test_a_model_without_a_whole_plan_is_refused() -> None:
    (mixture, linear), *_ = spawn(_refused, 1)
    assert "leaves out the parameters of blocks.0.mlp" in mixture
    assert "Linear has no cube_plan()" in linear
