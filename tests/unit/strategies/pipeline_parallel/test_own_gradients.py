"""Passes for weights alone, of weights whose gradient is another's tensor; torch's own halves, over several micro-batches."""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from shardyard.strategies.pipeline_parallel.own_gradients import own_gradients


class Summed(nn.Module):
    """Two weights that are added up, and one that is added to the hidden state."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.delta = (nn.Parameter(torch.randn(4, 4)) for _ in range(2))
        self.shift = nn.Parameter(torch.randn(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ (self.base + self.delta)) + self.shift


@pytest.fixture
def stage() -> Summed:
    torch.manual_seed(0)
    return Summed()


def test_each_gradient_is_the_sum_over_micro_batches(stage: Summed) -> None:
    given, passed = torch.randn(3, 2, 4), torch.randn(3, 2, 4)
    sent = passed.clone()
    for x, gradient in zip(given, passed, strict=True):
        stage(x).backward(gradient)
    expected = [weight.grad for weight in stage.parameters()]
    stage.zero_grad()
    for x, gradient in zip(given, sent.unbind(), strict=True):
        x.requires_grad_()
        _, groups = stage_backward_input([stage(x)], [gradient], [x], stage.parameters())
        with own_gradients(stage, groups):
            stage_backward_weight(stage.parameters(), groups)
    torch.testing.assert_close([weight.grad for weight in stage.parameters()], expected)
    torch.testing.assert_close(sent, passed, rtol=0, atol=0)


class Permuted(nn.Module):
    """The gradient of its weight is a permuted tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bsd,ed->bse", x, self.weight)


class Repeated(Permuted):
    """The gradient of its weight is one number for all elements."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight.sum()


@pytest.mark.parametrize("kind", [Permuted, Repeated])
def test_gradients_are_contiguous_as_fused_optimizers_take_them(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    whole = kind().double()
    halves, given = copy.deepcopy(whole), torch.randn(2, 3, 5, 4, dtype=torch.float64)
    for x in given:
        whole(x).square().sum().backward()
    for x in given.unbind():
        x.requires_grad_()
        _, groups = stage_backward_input([halves(x).square().sum()], None, [x], halves.parameters())
        with own_gradients(halves, groups):
            stage_backward_weight(halves.parameters(), groups)
    for layer in (whole, halves):
        torch.optim.AdamW(layer.parameters(), lr=0.1, eps=1.0, fused=True).step()
    torch.testing.assert_close(list(halves.parameters()), list(whole.parameters()))


def test_what_is_a_weights_alone_is_not_copied() -> None:
    layer = nn.Linear(4, 4)
    x = torch.randn(2, 4, requires_grad=True)
    _, groups = stage_backward_input([layer(x).square().sum()], None, [x], layer.parameters())
    grads = []
    with own_gradients(layer, groups):
        stage_backward_weight(layer.parameters(), groups)
        grads = [weight.grad for weight in layer.parameters()]
    assert all(weight.grad is grad for weight, grad in zip(layer.parameters(), grads, strict=True))
