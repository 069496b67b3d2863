"""Traces over both databases: asked for once, told through the intake, kept part by part, settled once, and the old ones forgotten."""

import asyncio
import gzip
import json
from typing import Any

import pytest
from harness.trace_events import crowded, part, whole

from shardyard.service.dispatch.admission import admit
from shardyard.service.dispatch.event_ingest import take_in
from shardyard.service.dispatch.retry import lose_attempt
from shardyard.service.errors import (
    IdempotencyConflict,
    InvalidCursor,
    JobNotFound,
    JobNotRunning,
    TraceNotFound,
    TraceOpen,
)
from shardyard.service.jobs.transitions import Word
from shardyard.service.orders import step_traces
from shardyard.service.queries import trace_download
from shardyard.service.queries import traces as trace_reading
from shardyard.service.queries.jobs import get_job
from shardyard.service.queries.live_tail import tail
from shardyard.service.queries.traces import Window
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import nodes
from shardyard.service.store import traces as rows
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from ..conftest import Submit
from ..dispatch.test_event_ingest import state
from ..store.test_leases import NODE


class Gang:
    """Tells what it is given, as its dispatcher stores it."""

    def __init__(self, store: Store, job: Job, lease: Lease) -> None:
        self.store, self.job, self.lease, self.told = store, job, lease, 0

    async def tell(self, *said: tuple[str, dict[str, Any]]) -> None:
        batch = [
            {"seq": self.told + i, "ts": 1000.0 + i, "kind": kind, "data": data}
            for i, (kind, data) in enumerate(said, start=1)
        ]
        for _ in range(2):  # what comes twice is stored once
            await take_in(self.store, self.lease, 1, batch)
        self.told += len(said)


@pytest.fixture
async def gang(store: Store, settings: Settings, submit: Submit) -> Gang:
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])
    job = await submit(ranks=2)
    (lease,) = (await admit(store, settings, "a", None)).leases
    running = Gang(store, job, lease)
    await running.tell(state("starting"), state("running"))
    return running


async def told(store: Store, job: Job) -> list[dict[str, Any]]:
    items = (await tail(store, job.id, Cursor())).items
    assert "trace" not in {item.kind for item in items}
    return [item.data for item in items if item.kind == "trace_finished"]


async def test_what_cannot_be_traced_is_refused(store: Store, submit: Submit, gang: Gang) -> None:
    queued = await submit(name="queued")
    for name, kind in (("nobody", JobNotFound), ("nul\0", JobNotFound), (queued.id, JobNotRunning)):
        with pytest.raises(kind) as refused:
            await step_traces.create(store, name, 3, None, "me")
        assert refused.value.remedy or kind is JobNotFound
    first = await step_traces.create(store, gang.job.id, 3, None, "me")
    with pytest.raises(TraceOpen) as refused:
        await step_traces.create(store, gang.job.id, 3, None, "you")
    assert (refused.value.field, first.id in refused.value.message) == ("job", True) and refused.value.remedy
    assert [one.id for one in (await step_traces.page(store, gang.job.id)).items] == [first.id]


async def test_one_key_is_one_trace(store: Store, gang: Gang) -> None:
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


async def test_parts_land_once_and_the_end_is_told_once(store: Store, gang: Gang) -> None:
    one = await step_traces.create(store, gang.job.id, 3, None, "me")
    *parts, end = whole(one.id)
    await gang.tell(*parts[:4])
    half = (await step_traces.page(store, gang.job.id)).items[0]
    assert (half.state, half.parts, half.parts_wanted) == ("open", 4, 6)
    await gang.tell(*parts)  # a supervisor that died tells again under other numbers
    await gang.tell(end, end)
    done = (await step_traces.page(store, gang.job.id)).items[0]
    assert (done.state, done.parts, done.first_step, done.last_step) == ("done", 6, 5, 7)
    assert done.settled_at is not None and done.message is None
    [event] = await told(store, gang.job)
    assert event | {"asked_at": 0} == {
        "id": one.id, "done": True, "message": None, "steps": [5, 7], "asked_by": "me", "asked_at": 0,
    }  # fmt: skip
    await gang.tell(("trace", part(one.id, 0, 8)), ("trace", part("trace-nobody", 0, 8)))
    assert (await step_traces.page(store, gang.job.id)).items[0].parts == 6


async def test_a_part_that_cannot_be_understood_is_told_and_the_others_are_kept(store: Store, gang: Gang) -> None:
    one = await step_traces.create(store, gang.job.id, 1, None, "me")
    await gang.tell(("trace", part(one.id, 0, 5) | {"spans": [["?"]]}), ("trace", part(one.id, 1, 5)))
    [incident] = [item.data for item in (await tail(store, gang.job.id, Cursor())).items if item.kind == "incident"]
    assert incident["cause"] == "invalid_event"
    assert (await step_traces.page(store, gang.job.id)).items[0].parts == 1


async def test_an_attempt_that_ends_has_failed_its_trace(store: Store, settings: Settings, gang: Gang) -> None:
    one = await step_traces.create(store, gang.job.id, 3, None, "me")
    await gang.tell(("trace", part(one.id, 0, 5)))
    async with store.write() as tx:
        row = await job_rows.by_id(tx, gang.job.id)
        assert row is not None
        await lose_attempt(tx, row, Word("test", 7.0, "rank_lost"), settings.rules.back_off)
    [event] = await told(store, gang.job)
    assert (event["id"], event["done"], event["steps"]) == (one.id, False, None) and "attempt ended" in event["message"]
    failed = (await step_traces.page(store, gang.job.id)).items[0]
    assert (failed.state, failed.parts) == ("failed", 1) and failed.message


async def test_a_gang_that_ends_or_says_no_fails_its_trace(store: Store, gang: Gang) -> None:
    first = await step_traces.create(store, gang.job.id, 3, None, "me")
    await gang.tell(("trace_finished", {"id": first.id, "done": False, "message": "repaired", "steps": None}))
    second = await step_traces.create(store, gang.job.id, 3, None, "me")
    await gang.tell(state("succeeded"))
    events = [(event["id"], event["done"], event["message"]) for event in await told(store, gang.job)]
    assert events[0] == (first.id, False, "repaired") and events[1][:2] == (second.id, False)
    assert (await get_job(store, gang.job.id)).state == "succeeded"


async def test_the_oldest_are_forgotten_with_all_their_parts(store: Store, gang: Gang) -> None:
    ids = []
    for _ in range(step_traces.KEPT + 2):
        ids.append((await step_traces.create(store, gang.job.id, 1, None, "me")).id)
        await gang.tell(*whole(ids[-1], steps=[5]))
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


async def test_the_summary_names_the_slowest_rank_and_the_bubble(store: Store, gang: Gang) -> None:
    one = await step_traces.create(store, gang.job.id, 3, None, "me")
    *parts, end = whole(one.id)
    for kind, event in list(parts):
        if event["rank"] == 1:
            slowed = part(one.id, 1, event["step"], slower_ms=50)
            parts[parts.index((kind, event))] = (kind, slowed)
    await gang.tell(*parts, end)
    found = await trace_reading.summary(store, gang.job.id, one.id)
    assert [step.step for step in found.steps] == [5, 6, 7] and found.step is None
    assert (found.slowest_rank, found.slower_by_s) == (1, pytest.approx(0.05))
    assert (found.bubble_measured, found.bubble_simulated) == (0.205, 0.2)
    for rank in found.ranks:
        assert sum(rank.sums.values()) == pytest.approx(rank.seconds)
        assert rank.busy_s + rank.wait_s == pytest.approx(rank.seconds)
        assert (rank.pipeline, rank.place) == (0, rank.rank)
    of_one = await trace_reading.summary(store, gang.job.id, one.id, step=6)
    assert of_one.step == 6 and of_one.ranks[1].sums["other"] == pytest.approx(0.05)
    with pytest.raises(TraceNotFound) as refused:
        await trace_reading.summary(store, gang.job.id, one.id, step=8)
    assert (refused.value.field, refused.value.remedy) == ("step", "Its steps: 5, 6, 7.")


async def test_spans_are_those_that_were_told_on_one_clock(store: Store, gang: Gang) -> None:
    one = await step_traces.create(store, gang.job.id, 1, None, "me")
    await gang.tell(*whole(one.id, steps=[5]))
    found = await trace_reading.spans(store, gang.job.id, one.id)
    assert (found.step, found.dropped, [rank.began_us for rank in found.ranks]) == (5, 0, [0, 1])
    event = part(one.id, 1, 5)
    shown = [
        [lane, found.categories[category], found.names[name], start - 1, length, microbatch, stage]
        for lane, category, name, start, length, microbatch, stage in found.ranks[1].spans
    ]
    assert shown == sorted(event["spans"], key=lambda span: span[3])
    kinds = {"F": "forward", "B": "backward"}
    ideal = [
        [found.categories[kind], *place, start - 1, length] for kind, *place, start, length in found.ranks[1].ideal
    ]
    assert ideal == [[kinds[kind], *rest] for kind, *rest in event["pipeline"]["ideal"]]
    only = await trace_reading.spans(store, gang.job.id, one.id, 5, [1], Window(1_000, 2_000))
    assert [rank.rank for rank in only.ranks] == [1]
    assert all(start <= 2_000 and start + length >= 1_000 for _, _, _, start, length, _, _ in only.ranks[0].spans)


async def test_of_too_many_spans_the_shortest_are_left_out_and_counted(store: Store, gang: Gang) -> None:
    one = await step_traces.create(store, gang.job.id, 1, None, "me")
    await gang.tell(*(("trace", crowded(one.id, rank, 5)) for rank in range(4)))
    found = await trace_reading.spans(store, gang.job.id, one.id)
    kept = [span for rank in found.ranks for span in rank.spans]
    assert len(kept) > 3000 and len(kept) + found.dropped == 16_000
    shortest = min(span[4] for span in kept)
    told = [round(span[4]) for rank in range(4) for span in crowded(one.id, rank, 5)["spans"]]
    assert sum(length > shortest for length in told) <= len(kept)
    few = await trace_reading.spans(store, gang.job.id, one.id, window=Window(0, 1_000))
    assert few.dropped == 0 and all(len(rank.spans) > 90 for rank in few.ranks)


async def test_the_file_for_perfetto_holds_every_span_within_its_step(store: Store, gang: Gang) -> None:
    one = await step_traces.create(store, gang.job.id, 3, None, "me")
    await gang.tell(*whole(one.id))
    pieces = [piece async for piece in await trace_download.document(store, gang.job.name, one.id)]
    document = json.loads(gzip.decompress(b"".join(pieces)))
    slices = [slice_ for slice_ in document["traceEvents"] if slice_["ph"] == "X"]
    told = [event for kind, event in whole(one.id) if kind == "trace"]
    ideal = sum(len(event["pipeline"]["ideal"]) for event in told)
    assert len(slices) == sum(len(event["spans"]) + 1 for event in told) + ideal
    steps = {
        (slice_["pid"], slice_["name"]): (slice_["ts"], slice_["ts"] + slice_["dur"])
        for slice_ in slices
        if slice_["cat"] == "step"
    }
    assert len(steps) == 6
    for slice_ in slices:
        mine = [bounds for (rank, _), bounds in steps.items() if rank == slice_["pid"]]
        begin, end = slice_["ts"], slice_["ts"] + slice_["dur"]
        assert any(low - 0.01 <= begin and end <= high + 0.01 for low, high in mine) or slice_["name"][:1].isdigit()
    with pytest.raises(TraceNotFound):
        await trace_download.document(store, gang.job.id, "nothing")
