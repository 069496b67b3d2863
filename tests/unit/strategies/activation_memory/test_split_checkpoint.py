"""Blocks that each half of a backward pass computes again: the same bits, once per half, and one block's tensors at a time."""

import gc
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from shardyard.strategies.activation_memory.checkpointing import apply_recompute
from shardyard.strategies.activation_memory.split_checkpoint import SplitCheckpoint, _Dropped
from shardyard.strategies.memory_options import Recompute


class Block(nn.Module):
    """Counts its forward passes."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 12), nn.Linear(12, 6)
        self.dropout = nn.Dropout(dropout)
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        out: Tensor = x + self.down(self.dropout(self.up(self.norm(x)).tanh()))
        return out


def _blocks(count: int, mode: str = "none", every: int = 1, dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    blocks = nn.Sequential(*(Block(dropout) for _ in range(count))).double()
    apply_recompute(list(blocks), Recompute.model_validate({"mode": mode, "every": every}), halves=True)
    return blocks


def _input() -> Tensor:
    return torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()


def _halves(blocks: nn.Module, between: Callable[[], None] = lambda: None) -> list[Tensor]:
    """The gradients of the input and of the weights, as torch's schedules compute them."""
    torch.manual_seed(2)
    x = _input()
    loss = blocks(x).square().sum()
    torch.rand(5)  # the random state moves on
    (of_input, *_), groups = stage_backward_input([loss], None, [x], blocks.parameters())
    between()
    stage_backward_weight(blocks.parameters(), groups)
    assert of_input is not None
    return [of_input, *(value.grad for value in blocks.parameters() if value.grad is not None)]


@pytest.mark.parametrize("mode", ["full", "selective"])
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_gradients_of_both_halves_are_the_same(mode: str, every: int, dropout: float) -> None:
    plain = _halves(_blocks(3, dropout=dropout))
    again = _halves(_blocks(3, mode, every, dropout))
    assert len(again) == len(plain) == 1 + 3 * 6
    assert all(torch.equal(one, other) for one, other in zip(again, plain, strict=True))


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_each_half_computes_a_block_once(mode: str) -> None:
    blocks = _blocks(3, mode)
    runs: list[list[int]] = []
    _halves(blocks, lambda: runs.append([block.runs for block in blocks]))
    assert runs == [[2, 2, 2]]
    assert [block.runs for block in blocks] == [
        2,
        3,
        3,
    ]  # the first half ends with the first block, whose tensors are still there


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_a_whole_backward_pass_has_the_same_bits(mode: str) -> None:
    found = []
    for blocks in (_blocks(3), _blocks(3, mode)):
        torch.manual_seed(2)
        x = _input()
        blocks(x).square().sum().backward()
        found.append([x.grad, *(value.grad for value in blocks.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_one_block_has_its_tensors_at_a_time_and_none_when_the_graph_is_gone() -> None:
    blocks, x = _blocks(3, "full"), _input()
    loss = blocks(x).square().sum()
    assert _filled() == set()
    torch.autograd.grad(loss, [x], retain_graph=True)
    first = _filled()
    torch.autograd.grad(loss, list(blocks[2].parameters()), retain_graph=True)
    assert len(first) == len(_filled()) == 1 and _filled() != first
    del loss
    gc.collect()
    assert _filled() == set()


def _filled() -> set[int]:
    """The calls whose dropped tensors are there."""
    return {id(one.call) for one in gc.get_objects() if type(one) is _Dropped and one.tensor is not None}


def test_hooks_around_a_block_see_its_input_alone() -> None:
    seen: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        seen.append(tensor)
        return tensor

    (block,), x = _blocks(1, "full"), _input()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        block(x)
    assert [tensor.data_ptr() for tensor in seen] == [x.data_ptr()]


def test_arguments_that_are_no_tensors_and_named_ones_come_back() -> None:
    def scaled(x: Tensor, factor: float, *, shift: Tensor) -> Tensor:
        return (x * factor + shift).tanh().exp()

    def gradients(run: Callable[..., Tensor]) -> Sequence[Tensor]:
        x, shift = _input(), torch.ones(6, dtype=torch.float64, requires_grad=True)
        return torch.autograd.grad(run(x, 0.5, shift=shift).sum(), [x, shift])

    plain, again = gradients(scaled), gradients(partial(SplitCheckpoint().run, scaled))
    assert all(torch.equal(one, other) for one, other in zip(again, plain, strict=True))


def test_without_gradients_nothing_is_noted() -> None:
    (block,) = _blocks(1, "full")
    with torch.no_grad():
        assert not block(_input()).requires_grad
    assert block.runs == 1


def test_a_block_that_saves_less_the_second_time_is_said() -> None:
    turns = iter((True, False))

    def block(x: Tensor) -> Tensor:
        return x.sin().exp() if next(turns) else x.sin()

    x = _input()
    with pytest.raises(RuntimeError, match="saved fewer tensors"):
        SplitCheckpoint().run(block, x).sum().backward()
