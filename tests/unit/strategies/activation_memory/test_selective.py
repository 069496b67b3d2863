"""Selective recompute: the same gradients as without, and nothing kept that the second pass does not ask for."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from shardyard.strategies.activation_memory.checkpointing import kept
from shardyard.strategies.activation_memory.selective import as_one, contexts, only_for_kept, watched

CONTEXTS: dict[str, Any] = {"use_reentrant": False, "context_fn": partial(contexts, kept)}


def _weights() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(6, 6, dtype=torch.float64, generator=generator, requires_grad=True) for _ in range(3)]


def _block(x: Tensor, first: Tensor, second: Tensor, last: Tensor) -> Tensor:
    return x + (x.mm(first).tanh().mm(second)).sin().mm(last)


def _gradients(run: Callable[..., Tensor]) -> list[Tensor]:
    x, *weights = torch.ones(4, 6, dtype=torch.float64, requires_grad=True), *_weights()
    return list(torch.autograd.grad(run(x, *weights).square().sum(), [x, *weights]))


def test_gradients_are_the_same() -> None:
    plain = _gradients(_block)
    for again, once in zip(_gradients(partial(checkpoint, _block, **CONTEXTS)), plain, strict=True):
        assert torch.equal(again, once)


def test_a_last_layer_is_not_kept_as_nothing_asks_for_it() -> None:
    seen: list[Tensor] = []
    with watched(seen.append):
        checkpoint(_block, torch.ones(4, 6, dtype=torch.float64), *_weights(), **CONTEXTS)
    assert len(seen) == 2


class _Product(torch.autograd.Function):
    """A product in two chunks of rows, kept as one. Notes each time when it is computed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, times: list[int]) -> Tensor:
        ctx.save_for_backward(x, weight)

        def make() -> list[Tensor]:
            times.append(len(times))
            return [torch.cat([chunk.mm(weight) for chunk in x.chunk(2)])]

        (product,) = as_one(make)
        return product

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        return grads[0].mm(weight.t()), x.t().mm(grads[0]), None


def test_several_operators_as_one_are_kept_once_and_not_computed_again() -> None:
    times: list[int] = []

    def block(x: Tensor, first: Tensor, second: Tensor, last: Tensor) -> Tensor:
        between = x.mm(first).tanh()
        return x + _Product.apply(between, second, times).sin().mm(last)  # type: ignore[no-untyped-call, no-any-return]

    seen: list[Tensor] = []
    with watched(seen.append):
        found = _gradients(partial(checkpoint, block, **CONTEXTS))
    assert [tuple(kept.shape) for kept in seen] == [(4, 6)] * 2  # of the first product, and of the one in chunks
    assert len(times) == 1
    for again, once in zip(found, _gradients(_block), strict=True):
        assert torch.equal(again, once)


@pytest.mark.parametrize("asked", [False, True])
def test_operators_as_one_are_kept_only_if_a_later_operator_asks_for_them(asked: bool) -> None:
    """As the chunks of a last layer."""

    def block(x: Tensor, first: Tensor, second: Tensor, last: Tensor) -> Tensor:
        between = x.mm(first).tanh()
        (whole,) = as_one(lambda: [torch.cat([chunk.mm(second.detach()) for chunk in between.detach().chunk(2)])])
        return between + (whole.sin().mm(last) if asked else whole)

    seen: list[Tensor] = []
    with watched(seen.append):
        checkpoint(block, torch.ones(4, 6, dtype=torch.float64), *_weights(), **CONTEXTS)
    assert len(seen) == (2 if asked else 1)


def test_operators_as_one_that_are_changed_in_place_are_said() -> None:
    def block(x: Tensor, first: Tensor, second: Tensor, last: Tensor) -> Tensor:
        return _Product.apply(x, first, []).sin_().mm(second).sin().mm(last)  # type: ignore[no-untyped-call, no-any-return]

    with pytest.raises(RuntimeError, match="several operators as one was changed in place"):
        _gradients(partial(checkpoint, block, **CONTEXTS))


def test_what_leads_to_kept_results_alone_is_neither_kept_nor_computed_again() -> None:
    def block(x: Tensor, first: Tensor, second: Tensor, last: Tensor) -> Tensor:
        with only_for_kept():
            between = x.mm(first.detach())
        return between.mm(second.detach()).sin().mm(last)

    seen: list[Tensor] = []
    weights = _weights()
    x = torch.ones(4, 6, dtype=torch.float64)
    with watched(seen.append):
        out = checkpoint(block, x, *weights, **CONTEXTS)
    (middle,) = seen
    assert torch.equal(middle, x.mm(weights[0]).mm(weights[1]))
    out.sum().backward()
    assert torch.equal(weights[2].grad, middle.sin().t().mm(torch.ones_like(out)))


def test_a_kept_result_that_is_changed_in_place_is_said() -> None:
    def block(x: Tensor, first: Tensor, second: Tensor, last: Tensor) -> Tensor:
        return x.mm(first).sin_().mm(second).sin().mm(last)

    with pytest.raises(RuntimeError, match="changed in place"):
        _gradients(partial(checkpoint, block, **CONTEXTS))


def test_a_block_that_runs_otherwise_the_second_time_is_said() -> None:
    turns = iter((False, True))

    def block(x: Tensor, first: Tensor, second: Tensor, last: Tensor) -> Tensor:
        hidden = torch.addmm(x, x, first) if next(turns) else x.mm(first)
        return hidden.sin().mm(second).sin().mm(last)

    with pytest.raises(RuntimeError, match="in its forward pass"):
        _gradients(partial(checkpoint, block, **CONTEXTS))
