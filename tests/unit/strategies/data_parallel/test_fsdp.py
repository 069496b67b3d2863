"""What the blocks of a model are, which parameters ZeRO-3 can shard block by block, and what it gathers ahead."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from shardyard.strategies.data_parallel.fsdp import _prefetch, blocks, check_shared, round_scalars
from shardyard.strategies.layout import Refusal


class Model(nn.Module):
    """Two blocks between an embedding and a head that are tied."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.blocks = nn.ModuleDict({name: nn.Sequential(nn.Linear(4, 4)) for name in ("first", "second")})
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.embed.weight


def _refusal(model: nn.Module) -> Refusal:
    with pytest.raises(Refusal) as refused:
        check_shared(model)
    assert refused.value.field == "layout.zero" and "layout.zero to 2" in refused.value.remedy
    return refused.value


def test_a_parameter_of_two_blocks_is_refused_by_its_names() -> None:
    model = Model()
    model.blocks["second"][0].weight = model.blocks["first"][0].weight
    assert _refusal(model).message.startswith("blocks.first.0.weight and blocks.second.0.weight of Model")


def test_a_module_of_two_blocks_is_refused() -> None:
    model = Model()
    for block in model.blocks.values():
        block.bias = model.blocks["first"][0]
    assert "blocks.second.bias.weight" in _refusal(model).message


def test_a_parameter_of_a_block_and_of_the_rest_is_refused() -> None:
    model = Model()
    model.blocks["first"].table = model.embed
    assert "embed.weight" in _refusal(model).message


def test_what_is_in_no_block_may_be_shared() -> None:
    check_shared(Model())
    check_shared(nn.Linear(4, 4))


def test_what_no_rank_has_a_part_of_may_be_shared() -> None:
    """Scalars are replicated, and frozen parameters never differ."""
    model, scale = Model(), nn.Parameter(torch.tensor(0.5))
    for block in model.blocks.values():
        block.scale = scale
        block.frozen = nn.Parameter(torch.zeros(4), requires_grad=False)
    model.blocks["second"].frozen = model.blocks["first"].frozen
    check_shared(model)


def test_scalars_are_rounded_and_stay_the_parameters_that_they_were() -> None:
    """Several blocks may have one, and a list that is no module."""
    model: Any = Model()
    scale = nn.Parameter(torch.tensor(0.1))
    for block in model.blocks.values():
        block.scale = scale
    model.frozen = nn.Parameter(torch.tensor(0.1, dtype=torch.float64), requires_grad=False)
    model.steps = nn.Parameter(torch.tensor(3), requires_grad=False)
    model.listed = [scale]
    round_scalars(model, torch.bfloat16)
    assert all(block.scale is model.listed[0] for block in model.blocks.values())
    assert scale.item() == model.frozen.item() == 0.10009765625 and not model.frozen.requires_grad
    assert model.steps.dtype == torch.int64 and model.embed.weight.dtype == torch.float32
    (2 * model.listed[0]).backward()
    assert scale.grad is not None and scale.grad.dtype == torch.bfloat16


def test_the_blocks_are_those_that_a_pipeline_divides() -> None:
    model = Model()
    model.embed, model.head = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), nn.Identity()
    assert next(iter(dict(model.named_children()))) == "embed"
    assert list(blocks(model)) == list(model.blocks.values())


def test_without_that_name_they_are_in_the_first_container() -> None:
    model = nn.Module()
    model.norm, model.layers, model.heads = (nn.LayerNorm(4), nn.ModuleList([nn.Linear(4, 4)]), nn.ModuleList())
    assert list(blocks(model)) == list(model.layers)
    assert list(blocks(nn.Linear(4, 4))) == []


class _Requests(FSDPModule):
    """As `fully_shard` makes a module, without a process group."""

    def set_modules_to_forward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        self.__dict__["ahead"] = list(modules)


def _sharded(module: nn.Module) -> None:
    module.__class__ = type("Sharded", (_Requests, type(module)), {})


@pytest.mark.parametrize("depth", [1, 2])
def test_experts_are_requested_with_their_block(depth: int) -> None:
    """Each block requests its own, and those of the blocks ahead. They hold most of a mixture's weights."""
    model: Any = nn.Module()
    model.embed, model.blocks = nn.Embedding(8, 4), nn.ModuleDict()
    for name in ("a", "b", "c"):
        block: Any = nn.Sequential(nn.Linear(4, 4))
        block.mlp = nn.Module()
        block.mlp.experts = nn.Linear(4, 4)
        model.blocks[name] = block
        _sharded(block.mlp.experts)
        _sharded(block)
    _sharded(model)
    _prefetch(model, depth)
    names = {module: name.removeprefix("blocks.") for name, module in model.named_modules()}
    found = {name: [names[one] for one in module.ahead] for module, name in names.items() if hasattr(module, "ahead")}
    ahead = ["a", "a.mlp.experts", "b", "b.mlp.experts", "c", "c.mlp.experts"]
    assert found == {
        "": ahead[: 2 * depth],
        "a": ahead[1 : 2 + 2 * depth],
        "b": ahead[3:],
        "c": ["c.mlp.experts"],
    }
