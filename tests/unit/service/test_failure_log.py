"""What fails all the time is one line a minute, with a count, and one line at its end."""

import logging

import pytest

from shardyard.service.failure_log import EVERY_S, FailureLog


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def failures(clock: Clock, caplog: pytest.LogCaptureFixture) -> FailureLog:
    caplog.set_level(logging.INFO)
    return FailureLog(logging.getLogger("test"), clock)


def test_a_minute_of_failures_is_one_line_and_the_next_line_counts_them(
    failures: FailureLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(600):
        failures.failed("away", "The database does not answer.")
        clock.now += 0.1
    assert caplog.messages == ["The database does not answer."]
    clock.now += 1
    failures.failed("away", "The database does not answer.")
    assert caplog.messages[1:] == ["The database does not answer. (599 more since the last such line)"]
    assert list(failures.failing) == ["away"]


def test_the_end_is_one_line_with_its_length(
    failures: FailureLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    failures.works("away", "It answers again.")
    for _ in range(3):
        failures.failed("away", "Away.")
        clock.now += 5
    failures.works("away", "It answers again.")
    failures.works("away", "It answers again.")
    assert caplog.messages == ["Away.", "It answers again. It had failed for 15 s (3×)."]
    assert not failures.failing


def test_a_cause_that_comes_and_goes_writes_two_lines_a_minute(
    failures: FailureLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(int(2 * EVERY_S)):
        failures.failed("away", "Away.")
        failures.works("away", "Back.")
        clock.now += 1
    assert caplog.messages == [
        "Away.",
        "Back. It had failed for 0 s (1×).",
        "Away. (59 more since the last such line)",
        "Back. It had failed for 0 s (1×).",
    ]


def test_causes_are_apart_and_a_traceback_comes_with_the_line(
    failures: FailureLog, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        failures.failed("away", "Away.")
        failures.failed("broken", "Broken.", ValueError("why"))
    assert caplog.messages == ["Away.", "Broken."]
    assert [record.exc_info is not None for record in caplog.records] == [False, True]
