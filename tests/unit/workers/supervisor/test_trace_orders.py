"""What the supervisor makes of what its ranks tell of traces. With real ranks: tests/integration/gang/test_trace.py."""

from dataclasses import dataclass, field
from typing import Any

from shardyard.workers.messages.event_buffer import Event, Spool
from shardyard.workers.messages.trace_request import Trace
from shardyard.workers.supervisor.ranks.members import Member
from shardyard.workers.supervisor.trace_orders import Book, Ordered, Traces


@dataclass
class World:
    world_size: int = 2


@dataclass
class Gang:
    """What is left of a supervisor that only listens."""

    order: Any = field(default_factory=World)
    journal: Any = None
    spool: Spool = field(default_factory=lambda: Spool(1 << 20))
    members: list[Member] = field(default_factory=lambda: [Member(0), Member(1)])
    book: Book = field(default_factory=Book)
    phase: str = "training"

    def told(self) -> list[tuple[str, Any]]:
        return [(event["kind"], event["data"]) for event in self.spool.take(0)]


def listening() -> tuple[Gang, Traces]:
    """To the trace `a` of three steps, which all ranks have heard of, while `b` waits its turn."""
    gang = Gang()
    gang.book.open = {"a": Ordered(Trace("a", 3), sent=True), "b": Ordered(Trace("b", 1))}
    return gang, Traces(gang)


def event(kind: str, **data: Any) -> Event:
    return {"seq": 1, "ts": 5.0, "kind": kind, "data": data}


def test_a_trace_ends_when_every_rank_has_told_it() -> None:
    gang, traces = listening()
    for rank, member in enumerate(gang.members):
        traces.hear(member, event("trace", id="a", rank=rank, step=7))
        assert "a" in gang.book.open
        traces.hear_end(member, event("traced", id="a", rank=rank, steps=[7, 9]))
    traces.hear(gang.members[0], event("trace", id="a", rank=0, step=9))  # it has ended
    traces.hear_end(gang.members[0], event("traced", id="a", rank=0, steps=[7, 9]))
    assert [kind for kind, _ in gang.told()] == ["trace", "trace", "traced"]
    assert gang.told()[-1][1] == {"id": "a", "done": True, "message": "", "steps": [7, 9]}
    assert list(gang.book.open) == ["b"] and gang.book.ended == {"a"}


def test_a_training_that_ends_cuts_a_trace_short() -> None:
    gang, traces = listening()
    for member in gang.members:
        traces.hear_end(member, event("traced", id="a", rank=member.rank, steps=[7, 8]))
    assert gang.told()[-1][1]["done"] and gang.told()[-1][1]["message"] == "2 of 3 steps: the training ended"


def test_a_generation_takes_along_what_its_trainers_knew_of_and_a_gang_all() -> None:
    gang, traces = listening()
    traces.hear_end(gang.members[1], event("traced", id="a", rank=1, steps=[7, 9]))
    traces.generation_ends("a repair ended it (hang)")
    traces.generation_ends("again")
    undone = {"id": "a", "done": False, "message": "a repair ended it (hang)", "steps": [7, 9]}
    assert gang.told() == [("traced", undone)] and list(gang.book.open) == ["b"]
    traces.gang_ends()
    assert [data["id"] for _, data in gang.told()] == ["a", "b"] and not gang.book.open
