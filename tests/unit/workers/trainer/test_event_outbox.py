from typing import Any

from shardyard.workers.trainer.event_outbox import Recent


def test_what_is_withheld_is_told_later_in_order_and_remembered_at_once() -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    recent = Recent(lambda kind, data: told.append((kind, data)))
    recent.tell("step", {"step": 1})
    recent.withhold()
    recent.tell("step", {"step": 2})
    recent.withhold()
    recent.tell("eval", {"step": 2})
    everything = [("step", {"step": 1}), ("step", {"step": 2}), ("eval", {"step": 2})]
    assert (told, recent.told()) == (everything[:1], everything)
    recent.release()
    assert told == everything
    recent.release()
    recent.tell("step", {"step": 3})
    assert told == [*everything, ("step", {"step": 3})]
    recent.tell_again(everything[1:2])
    assert told[-1] == ("step", {"step": 2, "again": True})
