"""What the blocks of a model are, and which parameters ZeRO-3 can shard block by block."""

import pytest
import torch
from torch import nn

from shardyard.strategies.data_parallel.fsdp import blocks, check_shared
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
