"""A decoder over a cube of ranks computes one process' loss and gradients, and sends and keeps what the formulas say."""

from typing import Any

import pytest
import torch
from harness.cubes import counted, cube, part
from harness.ranks import spawn
from torch import Tensor, nn

from shardyard.strategies.layout import Refusal
from shardyard.strategies.loss import TokenLoss
from shardyard.strategies.param_shard import manual_shards, narrow, slice_of
from shardyard.strategies.tensor_parallel.cube import Cube
from shardyard.strategies.tensor_parallel.cube_apply import apply_cube
from shardyard.workers.models.init import initial_value
from shardyard.workers.models.presets import Architecture
from shardyard.workers.models.registry import make

SIZES = {"layers": 2, "dim": 16, "heads": 4, "kv_heads": 2, "hidden": 24, "vocab": 33, "max_seq_len": 7}
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"family": "gpt2", "kv_heads": 4, "tied": True},
    "llama-tied-norms-biases": {"family": "llama", "tied": True, "qk_norm": True, "qkv_bias": True, "head_dim": 6},
    "llama-odd": {"family": "llama", "dim": 15, "heads": 2, "kv_heads": 2, "head_dim": 4, "hidden": 18},
}
BATCH, SEQ = 4, 7


def _model(arch: Architecture) -> nn.Module:
    """In fp64, whose parameters are all different: norms and biases are not one and zero."""
    model = make(arch).double()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(initial_value(f"{name}.table", value.shape, 1, arch).double() * 10 + (value.dim() == 1))
    return model


def _loss(model: nn.Module, tokens: Tensor) -> Tensor:
    loss: Tensor = TokenLoss(BATCH * SEQ, label_smoothing=0.1)(model(tokens[:, :-1]), tokens[:, 1:])
    return loss


def _divided(arch: Architecture, on: Cube) -> nn.Module:
    model = _model(arch)
    apply_cube(model, on)
    return model


def _own(tokens: Tensor, on: Cube) -> Tensor:
    return part(tokens, [(on.depth, 0), (on.row, 0)])


def _compare_all(rank: int, world: int, port: int) -> dict[str, dict[str, float]]:
    on = cube(rank, world, port)
    return {name: _compare(on, numbers) for name, numbers in MODELS.items()}


def _compare(on: Cube, numbers: dict[str, Any]) -> dict[str, float]:
    arch = Architecture(**{**SIZES, **numbers})
    tokens = torch.randint(0, arch.vocab, (BATCH, SEQ + 1), generator=torch.Generator().manual_seed(0))
    whole, own = _model(arch), _divided(arch, on)
    expected = _loss(whole, tokens)
    expected.backward()
    loss = _loss(own, _own(tokens, on))
    loss.backward()
    gradients = {name: value.grad for name, value in whole.named_parameters()}
    placed = manual_shards(own)
    worst = 0.0
    for name, value in own.named_parameters():
        gradient = gradients.pop(name)
        assert value.grad is not None and gradient is not None
        place = slice_of(gradient.shape, placed[name].cuts) if name in placed else slice_of(gradient.shape, ())
        difference = value.grad - narrow(gradient, *place)
        worst = max(worst, difference.abs().max().item()) if difference.numel() else worst
    assert not gradients
    return {
        "loss": abs(on.depth.sum(on.row.sum(loss.detach().clone())).item() - expected.item()),
        "gradient": worst,
        "matrices": sum(p.numel() for p in own.parameters() if p.dim() > 1),
        "all": sum(p.numel() for p in whole.parameters() if p.dim() > 1),
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
    arch = Architecture(
        **{**SIZES, "family": "gpt2", "kv_heads": 4, "vocab": 32, "layers": layers, "hidden": 64, "max_seq_len": 8}
    )
    tokens = torch.zeros(BATCH, 8, dtype=torch.int64)
    whole, model, own = _model(arch), _divided(arch, on), _own(tokens, on)
    kept = {"alone": _kept(whole, tokens), "cube": _kept(model, own)}
    with counted(on) as forward:
        out = model(own).to_local().sum()
    with counted(on) as backward:
        out.backward()
    return {**kept, "forward": _hidden(forward), "backward": _hidden(backward)}


def _kept(model: nn.Module, tokens: Tensor) -> float:
    """Numbers that autograd keeps, each storage once: not parameters, nor a few numbers per token (of norms and of attention)."""
    kept: dict[int, int] = {}
    parameters = {value.untyped_storage().data_ptr() for value in model.parameters()}

    def note(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in parameters and storage.nbytes() > tokens.numel() * 4 * 8:
            kept[storage.data_ptr()] = storage.nbytes() // 8
        return saved

    with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
        out = model(tokens)
    del out
    return sum(kept.values())


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
    mixture = Architecture(**{**SIZES, "family": "moe", "experts": 4})
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
