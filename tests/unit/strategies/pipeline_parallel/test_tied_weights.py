"""Gradients of tied weights are sent from the device on which the rank computes, wherever the data strategy keeps them."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from shardyard.strategies.layout import Layout
from shardyard.strategies.param_shard import Tie, note_ties
from shardyard.strategies.pipeline_parallel.tied_weights import TiedWeights, held_by_several


def tied(gradient: torch.Tensor, device: str) -> tuple[TiedWeights, Any]:
    """A tied weight with this gradient on the first of two ranks that compute on `device`."""
    shard = SimpleNamespace(name="head.weight", gradient=gradient)
    hooks = dict.fromkeys(("before_backward", "publish", "after_validation", "collect", "settle", "finishing"))
    data = SimpleNamespace(shards=[shard], all_shards=[shard], reduce=lambda: None, **hooks)
    mesh = SimpleNamespace(group=lambda _: None, index=lambda _: 0, device=torch.device(device))
    return TiedWeights(cast(Any, data), {"head.weight": [0, 1]}, cast(Any, mesh)), shard


def test_a_gradient_on_the_host_is_sent_from_the_device_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    def summed(_: TiedWeights, mine: torch.Tensor, ranks: list[int]) -> torch.Tensor:
        sent.append((mine.device.type, mine.is_contiguous(), ranks))
        return torch.full(mine.shape, 3.0)

    monkeypatch.setattr(TiedWeights, "_summed", summed)
    weights, shard = tied(torch.ones(3, 2).t(), "meta")
    weights.reduce()
    assert sent == [("meta", True, [0, 1])]
    assert shard.gradient.device.type == "cpu" and shard.gradient.tolist() == [[3.0] * 3] * 2


def test_one_on_the_device_is_sent_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = torch.ones(2)
    monkeypatch.setattr(TiedWeights, "_summed", lambda _, mine, __: mine.mul_(2))
    weights, shard = tied(gradient, "cpu")
    weights.reduce()
    assert shard.gradient is gradient and gradient.tolist() == [2.0, 2.0]


def test_a_frozen_weight_has_no_gradient_that_several_ranks_add_up() -> None:
    part, layout = nn.Embedding(2, 2), Layout(pipeline=2)
    note_ties(part, {"weight": Tie("embed.weight", (0, 1), 0)})
    assert held_by_several([part], layout) == {"embed.weight": [0, 1]}
    part.weight.requires_grad_(False)
    assert held_by_several([part], layout) == {}
