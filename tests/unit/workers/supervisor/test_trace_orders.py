"""What the supervisor makes of the ranks' events of traces. With real ranks: tests/integration/workers/supervisor/test_trace_orders.py."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from shardyard.workers.messages.event_buffer import Event, Spool
from shardyard.workers.messages.trace_request import Trace
from shardyard.workers.supervisor.gang_state import PendingTrace
from shardyard.workers.supervisor.orders import OrderQueue
from shardyard.workers.supervisor.trace_orders import TraceOrders

if TYPE_CHECKING:
    from shardyard.workers.supervisor.gang_state import Phase


async def written() -> None:
    """The journal is never asked here."""
    raise AssertionError


def following() -> TraceOrders:
    """Two ranks record the trace `a` of three steps, while `b` waits its turn."""
    queue: OrderQueue[PendingTrace] = OrderQueue(written)
    queue.pending = {"a": PendingTrace(Trace("a", 3), sent=True), "b": PendingTrace(Trace("b", 1))}
    return TraceOrders(2, queue, Spool(1 << 20))


def emitted(traces: TraceOrders) -> list[tuple[str, Any]]:
    return [(event["kind"], event["data"]) for event in traces.spool.take(0)]


def event(kind: str, **data: Any) -> Event:
    return {"seq": 1, "ts": 5.0, "kind": kind, "data": data}


def test_a_trace_ends_when_every_rank_has_reported_it() -> None:
    traces = following()
    for rank in (0, 1):
        traces.take_step(event("trace", id="a", rank=rank, step=7))
        assert "a" in traces.queue.pending
        traces.take_end(rank, event("trace_finished", id="a", rank=rank, steps=[7, 9]))
    traces.take_step(event("trace", id="a", rank=0, step=9))  # it has ended
    traces.take_end(0, event("trace_finished", id="a", rank=0, steps=[7, 9]))
    assert [kind for kind, _ in emitted(traces)] == ["trace", "trace", "trace_finished"]
    assert emitted(traces)[-1][1] == {"id": "a", "done": True, "message": "", "steps": [7, 9]}
    assert list(traces.queue.pending) == ["b"] and list(traces.queue.reported) == ["a"]


def test_a_training_that_ends_cuts_a_trace_short() -> None:
    traces = following()
    for rank in (0, 1):
        traces.take_end(rank, event("trace_finished", id="a", rank=rank, steps=[7, 8]))
    assert emitted(traces)[-1][1]["done"] and emitted(traces)[-1][1]["message"] == "2 of 3 steps: the training ended"


def test_a_generations_end_is_that_of_its_traces_and_a_gangs_end_of_all() -> None:
    traces = following()
    traces.take_end(1, event("trace_finished", id="a", rank=1, steps=[7, 9]))
    traces.end_generation("a repair ended it (hang)")
    traces.end_generation("again")
    undone = {"id": "a", "done": False, "message": "a repair ended it (hang)", "steps": [7, 9]}
    assert emitted(traces) == [("trace_finished", undone)] and list(traces.queue.pending) == ["b"]
    traces.end_gang()
    assert [data["id"] for _, data in emitted(traces)] == ["a", "b"] and not traces.queue.pending


async def test_a_rank_that_is_gone_costs_one_write_of_the_journal_however_often_it_is_asked() -> None:
    writes: list[str] = []

    async def write() -> None:
        writes.append("journal")

    queue: OrderQueue[PendingTrace] = OrderQueue(write)
    queue.pending = {"a": PendingTrace(Trace("a", 3))}
    asked: list[Trace] = []

    class Handle:
        async def trace(self, trace: Trace) -> None:
            asked.append(trace)

    phases = iter(["training", "training"] * 3 + ["ended"])
    members: Any = [SimpleNamespace(handle=Handle(), exited=False), SimpleNamespace(handle=Handle(), exited=True)]
    await TraceOrders(2, queue, Spool(1 << 20)).carry_out(members, lambda: cast("Phase", next(phases)))
    assert len(asked) == 3 and writes == ["journal"]
