"""Step traces over both databases: stored once, settled once, and the oldest deleted with all their parts."""

import asyncio

import pytest
from harness.trace_events import trace_events, trace_part

from shardyard.service.dispatch.retry import lose_attempt
from shardyard.service.errors import (
    IdempotencyConflict,
    InvalidCursor,
    JobNotFound,
    JobNotRunning,
    TraceNotFound,
    TraceNotPossible,
    TraceOpen,
)
from shardyard.service.jobs.transitions import Cause
from shardyard.service.orders import step_traces
from shardyard.service.queries import traces as trace_reading
from shardyard.service.queries.jobs import get_job
from shardyard.service.queries.live_tail import tail
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.settings import Settings
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import traces as rows
from shardyard.service.store.engine import Store
from shardyard.service.store.tables import jobs

from ..conftest import Submit
from ..gang_events import state
from ..traced_gang import TracedGang, finished_traces


async def test_what_cannot_be_traced_is_refused(store: Store, submit: Submit, gang: TracedGang) -> None:
    queued = await submit(name="queued")
    for name, kind in (("absent", JobNotFound), ("nul\0", JobNotFound), (queued.id, JobNotRunning)):
        with pytest.raises(kind) as refused:
            await step_traces.create(store, name, 3, None, "me")
        assert refused.value.remedy or kind is JobNotFound
    first = await step_traces.create(store, gang.job.id, 3, None, "me")
    with pytest.raises(TraceOpen) as refused:
        await step_traces.create(store, gang.job.id, 3, None, "you")
    assert (refused.value.field, first.id in refused.value.message) == ("job", True) and refused.value.remedy
    assert [one.id for one in (await step_traces.page(store, gang.job.id)).items] == [first.id]


async def test_a_program_has_no_steps_to_trace(store: Store, gang: TracedGang) -> None:
    async with store.write() as tx:
        await tx.execute(jobs.update().values(spec={"name": "x", "command": "true"}))
    with pytest.raises(TraceNotPossible) as refused:
        await step_traces.create(store, gang.job.id, 3, None, "me")
    assert (refused.value.field, "shardyard profile" in (refused.value.remedy or "")) == ("job", True)
    assert (await step_traces.page(store, gang.job.id)).items == []


async def test_one_key_is_one_trace(store: Store, gang: TracedGang) -> None:
    asked = await asyncio.gather(*(step_traces.create(store, gang.job.name, 2, "key", "me") for _ in range(10)))
    assert len({one.id for one in asked}) == 1
    one = asked[0]
    assert (one.job, one.attempt, one.steps, one.state, one.parts, one.parts_wanted) == (
        gang.job.id,
        1,
        2,
        "open",
        0,
        4,
    )
    with pytest.raises(IdempotencyConflict):
        await step_traces.create(store, gang.job.id, 3, "key", "me")


async def test_parts_land_once_and_the_end_is_reported_once(store: Store, gang: TracedGang) -> None:
    one = await step_traces.create(store, gang.job.id, 3, None, "me")
    *parts, end = trace_events(one.id)
    await gang.emit(*parts[:4])
    half = (await step_traces.page(store, gang.job.id)).items[0]
    assert (half.state, half.parts, half.parts_wanted) == ("open", 4, 6)
    await gang.emit(*parts)  # a supervisor that died reports again under other numbers
    await gang.emit(end, end)
    done = (await step_traces.page(store, gang.job.id)).items[0]
    assert (done.state, done.parts, done.first_step, done.last_step) == ("done", 6, 5, 7)
    assert done.settled_at is not None and done.message is None
    [event] = await finished_traces(store, gang.job)
    assert event | {"asked_at": 0} == {
        "id": one.id, "done": True, "message": None, "steps": [5, 7], "asked_by": "me", "asked_at": 0,
    }  # fmt: skip
    await gang.emit(("trace", trace_part(one.id, 0, 8)), ("trace", trace_part("trace-absent", 0, 8)))
    assert (await step_traces.page(store, gang.job.id)).items[0].parts == 6


async def test_a_part_that_cannot_be_understood_is_reported_and_the_others_are_kept(
    store: Store, gang: TracedGang
) -> None:
    one = await step_traces.create(store, gang.job.id, 1, None, "me")
    await gang.emit(("trace", trace_part(one.id, 0, 5) | {"spans": [["?"]]}), ("trace", trace_part(one.id, 1, 5)))
    [incident] = [item.data for item in (await tail(store, gang.job.id, Cursor())).items if item.kind == "incident"]
    assert incident["cause"] == "invalid_event"
    assert (await step_traces.page(store, gang.job.id)).items[0].parts == 1


async def test_an_attempt_that_ends_has_failed_its_trace(store: Store, settings: Settings, gang: TracedGang) -> None:
    one = await step_traces.create(store, gang.job.id, 3, None, "me")
    await gang.emit(("trace", trace_part(one.id, 0, 5)))
    async with store.write() as tx:
        row = await job_rows.by_id(tx, gang.job.id)
        assert row is not None
        await lose_attempt(tx, row, Cause("test", 7.0, "rank_lost"), settings.rules.backoff)
    [event] = await finished_traces(store, gang.job)
    assert (event["id"], event["done"], event["steps"]) == (one.id, False, None) and "attempt ended" in event["message"]
    failed = (await step_traces.page(store, gang.job.id)).items[0]
    assert (failed.state, failed.parts) == ("failed", 1) and failed.message


async def test_a_gang_that_ends_or_says_no_fails_its_trace(store: Store, gang: TracedGang) -> None:
    first = await step_traces.create(store, gang.job.id, 3, None, "me")
    await gang.emit(("trace_finished", {"id": first.id, "done": False, "message": "repaired", "steps": None}))
    second = await step_traces.create(store, gang.job.id, 3, None, "me")
    await gang.emit(state("succeeded"))
    events = [(event["id"], event["done"], event["message"]) for event in await finished_traces(store, gang.job)]
    assert events[0] == (first.id, False, "repaired") and events[1][:2] == (second.id, False)
    assert (await get_job(store, gang.job.id)).state == "succeeded"


async def test_the_oldest_are_forgotten_with_all_their_parts(store: Store, gang: TracedGang) -> None:
    ids = []
    for _ in range(step_traces.KEPT + 2):
        ids.append((await step_traces.create(store, gang.job.id, 1, None, "me")).id)
        await gang.emit(*trace_events(ids[-1], steps=[5]))
        await asyncio.sleep(0.002)  # ids of one millisecond have no order
    assert ids == sorted(ids)
    first = await step_traces.page(store, gang.job.id, limit=4)
    assert [one.id for one in first.items] == ids[:-5:-1] and first.next == ids[-4]
    rest = await step_traces.page(store, gang.job.id, before=first.next, limit=100)
    assert [one.id for one in rest.items] == ids[-5:1:-1] and rest.next is None
    async with store.read() as tx:
        assert [await rows.count(tx, gang.job.id, trace) for trace in ids[:3]] == [0, 0, 2]
    with pytest.raises(TraceNotFound):
        await trace_reading.summary(store, gang.job.id, ids[0])
    with pytest.raises(InvalidCursor):
        await step_traces.page(store, gang.job.id, before="trace-?")
