"""Stages of a module of the user's own: what each holds, which weights are tied, and that together they compute what the whole does."""

import copy
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from shardyard.strategies.cost.stage_balance import ModuleCosts
from shardyard.strategies.layout import Layout, Refusal
from shardyard.strategies.param_shard import Tie, ties
from shardyard.strategies.pipeline_parallel.split import module_costs, split
from shardyard.strategies.pipeline_parallel.tied_weights import share

LANGUAGE = Path(__file__).parents[4] / "examples" / "language"


@pytest.fixture(scope="module")
def encoders() -> Iterator[Any]:
    """The module of examples/t5.yaml."""
    names = ("encoders", "blocks", "texts")
    sys.path.insert(0, str(LANGUAGE))
    try:
        yield importlib.import_module("encoders")
    finally:
        sys.path.remove(str(LANGUAGE))
        for name in names:
            sys.modules.pop(name, None)


def made(encoders: Any) -> Any:
    """An encoder of three blocks and a decoder of three, with the same values each time."""
    torch.manual_seed(3)
    return encoders.EncoderDecoder(dim=8, layers=3, heads=2).double()


def layout_of(*blocks: int) -> Layout:
    return Layout.model_validate({"pipeline": {"stages": len(blocks), "blocks": blocks}})


def stages_of(encoders: Any, *blocks: int) -> list[Any]:
    costs = ModuleCosts(0, (1,) * 6, 1)
    return [split(made(encoders), stage, layout_of(*blocks), costs) for stage in range(len(blocks))]


#: Cuts before, at and after the place where the decoder begins, and a last stage of the head alone.
CUTS = [(3, 3), (1, 5), (5, 1), (2, 2, 2), (1, 2, 2, 1), (2, 1, 1, 2), (1, 1, 1, 1, 1, 1), (3, 3, 0)]


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_stages_together_compute_what_the_whole_does(cut: tuple[int, ...], encoders: Any) -> None:
    """Losses and gradients: those of a tied weight are the sum over its stages."""
    fields = {"source": torch.randint(61, (4, 7)), "target": torch.randint(61, (4, 6))}
    whole = made(encoders)
    expected = whole(fields)
    expected.mean().backward()
    parts = stages_of(encoders, *cut)
    passed: Any = ()
    for part in parts:
        passed = part(fields, *passed)
    torch.testing.assert_close(passed, expected)
    passed.mean().backward()
    summed: dict[str, torch.Tensor] = {}
    for part in parts:
        for own, value in part.named_parameters():
            name = ties(part)[own].name if own in ties(part) else own
            if value.grad is not None:
                summed[name] = summed[name] + value.grad if name in summed else value.grad
    assert summed.keys() == dict(whole.named_parameters()).keys()
    for name, value in whole.named_parameters():
        torch.testing.assert_close(summed[name], value.grad)


def test_every_stage_holds_what_its_blocks_use(encoders: Any) -> None:
    held = [
        {name.partition(".")[0] for name, _ in part.named_parameters()} - {"blocks"}
        for part in stages_of(encoders, 2, 2, 2)
    ]
    assert held == [
        {"embed", "encoder_bias"},
        {"embed", "encoder_bias", "encoder_norm", "decoder_bias"},
        {"decoder_bias", "norm", "head"},
    ]


def test_a_weight_of_several_stages_has_one_name_and_one_owner(encoders: Any) -> None:
    parts = stages_of(encoders, 2, 2, 2)
    assert [ties(part).get("embed.weight") for part in parts] == [
        Tie("embed.weight", (0, 1, 2), 0),
        Tie("embed.weight", (0, 1, 2), 1),
        None,
    ]
    assert ties(parts[2])["head.weight"] == Tie("embed.weight", (0, 1, 2), 2)
    assert ties(parts[1])["decoder_bias.numbers.weight"] == Tie("decoder_bias.numbers.weight", (1, 2), 1)
    assert "encoder_norm.weight" not in ties(parts[1])
    assert [ties(part)[own].borrowed for part in parts for own in ties(part) if own.startswith(("embed", "head"))] == [
        False,
        True,
        True,
    ]


def test_stages_of_one_rank_share_the_parameter(encoders: Any) -> None:
    parts = stages_of(encoders, 2, 2, 1, 1)
    mine = [parts[1], parts[3]]  # as with two ranks and an interleaved schedule
    share(mine, scalars=True)
    assert mine[1].head.weight is not mine[0].embed.weight, "ZeRO-3 shards each part by itself"
    share(mine, scalars=False)
    assert mine[1].head.weight is mine[0].embed.weight
    assert mine[1].decoder_bias.numbers.weight is mine[0].decoder_bias.numbers.weight


def test_a_first_stage_without_what_begins_is_refused(encoders: Any) -> None:
    with pytest.raises(Refusal, match="the first stage has no block") as caught:
        stages_of(encoders, 0, 3, 3)
    assert caught.value.field == "layout.pipeline"


class Scaled(nn.Module):
    """Tokens → logits; `scale` is neither a block nor an end, and two blocks are the same."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        block = nn.Linear(3, 3)
        self.blocks = nn.ModuleDict({"a": block, "b": nn.Linear(3, 3), "c": block})
        self.scale = nn.Parameter(torch.ones(()))
        self.head = nn.Linear(3, 5)


def test_what_is_on_every_stage_and_what_two_blocks_share_is_tied() -> None:
    model = Scaled()
    parts = [split(Scaled(), stage, layout_of(1, 1, 1), module_costs(model)) for stage in range(3)]
    assert [sorted(ties(part)) for part in parts] == [
        ["blocks.a.bias", "blocks.a.weight", "scale"],
        ["scale"],
        ["blocks.c.bias", "blocks.c.weight", "scale"],
    ]
    assert ties(parts[2])["blocks.c.weight"] == Tie("blocks.a.weight", (0, 2), 2)
    assert ties(parts[1])["scale"] == Tie("scale", (0, 1, 2), 1)
    share([parts[0], parts[2]], scalars=True)
    assert parts[0].scale is parts[2].scale


@pytest.mark.parametrize(
    ("used_by", "message"),
    [({"embed": ["d"]}, "block 'd' of 'embed'"), ({"bias": ["a"]}, "'bias', which it does not have")],
)
def test_a_name_that_is_not_there_is_refused(used_by: dict[str, list[str]], message: str) -> None:
    model = Scaled()
    model.__dict__["used_by"] = used_by
    with pytest.raises(Refusal, match=message) as caught:
        split(model, 0, layout_of(1, 2), module_costs(model))
    assert caught.value.field == "layout.pipeline"


@pytest.mark.parametrize("used_by", [{"scale": ["b", "c"]}, {}], ids=["used by", "same block"])
def test_blocks_of_a_stage_that_share_a_weight_have_no_split_backward_pass(used_by: dict[str, list[str]]) -> None:
    """Torch frees the graph of one block's weights with that of the other's."""
    model = Scaled()
    model.blocks["d"] = nn.Linear(3, 3) if used_by else model.blocks["c"]
    model.__dict__["used_by"], costs = used_by, module_costs(model)
    split_later, whole = ((1, 3), "zb-h1"), ((1, 3), "1f1b")
    with pytest.raises(Refusal, match="zb-h1 splits the backward pass") as caught:
        _split(model, *split_later, costs)
    assert caught.value.field == "layout.schedule"
    _split(copy.deepcopy(model), *whole, costs)
    _split(copy.deepcopy(model), (3, 1), "zb-h1", costs)  # the first stage's passes are whole
    for value in (model.scale, *model.blocks["c"].parameters()):
        value.requires_grad_(False)
    _split(model, *split_later, costs)


def test_a_weight_on_every_stage_may_have_one_place_in_each_and_a_split_backward_pass() -> None:
    """As a norm after the blocks that is not called `norm`."""
    model = Scaled()
    model.blocks["c"] = nn.Linear(3, 3)
    _split(model, (1, 2), "zb-h1", module_costs(model))


def _split(model: nn.Module, blocks: tuple[int, int], schedule: str, costs: ModuleCosts) -> None:
    layout = Layout.model_validate({"pipeline": {"stages": 2, "blocks": blocks}, "schedule": schedule})
    split(model, 1, layout, costs)
