"""What a rank reports comes back as it was reported; what is no such thing is refused as a whole."""

import json
from typing import Any

import pytest
from harness.trace_events import crowded_trace_part, trace_part

from shardyard.service.store.packing.trace_spans import CATEGORIES, MOST_SPANS, body_of, columns, event_of
from shardyard.workers.messages.event import TraceEvent, read


def test_what_was_reported_comes_back() -> None:
    part = trace_part("trace-1", 1, 7)
    row = columns(read(TraceEvent, part), 8)
    assert (row["rank"], row["step"], row["began"], row["seconds"]) == (1, 7, part["began"], part["seconds"])
    again = event_of(row)
    assert json.loads(json.dumps(again)) == {name: value for name, value in part.items() if name != "id"}
    assert event_of(columns(read(TraceEvent, trace_part("trace-1", 0, 7, pipeline=False)), 8))["pipeline"] is None


def test_categories_that_are_unknown_are_others_and_texts_are_short() -> None:
    part = trace_part("trace-1", 0, 1)
    part["spans"] = [[0, "magic", "x" * 1000, 0, 5, None, None], [0, "data", "\0\ud800", 5, -1, None, None]]
    part["sums"] = {"magic": 0.25, "other": 0.5, "data": 0.0}
    row = columns(read(TraceEvent, part), 8)
    first, second = body_of(row["body"]).spans
    assert first == (0, "other", "x" * 80, 0.0, 5.0, None, None)
    assert second[4] == 0.0
    second[2].encode()
    assert row["head"]["sums"] == {"other": 0.75}
    assert set(row["head"]["sums"]) <= set(CATEGORIES)


def test_a_part_is_bounded() -> None:
    row = columns(read(TraceEvent, crowded_trace_part("trace-1", 0, 1, MOST_SPANS + 7)), 8)
    assert len(body_of(row["body"]).spans) == MOST_SPANS and row["head"]["dropped"] == 7
    assert len(row["body"]) < 100_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"began": float("nan")},
        {"seconds": None},
        {"rank": -1},
        {"step": 2**60},
        {"sums": {"forward": float("inf")}},
        {"sums": None},
        {"spans": [[0, "forward", "short"]]},
        {"spans": [["first", "forward", "f", 0, 1, None, None]]},
        {"spans": [[0, [], "f", 0, 1, None, None]]},
        {"spans": [[0, "forward", "f", float("nan"), 1, None, None]]},
        {"pipeline": {"ideal": [["X", 0, 0, 0, 1]]}},
    ],
    ids=str,
)
def test_what_is_no_part_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        columns(read(TraceEvent, trace_part("trace-1", 0, 1) | wrong), 8)
