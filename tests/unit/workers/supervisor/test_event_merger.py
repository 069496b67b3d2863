"""What ranks tell becomes one story in which nothing stands twice."""

from typing import Any

from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.supervisor.event_merger import Story


def incidents(story: Story) -> list[str]:
    return [event["data"]["message"] for event in story.spool.take(0) if event["kind"] == "incident"]


def incident(message: str, step: int | None = None, **more: Any) -> Any:
    data = {"cause": "checkpoint_damaged", "rank": None, "message": message, "step": step, **more}
    return {"seq": 1, "ts": 1.0, "kind": "incident", "data": data}


def test_each_incident_of_a_restore_is_told_once() -> None:
    story = Story(Spool(1 << 20), 2, 0.0)
    for event in (incident("a"), incident("b"), incident("a"), incident("b", again=True)):
        story.fact(event, 0)
    assert incidents(story) == ["a", "b"]


def test_an_incident_waits_for_the_step_that_it_follows() -> None:
    story = Story(Spool(1 << 20), 1, 0.0)
    story.fact(incident("a", 1), 1)
    assert incidents(story) == []
    story.step(0, {"seq": 1, "ts": 1.0, "kind": "step", "data": {"step": 1, "step_s": 0.1, "loss": 2.0}})
    assert [event["kind"] for event in story.spool.take(0)][-2:] == ["step", "incident"]


def test_what_rank_0_could_not_deliver_is_told_from_its_snapshot_once() -> None:
    story = Story(Spool(1 << 20), 2, 0.0)
    for rank in (0, 1):
        story.step(rank, {"seq": 1, "ts": 1.0, "kind": "step", "data": {"step": 1, "step_s": 0.1, "loss": 2.0}})
    known = [("step", {"step": n, "step_s": 0.1, "loss": 2.0 / n}) for n in (1, 2)]
    for _ in range(2):
        story.again([*known, ("eval", {"step": 2, "loss": 1.5}), ("stopped", {"step": 2})])
    told = [(event["kind"], event["data"].get("step")) for event in story.spool.take(0) if event["kind"] != "state"]
    assert told == [("step", 1), ("step", 2), ("eval", 2)]
