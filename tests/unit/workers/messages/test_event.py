"""Every kind of event has one type."""

import pytest

from shardyard.workers.messages.event import BadEvent, EvalEvent, from_json


def test_a_kind_is_read_as_its_type() -> None:
    event = from_json("eval", {"step": 1, "loss": 2.0, "unigram_loss": 3.0, "tokens": 8})
    assert event == EvalEvent(step=1, loss=2.0, unigram_loss=3.0, tokens=8)


@pytest.mark.parametrize(
    ("kind", "data", "complaint"),
    [
        ("mood", {}, "There is no event 'mood'"),
        ("step", {"loss": 1.0}, "field 'step': Field required"),
        ("eval", {"step": 1, "loss": "low", "unigram_loss": 1.0, "tokens": 1}, "field 'loss': Input should be"),
        ("probe", {"step": 1, "traffic": {"data": {"send": {"calls": 1}}}}, "field 'traffic.data.send.elements'"),
        ("log", [1], "field 'data'"),
    ],
)
def test_what_is_no_event_is_refused_with_its_field(kind: str, data: object, complaint: str) -> None:
    with pytest.raises(BadEvent, match=complaint):
        from_json(kind, data)  # type: ignore[arg-type]
