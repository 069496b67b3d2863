"""Counters become rates."""

from shardyard.workers.messages.system_metrics import Rates, Reading


def test_a_counter_has_a_rate_from_its_second_reading_on() -> None:
    rates = Rates()
    assert rates.of(Reading({"memory": 5.0}, {"sent": 1000.0}), 10.0) == {"memory": 5.0}
    assert rates.of(Reading({}, {"sent": 3000.0}), 14.0) == {"sent": 500.0}


def test_a_counter_that_began_again_has_no_rate_once() -> None:
    rates = Rates()
    for count in (50.0, 10.0):
        assert rates.of(Reading({}, {"cpu": count}), count) == {}
    assert rates.of(Reading({}, {"cpu": 30.0}), 20.0) == {"cpu": 2.0}


def test_two_readings_at_one_time_have_no_rate() -> None:
    rates = Rates()
    for _ in range(2):
        assert rates.of(Reading({}, {"cpu": 1.0}), 1.0) == {}
