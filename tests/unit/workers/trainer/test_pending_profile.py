from shardyard.workers.trainer.pending_profile import PendingProfile, RecordingOrder


def order(name: str) -> RecordingOrder:
    return RecordingOrder.from_json({"id": name, "kind": "operators", "seconds": 1, "path": "/tmp/a"})


def test_the_newest_order_is_taken_once() -> None:
    pending = PendingProfile()
    assert pending.take() is None
    pending.order(order("a"))
    pending.order(order("b"))
    assert pending.take() == order("b") and pending.take() is None
