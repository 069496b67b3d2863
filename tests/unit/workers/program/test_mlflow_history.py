"""All values of metrics of MLflow clients, read back page by page, and thinned when there are too many."""

import math

import pytest

from shardyard.workers.messages.metric_block import MOST_NAMES
from shardyard.workers.program import mlflow_history
from shardyard.workers.program.mlflow_history import MetricHistories, MetricHistory, Value


def history(count: int) -> MetricHistory:
    found = MetricHistory(Value(0, 1000, 0.0))
    for number in range(1, count):
        found.add(Value(number, 1000 + number, float(number)))
    return found


def steps(found: MetricHistory, size: int) -> list[list[int]]:
    pages: list[list[int]] = []
    start: int | None = 0
    while start is not None:
        page, start = found.page(start, size)
        pages.append([one.step for one in page])
    return pages


def test_pages_have_every_value_in_the_order_of_logging() -> None:
    assert steps(history(5), 2) == [[0, 1], [2, 3], [4]] and steps(history(4), 2) == [[0, 1], [2, 3]]
    found = history(2)
    found.add(Value(1, 900, 7.0))
    assert found.page(0, 10) == ([Value(0, 1000, 0.0), Value(1, 1001, 1.0), Value(1, 900, 7.0)], None)
    assert found.newest == Value(1, 900, 7.0), "of the highest step the one that was logged last"


def test_a_thinned_history_has_the_first_and_the_last_value() -> None:
    found = history(10)
    found.thin()
    assert steps(found, 3) == [[0, 2, 4], [6, 8, 9]] and steps(found, 5) == [[0, 2, 4, 6, 8], [9]]
    found.add(Value(10, 1010, 10.0))
    assert steps(found, 100) == [[0, 2, 4, 6, 8, 10]]
    found.thin()
    for number in range(11, 15):
        found.add(Value(number, 1000 + number, 0.0))
    assert steps(found, 100) == [[0, 4, 8, 12, 14]] and found.every == 4 and len(found) == 4


def test_pages_that_are_read_while_it_is_thinned_have_no_value_twice() -> None:
    found = history(100)
    first, start = found.page(0, 10)
    found.thin()
    assert start is not None
    second, _ = found.page(start, 10)
    assert [one.step for one in (*first, *second)] == [*range(10), *range(10, 30, 2)]


def test_a_value_is_recognised_by_step_time_and_value() -> None:
    found = history(3)
    for _ in range(2):
        found.add(Value(7, 1002, math.nan))
        assert found.has(Value(7, 1002, math.nan)) and found.has(Value(1, 1001, 1.0))
        assert not found.has(Value(1, 1001, 2.0)) and not found.has(Value(1, 1002, 1.0))
        assert not found.has(Value(2, 1001, 1.0)) and not found.has(Value(9, 2000, 1.0))
        found.add(Value(8, 500, 1.0))  # the times are no longer ordered


def test_the_longest_history_is_thinned_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_history, "MOST_VALUES", 100)
    thinned: list[tuple[str, str]] = []
    kept = MetricHistories(lambda run, key: thinned.append((run, key)))
    for number in range(500):
        kept.add("r", "long", Value(number, number, 1.0))
        if number < 20:
            kept.add("r", "short", Value(number, number, 1.0))
    found = kept.of("r")
    assert thinned == [("r", "long")] and (found["long"].every, found["short"].every) == (8, 1)
    assert sum(map(len, found.values())) <= 100 and len(found["short"]) == 20
    kept.forget("r")
    kept.forget("never there")
    assert kept.of("r") == {} and (kept._names, kept._values) == (0, 0)


def test_metrics_beyond_a_thousand_have_no_history() -> None:
    kept = MetricHistories(lambda run, key: None)
    for number in range(MOST_NAMES + 5):
        kept.add(f"run {number % 2}", f"m{number}", Value(0, 0, 1.0))
    assert len(kept.of("run 0")) + len(kept.of("run 1")) == MOST_NAMES
    kept.forget("run 0")
    kept.add("run 1", "one more", Value(0, 0, 1.0))
    assert "one more" in kept.of("run 1")
