"""The loss over chunks equals the head and the whole loss, value and gradients; whole logits never exist."""

from typing import Any, cast

import pytest
import torch
from torch import nn

from shardyard.strategies.chunked_loss import HeadLoss
from shardyard.strategies.dispatch_mode import DispatchMode
from shardyard.strategies.documents import IGNORED
from shardyard.strategies.layout import Layout
from shardyard.strategies.loss import TokenLoss
from shardyard.strategies.mesh import Mesh
from shardyard.strategies.precision import LossScale

TERMS = [(0.0, 0.0), (0.1, 0.0), (0.0, 1e-3), (0.3, 0.5)]
BATCH, SEQ, DIM, VOCAB = 3, 5, 8, 32


class OneRank:
    """The mesh of one process."""

    layout = Layout()

    def size(self, axis: str) -> int:
        assert axis == "tensor"
        return 1

    def index(self, axis: str) -> int:
        assert axis == "tensor"
        return 0


ALONE = cast(Mesh, OneRank())


class Sizes(DispatchMode):
    """Notes the most elements of a tensor that an operator returns."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for one in result if isinstance(result, tuple | list) else (result,):
            if isinstance(one, torch.Tensor):
                self.most = max(self.most, one.numel())
        return result


def _given(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, nn.Linear]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(BATCH, SEQ, DIM, generator=generator, dtype=torch.float64)
    head = nn.Linear(DIM, VOCAB, bias=False, dtype=dtype)
    with torch.no_grad():
        head.weight.copy_(torch.randn(VOCAB, DIM, generator=generator, dtype=torch.float64))
    return hidden.to(dtype), torch.randint(0, VOCAB, (BATCH, SEQ), generator=generator), head


def _both(dtype: torch.dtype, loss: TokenLoss, chunk: int, given: float = 1.0) -> list[tuple[torch.Tensor, ...]]:
    """Value, gradient of hidden states and of the weight: of the plain loss, and of the chunked one."""
    found = []
    for chunked in (False, True):
        hidden, targets, head = _given(dtype)
        hidden.requires_grad_()
        value = HeadLoss(loss, head, ALONE, chunk)(hidden, targets) if chunked else loss(head(hidden), targets)
        (given * value).backward()
        assert hidden.grad is not None and head.weight.grad is not None
        found.append((value.detach(), hidden.grad, head.weight.grad))
    return found


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("chunk", [1, 4, 15])
def test_equals_the_plain_loss_in_float64(chunk: int, terms: tuple[float, float]) -> None:
    plain, chunked = _both(torch.float64, TokenLoss(15, LossScale(scale=4.0), *terms), chunk, given=3.0)
    for expected, value in zip(plain, chunked, strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 4e-3)])
def test_follows_the_plain_loss_in_low_precision(dtype: torch.dtype, bound: float) -> None:
    plain, chunked = _both(dtype, TokenLoss(15, None, 0.1, 1e-3), 4)
    for expected, value in zip(plain, chunked, strict=True):
        assert value.dtype == expected.dtype
        torch.testing.assert_close(value, expected, rtol=bound, atol=bound)


def test_the_loss_scale_is_in_the_logits_gradient() -> None:
    """In fp16 a share of 2⁻³⁰ is zero unless the scale multiplies it before it is rounded."""
    _, (_, of_hidden, of_weight) = _both(torch.float16, TokenLoss(1 << 30, LossScale(scale=2.0**30)), 4)
    assert of_hidden.abs().max() > 1e-3 and of_weight.abs().max() > 1e-3


def test_the_weights_gradient_is_summed_over_chunks_in_float32() -> None:
    """A sum of 512 products in bf16 would stop growing at 256 times a product."""
    hidden = torch.ones(1, 512, 1, dtype=torch.bfloat16, requires_grad=True)
    head = nn.Linear(1, 2, bias=False, dtype=torch.bfloat16)
    nn.init.zeros_(head.weight)
    HeadLoss(TokenLoss(1), head, ALONE, 1)(hidden, torch.zeros(1, 512, dtype=torch.int64)).backward()
    assert head.weight.grad is not None
    assert head.weight.grad.flatten().tolist() == [-256.0, 256.0]


def test_only_a_chunks_logits_exist() -> None:
    for chunked, most in ((False, 15 * VOCAB), (True, VOCAB * DIM)):
        hidden, targets, head = _given(torch.float32)
        hidden.requires_grad_()
        loss = TokenLoss(15)
        with Sizes() as sizes:
            value = HeadLoss(loss, head, ALONE, 2)(hidden, targets) if chunked else loss(head(hidden), targets)
            value.backward()
        assert sizes.most == most


def test_validation_measures_cross_entropy_alone_and_keeps_nothing() -> None:
    hidden, targets, head = _given(torch.float64)
    with torch.no_grad():
        value = HeadLoss(TokenLoss(15, None, 0.1, 1e-2), head, ALONE, 4)(hidden, targets)
        expected = TokenLoss(15)(head(hidden), targets)
    assert not value.requires_grad
    torch.testing.assert_close(value, expected, rtol=1e-13, atol=0)


def test_a_backward_pass_may_run_twice() -> None:
    """As under schedules that compute gradients of inputs first and of weights later."""
    hidden, targets, head = _given(torch.float64)
    hidden.requires_grad_()
    value = HeadLoss(TokenLoss(15), head, ALONE, 4)(hidden, targets)
    (first,) = torch.autograd.grad(value, hidden, retain_graph=True)
    (second,) = torch.autograd.grad(value, head.weight)
    _, of_hidden, of_weight = _both(torch.float64, TokenLoss(15), 4)[0]
    torch.testing.assert_close(first, of_hidden, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(second, of_weight, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("terms", TERMS)
def test_ignored_targets_are_ignored_in_chunks(terms: tuple[float, float]) -> None:
    loss = TokenLoss(15, None, *terms)
    found = []
    for chunk in (None, 4):
        hidden, targets, head = _given(torch.float64)
        targets[0, 1] = targets[1] = IGNORED
        hidden.requires_grad_()
        value = loss(head(hidden), targets) if chunk is None else HeadLoss(loss, head, ALONE, chunk)(hidden, targets)
        value.backward()
        found.append((value.detach(), hidden.grad, head.weight.grad))
    for plain, chunked in zip(*found, strict=True):
        assert plain is not None and chunked is not None
        torch.testing.assert_close(chunked, plain, rtol=1e-12, atol=1e-14)
    assert found[1][1][1].count_nonzero() == 0
