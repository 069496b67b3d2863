"""The loss scale falls on overflow, grows after good steps, keeps its bounds and comes back from its state."""

from shardyard.strategies.precision import MAX_SKIPPED, PRECISIONS, LossScale, loss_scale_for


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
    tried = []
    while not scale.exhausted:
        tried.append(scale.scale)
        scale.update(overflow=True)
    assert (len(tried), tried.count(scale.floor)) == (MAX_SKIPPED, 16)
    scale.update(overflow=False)
    assert not scale.exhausted and scale.skipped == 0


def test_continues_from_its_state() -> None:
    first, second = LossScale(scale=8.0, good_steps=5, skipped=3), LossScale()
    second.restore(first.state())
    assert second == first


def test_only_fp16_needs_one() -> None:
    assert [name for name, precision in PRECISIONS.items() if loss_scale_for(precision)] == ["fp16"]
