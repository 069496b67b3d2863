"""The order in which a stream sends what happened."""

from math import inf
from typing import Any

from shardyard.service.queries.live_tail import _in_order
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.step import Step


def event(position: int, ts: float, kind: str = "state") -> dict[str, Any]:
    return {"position": position, "ts": ts, "kind": kind, "data": {}}


def step(number: int, ts: float) -> dict[str, Any]:
    return {**dict.fromkeys(Step.model_fields), "step": number, "position": number, "ts": ts}


def test_items_come_by_time_and_events_after_steps_of_the_same_time() -> None:
    found = _in_order(Cursor(), inf, [event(1, 1.0), event(2, 3.0, "end")], [step(1, 2.0), step(2, 3.0)], [], [])
    assert [item.kind for item in found] == ["state", "step", "step", "end"]
    assert [str(item.cursor) for item in found] == ["1.0.0", "1.1.0", "1.2.0", "2.2.0"]


def test_a_table_that_was_cut_at_the_limit_ends_the_batch() -> None:
    found = _in_order(Cursor(), 2.0, [event(1, 9.0)], [step(1, 1.0), step(2, 2.0)], [], [])
    assert [item.kind for item in found] == ["step", "step"]


def test_a_clock_that_was_set_back_does_not_stop_a_stream() -> None:
    found = _in_order(Cursor(5, 0, 0), 1.0, [event(6, 9.0), event(7, 1.0)], [], [], [])
    assert [item.cursor.event for item in found] == [6, 7]
