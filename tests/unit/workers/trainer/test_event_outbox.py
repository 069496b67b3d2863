from typing import Any

from shardyard.workers.trainer.event_outbox import EventOutbox


def test_buffered_events_are_emitted_later_in_order_and_remembered_at_once() -> None:
    emitted: list[tuple[str, dict[str, Any]]] = []
    outbox = EventOutbox(lambda kind, data: emitted.append((kind, data)))
    outbox.emit("step", {"step": 1})
    outbox.buffer()
    outbox.emit("step", {"step": 2})
    outbox.buffer()
    outbox.emit("eval", {"step": 2})
    everything = [("step", {"step": 1}), ("step", {"step": 2}), ("eval", {"step": 2})]
    assert (emitted, outbox.recent()) == (everything[:1], everything)
    outbox.flush()
    assert emitted == everything
    outbox.flush()
    outbox.emit("step", {"step": 3})
    assert emitted == [*everything, ("step", {"step": 3})]
    outbox.replay(everything[1:2])
    assert emitted[-1] == ("step", {"step": 2, "again": True})
