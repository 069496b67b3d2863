import pytest

from shardyard.workers.clock_offset import ANSWERS, LATER, ClockOffset


def offset(*behind_s: float) -> float:
    clock = ClockOffset()
    for one in behind_s:
        clock.add(one)
    return clock.seconds


def test_the_answer_that_waited_least_counts() -> None:
    assert offset() == 0.0
    assert offset(9.0, 0.5, 2.0, 30.0, 0.75) == 0.5
    assert offset(-3599.0, -3600.0, *[-3590.0] * (LATER - 1)) == -3600.0


@pytest.mark.parametrize("set_by_s", [3600.0, -3600.0])
def test_a_clock_that_is_set_is_followed_after_a_few_answers(set_by_s: float) -> None:
    assert offset(*[0.5] * ANSWERS, *[0.5 + set_by_s] * LATER) == 0.5 + set_by_s


def test_a_clock_that_drifts_is_followed() -> None:
    assert offset(*[0.5] * ANSWERS, *[1.0] * ANSWERS) == 1.0
