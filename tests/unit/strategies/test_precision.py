"""The loss scale falls on overflow, grows after good steps, keeps its bounds and comes back from its state."""

import pytest
import torch

from shardyard.strategies.loss import TokenLoss
from shardyard.strategies.precision import MAX_SKIPPED_AT_FLOOR, PRECISIONS, LossScale, loss_scale_for


def test_halves_on_overflow_and_never_below_the_floor() -> None:
    scale = LossScale(scale=4.0)
    for expected in (2.0, 1.0, 1.0):
        scale.update(overflow=True)
        assert scale.scale == expected


def test_doubles_after_an_interval_of_good_steps_only() -> None:
    scale = LossScale(scale=4.0, interval=3)
    for overflow in (False, False, True, False, False, False):
        scale.update(overflow)
    assert scale.scale == 4.0  # halved to 2, then doubled after three good steps
    assert scale.good_steps == 0


def test_never_above_the_ceiling() -> None:
    scale = LossScale(scale=2.0**24, interval=1)
    scale.update(overflow=False)
    assert scale.scale == 2.0**24


def test_is_exhausted_by_skipped_steps_in_a_row_that_leave_it_tries_at_the_floor() -> None:
    scale = LossScale(scale=2.0**24)
    tried: list[float] = []
    while not scale.exhausted:
        tried.append(scale.scale)
        scale.update(overflow=True)
    assert (len(tried), tried.count(scale.floor)) == (scale.max_skipped, MAX_SKIPPED_AT_FLOOR) == (40, 16)
    scale.update(overflow=False)
    assert not scale.exhausted and scale.skipped == 0


@pytest.mark.parametrize("tokens", [1, 2**16, 2**22, 2**23 - 1])
def test_the_logits_of_a_token_get_a_gradient_at_any_number_of_tokens(tokens: int) -> None:
    scale = LossScale.for_tokens(tokens)
    least = 2.0**-24  # fp16's smallest value
    seldom = 1 / 128_000  # the softmax of an unlikely entry of a large vocabulary
    logits = torch.zeros(1, 1, 4, dtype=torch.float16, requires_grad=True)
    TokenLoss(tokens, scale)(logits, torch.zeros(1, 1, dtype=torch.int64)).backward()
    assert logits.grad is not None and logits.grad[0, 0, 0] == pytest.approx(-0.75 * scale.scale / tokens, rel=1e-3)
    assert seldom * scale.scale / tokens >= 64 * least  # six bits of it at least
    assert scale.ceiling == scale.scale * 2**8


def test_more_tokens_have_more_halvings_before_the_loss_scale_is_exhausted() -> None:
    assert [LossScale.for_tokens(tokens).max_skipped for tokens in (1, 2**17 - 1, 2**17, 2**22)] == [40, 40, 41, 46]


def test_continues_from_its_state() -> None:
    first, second = LossScale(scale=8.0, good_steps=5, skipped=3), LossScale()
    second.restore(first.state())
    assert second == first


def test_continues_with_as_much_per_token() -> None:
    small, large = LossScale.for_tokens(2**15), LossScale.for_tokens(2**23)
    small.update(overflow=True)
    large.restore(small.state())
    assert (large.scale, large.skipped) == (2.0**22, 1)
    again = LossScale.for_tokens(2**15)
    again.restore(large.state())
    assert again == small
    again.restore({**large.state(), "scale": 1.0})
    assert again.scale == again.floor
    earlier = {"scale": 2.0**18, "good_steps": 5, "skipped": 0, "interval": 2000, "floor": 1.0, "ceiling": 2.0**24}
    large.restore(earlier)
    assert (large.scale, large.good_steps) == (2.0**18, 5)


def test_only_fp16_needs_one() -> None:
    assert [name for name, precision in PRECISIONS.items() if loss_scale_for(precision, 8)] == ["fp16"]
