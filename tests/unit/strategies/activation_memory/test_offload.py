"""A block's activations leave the device soon after its forward pass, and are back before its backward pass; no number changes."""

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from shardyard.strategies.activation_memory import offload


def blocks(count: int = 6) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.GELU()) for _ in range(count)))


def gradients(model: nn.Module, passes: int = 1, twice: bool = False) -> list[torch.Tensor]:
    losses = [model(torch.full((3, 4), 1.0 + number)).sum() for number in range(passes)]
    for loss in losses:
        loss.backward(retain_graph=twice)
        if twice:
            loss.backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def both(**how: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    plain, moved = blocks(), blocks()
    offload.offload_activations(moved)
    return gradients(plain, **how), gradients(moved, **how)


def test_gradients_are_the_same_bits() -> None:
    for how in ({}, {"passes": 3}, {"twice": True}):
        expected, found = both(**how)
        assert len(found) == 12 and all(map(torch.equal, found, expected))


def test_the_device_has_those_of_two_blocks_and_fetches_one_ahead() -> None:
    model = blocks()
    kept: list[weakref.ref[Any]] = []
    given = offload._Offload.end

    class Noted(offload._Offload):
        def end(self, one: Any) -> None:
            given(self, one)
            kept.append(weakref.ref(one))
            assert self.leaving[-1] is one and len(self.leaving) <= 2

    shared = Noted()
    for number, block in enumerate(model):
        block.forward = offload.functools.partial(offload._forward, shared, number == 0, block, block.forward)
    loss = model(torch.ones(3, 4)).sum()

    def on_device() -> list[int]:
        found = enumerate(one() for one in kept)
        return [number for number, one in found if one is not None and any(t is not None for t in one.tensors)]

    assert on_device() == [4, 5]
    seen: list[list[int]] = []
    for block in model:  # at its weight's gradient a block has used all of its own
        block[0].weight.register_hook(lambda _: seen.append(on_device()))
    loss.backward()
    assert seen == [[4], [3], [2], [1], [0], []]
    del loss
    gc.collect()
    assert [one() for one in kept] == [None] * 6


@pytest.mark.parametrize("changed", [1, 5])
def test_a_kept_tensor_that_is_changed_in_place_is_an_error(changed: int) -> None:
    """As torch makes it one without offload. The first is found when it is freed, the last in the backward pass."""
    model = blocks()
    offload.offload_activations(model)
    found: list[torch.Tensor] = []
    for block in model:
        block[0].register_forward_hook(lambda _, __, result: found.append(result.detach()))
    value = torch.ones(3, 4)
    with pytest.raises(RuntimeError, match="changed in place"):
        for number, block in enumerate(model):
            value = block(value)
            if number == changed:
                found[number].add_(1)
        value.sum().backward()


def test_without_gradients_nothing_is_kept() -> None:
    model = blocks()
    offload.offload_activations(model)
    with torch.no_grad():
        model(torch.ones(3, 4))
    assert model(torch.ones(3, 4)).requires_grad
