"""A batch of events is stored once, whole or not at all, and only under the lease."""

import asyncio
import math
import time
from typing import Any
from uuid import uuid4

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from harness.events import logged
from sqlalchemy import update

from shardyard.service.dispatch.admission import admit
from shardyard.service.dispatch.event_ingest import IngestResult, ingest
from shardyard.service.errors import LeaseLost
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.pause import pause
from shardyard.service.queries import checkpoints as checkpoint_queries
from shardyard.service.queries import jobs, live_tail, logs
from shardyard.service.queries import steps as step_queries
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.job import Budget, Job
from shardyard.service.schemas.live_tail import Scope
from shardyard.service.settings import Settings
from shardyard.service.spec import CommandSpec
from shardyard.service.states import State
from shardyard.service.store import attempts, events, leases, nodes, tables
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from ..gang_events import AT_ONCE, NODE, event_batch, lines, state, step


async def job_history(store: Store, job: Job) -> list[tuple[str, Any]]:
    tail = await live_tail.tail(store, job.id, Cursor(), Scope(logs=True), limit=10_000)
    short = {"state": "state", "step": "step", "log": "text"}
    return [(item.kind, item.data.get(short.get(item.kind, ""))) for item in tail.items]


BATCH = event_batch(
    state("starting"), state("running"), step(1), lines(0, "a", "b"), step(2), ("eval", {"step": 2, "loss": 1.5})
)


async def test_a_batch_lands_once_however_often_it_comes(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    for cut in (2, 4, 3, 6, 6):
        taken = await ingest(store, lease, 1, BATCH[:cut])
    assert (taken.cursor, taken.ended, taken.state) == (6, False, State.RUNNING)
    landed = await job_history(store, job)
    assert sorted(kind for kind, _ in landed) == [
        "eval",
        "log",
        "log",
        "state",
        "state",
        "state",
        "state",
        "step",
        "step",
    ]
    now = await jobs.get_job(store, job.id)
    assert now.progress is not None and now.progress.eta_s == pytest.approx(98 * 0.5)


@pytest.mark.parametrize(
    ("last", "becomes"),
    [
        (state("succeeded"), State.SUCCEEDED),
        (state("cancelled", "preempt"), State.PAUSED),
        (state("failed", "rank_lost"), State.QUEUED),
    ],
    ids=["succeeded", "paused", "queued"],
)
async def test_a_last_batch_whose_answer_was_lost_ends_the_attempt_again(
    last: tuple[str, dict[str, Any]], becomes: State, store: Store, placed: tuple[Job, Lease]
) -> None:
    """Else its gang were pulled until a sweep removes it, and a job that its user has paused were lost with it, and started again."""
    job, lease = placed
    await ingest(store, lease, 1, BATCH)
    if becomes == State.PAUSED:
        await pause(store, job.id, "tester")
    batch = event_batch(last, first=7)
    first = await ingest(store, lease, 1, batch, AT_ONCE)
    history = await job_history(store, job)
    assert await ingest(store, lease, 1, batch, AT_ONCE) == first == IngestResult(becomes, 7, ended=True)
    assert await job_history(store, job) == history


@POSTGRESQL_IN_FULL
async def test_a_save_that_a_restore_reports_again_has_one_row(store: Store, placed: tuple[Job, Lease]) -> None:
    """The next attempt reports the checkpoint that it continues from, in case the one before it died before its report."""

    def save(at: int, digest: str, seconds: float) -> tuple[str, dict[str, Any]]:
        more = {"bytes": 1, "seconds": seconds, "held_s": 0.0, "kept": None, "digest": digest}
        return "checkpoint", {"step": at, "path": f"/c/step-{at:08d}"} | more

    job, lease = placed
    reports = [save(10, "a", 2.0), save(20, "b", 2.0)]
    await ingest(store, lease, 1, event_batch(state("starting"), state("running"), *reports))
    corrupt = ("incident", {"cause": "checkpoint_corrupt", "message": "of step 20", "step": 20})
    again = [corrupt, save(10, "a", 0.0), save(20, "c", 2.0), save(30, "d", 0.0)]
    await ingest(store, lease, 1, event_batch(*again, first=5))
    items = (await checkpoint_queries.checkpoints(store, job.id)).items
    assert [(one.step, one.seconds, one.state) for one in reversed(items)] == [
        (10, 2.0, "present"),
        (20, 2.0, "present"),
        (20, 2.0, "present"),
        (30, 0.0, "present"),
    ]


@POSTGRESQL_IN_FULL
async def test_the_time_to_the_first_step_is_that_of_the_first_attempt(store: Store, placed: tuple[Job, Lease]) -> None:
    """The clock of its gang's node is years behind. A later attempt, after a pause of three days, reports its own first step."""
    job, lease = placed
    await ingest(store, lease, 1, event_batch(state("starting"), step(1), state("running"), state("recovering")))
    async with store.write() as tx:
        await tx.execute(update(tables.jobs).values(started_at=tables.jobs.c.created_at + 7.0, attempt=2))
        (row,) = (await tx.execute(tables.attempts.select())).mappings().all()
        await attempts.insert(tx, {**row, "number": 2, "cursor": 0})
    later = [state("starting"), state("running"), ("summary", {"steps": 2, "time_to_first_step_s": 3 * 86400.0})]
    batch = [{**event, "ts": event["ts"] + 3 * 86400} for event in event_batch(*later)]
    await ingest(store, lease, 2, batch)
    summary = (await jobs.get_job(store, job.id)).summary
    assert summary is not None and summary.time_to_first_step_s == pytest.approx(9.0)
    async with store.read() as tx:
        rows = [row["data"] for row in await events.of_kind_before(tx, job.id, "summary", None, 9)]
    assert [row["time_to_first_step_s"] for row in rows] == [summary.time_to_first_step_s], "as the stored event says"


async def test_a_death_at_any_line_of_the_transaction_leaves_all_or_nothing(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    """The batch is begun again and again, and killed a little later each time; then it is let through."""
    job, lease = placed
    before = await job_history(store, job)
    for turn in range(60):
        task = asyncio.create_task(ingest(store, lease, 1, BATCH))
        await asyncio.sleep(0.0004 * turn)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        landed = await job_history(store, job)
        assert landed == before or len(landed) == len(before) + 7
    await ingest(store, lease, 1, BATCH)
    assert len(await job_history(store, job)) == len(before) + 7


@POSTGRESQL_IN_FULL
async def test_without_the_lease_nothing_is_stored(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    before = await job_history(store, job)
    thief = Lease(job.id, uuid4().hex, "b")
    async with store.write() as tx:
        await leases.release(tx, [lease.token])
        assert await leases.take(tx, thief, 10)
    with pytest.raises(LeaseLost):
        await ingest(store, lease, 1, BATCH)
    with pytest.raises(LeaseLost):
        await ingest(store, thief, 2, BATCH)
    async with store.write() as tx:
        await job_rows.set_columns(tx, job.id, {"attempt": 2})
    with pytest.raises(LeaseLost):  # the attempt before
        await ingest(store, thief, 1, BATCH)
    assert await job_history(store, job) == before


async def test_a_step_that_is_reported_again_stays_and_one_that_is_trained_again_replaces_it(
    store: Store, settings: Settings, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    await ingest(
        store, lease, 1, event_batch(state("starting"), state("running"), step(1, 5.0), step(2, 4.0), step(2, 9.0))
    )
    seen = Cursor.parse((await jobs.get_job(store, job.id)).cursor)
    assert [point.loss for point in (await step_queries.metrics(store, job.id)).points] == [5.0, 4.0]
    await ingest(store, lease, 1, event_batch(state("failed", "rank_lost"), first=6), AT_ONCE)
    async with store.write() as tx:
        await leases.release(tx, [lease.token])
    (second,) = (await admit(store, settings, "a", None)).leases
    await ingest(store, second, 2, event_batch(state("starting"), state("running"), step(2, 3.0), step(3, 2.0)))
    points = (await step_queries.metrics(store, job.id)).points
    assert [(point.step, point.attempt, point.loss) for point in points] == [(1, 1, 5.0), (2, 2, 3.0), (3, 2, 2.0)]
    news = await live_tail.tail(store, job.id, seen)
    assert [item.data["step"] for item in news.items if item.kind == "step"] == [2, 3]


@POSTGRESQL_IN_FULL
async def test_an_attempt_that_got_on_resets_the_backoff(
    store: Store, settings: Settings, placed: tuple[Job, Lease]
) -> None:
    """Steps count once: what a later attempt trains again is no progress."""
    job, lease = placed
    setbacks = []
    for number, (first, last) in enumerate([(1, 3), (1, 4), (2, 14), (10, 16)], start=1):
        trained = [step(step_) for step_ in range(first, last + 1)]
        await ingest(store, lease, number, event_batch(state("starting"), state("running"), *trained))
        lost = event_batch(step(last + 1), state("failed", "node_lost"), first=3 + len(trained))
        await ingest(store, lease, number, lost, AT_ONCE)
        async with store.write() as tx:
            row = await job_rows.by_id(tx, job.id)
            assert row is not None
            setbacks.append((row["state"], row["setbacks"], row["furthest"], row["restarts"]))
            await leases.release(tx, [lease.token])
        lease = next(iter((await admit(store, settings, "a", None)).leases), lease)
    assert setbacks == [("queued", 1, 4, 1), ("queued", 2, 5, 2), ("queued", 1, 15, 3), ("failed", 1, 15, 3)]
    last = await jobs.get_job(store, job.id)
    assert last.message == "3 of 3 restarts are used up (policy.max_restarts)"


async def test_what_a_program_logs_or_saves_is_progress(store: Store, settings: Settings) -> None:
    """Also what comes with the attempt's end. What a later attempt logs again is none."""
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])
    policy = {"max_restarts": 9}
    spec = CommandSpec.model_validate({"name": "mine", "command": "true", "policy": policy})
    job, _ = await submitting.submit(store, settings, spec, None, "", "tester")
    save = {"step": 30, "path": "/far/away/step-00000030", "bytes": 1, "seconds": 1.0, "held_s": 0.0, "kept": [30]}
    attempts: list[tuple[bool, tuple[str, Any]]] = [
        (False, logged({"loss": [(1, 1.0), (3, 1.0)]})),
        (True, logged({"loss": [(1, 1.0), (4, 1.0)]})),
        (True, logged({"loss": [(5, 1.0), (14, 1.0)], "of_epoch": [(1, 1.0)]})),
        (False, ("checkpoint", save)),
        (False, logged({"loss": [(9, 1.0), (39, 1.0)]})),
        (False, logged({"loss": [(2, 1.0)]})),
    ]
    setbacks = []
    for number, (with_the_end, did) in enumerate(attempts, start=1):
        (lease,) = (await admit(store, settings, "a", None)).leases
        batch = event_batch(state("starting"), state("running"), did, state("failed", "node_lost"))
        await ingest(store, lease, number, batch[: 2 if with_the_end else 3], AT_ONCE)
        await ingest(store, lease, number, batch, AT_ONCE)
        async with store.write() as tx:
            row = await job_rows.by_id(tx, job.id)
            assert row is not None
            setbacks.append((row["state"], row["setbacks"], row["furthest"]))
            await leases.release(tx, [lease.token])
    assert setbacks == [("queued", *of) for of in ((1, 3), (2, 4), (1, 14), (1, 30), (2, 39), (3, 39))]


@POSTGRESQL_IN_FULL
@pytest.mark.parametrize("to", [State.QUEUED, State.PAUSED])
async def test_a_job_that_holds_no_devices_shows_no_time_left(
    store: Store, placed: tuple[Job, Lease], to: State
) -> None:
    """Also if its last steps come with the end of its attempt."""
    job, lease = placed
    await ingest(store, lease, 1, event_batch(state("starting"), state("running"), step(1), step(2)))
    if to == State.PAUSED:
        await pause(store, job.id, "tester")
    await ingest(store, lease, 1, event_batch(step(3), state("failed", "node_lost"), first=5))
    now = await jobs.get_job(store, job.id)
    assert now.state == to and now.progress is not None
    assert (now.progress.step, now.progress.eta_s) == (3, None)


@pytest.mark.parametrize(("ahead_s", "known"), [(-3600.0, True), (36_000.0, True), (-3600.0, False), (36_000.0, False)])
@POSTGRESQL_IN_FULL
async def test_a_nodes_clock_moves_no_attempt(
    store: Store, placed: tuple[Job, Lease], ahead_s: float, known: bool
) -> None:
    """The attempt and the job end after they began, and not later than now."""
    job, lease = placed
    async with store.write() as tx:
        await tx.execute(update(tables.attempts).values(started_at=time.time() - 1800.0))
    at = time.time() + ahead_s
    batch = event_batch(state("starting"), state("running"), state("succeeded"))
    timed = [{**event, "ts": at + late_s} for event, late_s in zip(batch, (-1700.0, -1600.0, -600.0), strict=True)]
    await ingest(store, lease, 1, timed, behind_s=-ahead_s if known else 0.0)
    async with store.read() as tx:
        row, attempt = await job_rows.by_id(tx, job.id), await attempts.get(tx, job.id, 1)
        last = await events.newest(tx, job.id, "state")
    assert row is not None and attempt is not None and last is not None
    times = (attempt["started_at"], row["started_at"], row["finished_at"], time.time())
    assert list(times) == sorted(times) and attempt["ended_at"] == row["finished_at"]
    assert row["device_s"] == attempt["ended_at"] - attempt["started_at"]
    assert last["ts"] == pytest.approx(timed[-1]["ts"] - (ahead_s if known else 0.0))
    if known:
        assert row["device_s"] == pytest.approx(1200.0, abs=60.0)
        assert row["finished_at"] - row["started_at"] == pytest.approx(1100.0)


@pytest.mark.parametrize("behind_s", [7200.0, -7200.0])
async def test_steps_and_lines_have_times_of_the_dispatchers_clock(
    store: Store, placed: tuple[Job, Lease], behind_s: float
) -> None:
    """They are drawn from the job's start. A batch that is read an hour late keeps the distances between its times."""
    job, lease = placed
    begun = time.time() - 3600.0
    async with store.write() as tx:
        await tx.execute(update(tables.attempts).values(started_at=begun))
    before = (await live_tail.tail(store, job.id, Cursor())).cursor
    batch = event_batch(state("starting"), state("running"), step(1), lines(0, "a"), step(2))
    timed = [{**event, "ts": begun - behind_s + 10.0 * event["seq"]} for event in batch]
    await ingest(store, lease, 1, timed, behind_s=behind_s)
    points = (await step_queries.metrics(store, job.id)).points
    (line,) = (await logs.page(store, job.id)).lines
    corrected = [event["ts"] + behind_s for event in timed[2:]]
    assert [points[0].ts, line.ts, points[1].ts] == pytest.approx(corrected)
    tail = await live_tail.tail(store, job.id, before, Scope(logs=True))
    assert [item.kind for item in tail.items] == ["state", "state", "step", "log", "step"]


async def test_a_job_ends_after_it_started_also_if_its_start_was_read_late(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    async with store.write() as tx:
        await tx.execute(update(tables.attempts).values(started_at=time.time() - 1800.0))
    start, *rest = [
        {**event, "ts": time.time() - 60.0} for event in event_batch(*map(state, ("starting", "running", "succeeded")))
    ]
    await ingest(store, lease, 1, [start], behind_s=3.0)
    await ingest(store, lease, 1, [start, *rest], behind_s=0.0)
    async with store.read() as tx:
        row, attempt = await job_rows.by_id(tx, job.id), await attempts.get(tx, job.id, 1)
    assert row is not None and attempt is not None
    assert row["duration_s"] == 0.0 and row["started_at"] == row["finished_at"] == attempt["ended_at"]


@POSTGRESQL_IN_FULL
async def test_repairs_of_an_attempt_are_counted(store: Store, settings: Settings, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    began = (state("starting"), state("running"))
    repaired = (state("recovering", "rank_lost"), state("running", "repaired"))
    await ingest(store, lease, 1, event_batch(*began, *repaired, *repaired))
    await ingest(store, lease, 1, event_batch(*repaired, first=7))
    assert (await jobs.get_job(store, job.id)).budgets.repairs == Budget(used=3, limit=20)
    await ingest(store, lease, 1, event_batch(state("failed", "rank_lost"), first=9), AT_ONCE)
    async with store.write() as tx:
        await leases.release(tx, [lease.token])
    assert (await admit(store, settings, "a", None)).leases
    assert (await jobs.get_job(store, job.id)).budgets.repairs == Budget(used=0, limit=20)


async def test_what_databases_cannot_keep_is_made_keepable(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    odd = event_batch(
        step(1, math.nan),
        step(2, math.inf),
        lines(0, "nul \0 and \ud800 half"),
        ("plan", {"text": "\0", "n": math.nan}),
    )
    await ingest(store, lease, 1, odd)
    assert [point.loss for point in (await step_queries.metrics(store, job.id)).points] == [None, None]
    assert [line.text for line in (await logs.page(store, job.id)).lines] == ["nul \ufffd and ? half"]


@POSTGRESQL_IN_FULL
async def test_a_cause_of_any_length_ends_an_attempt(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    said = event_batch(state("starting"), state("failed", reason="c" * 100))
    assert (await ingest(store, lease, 1, said)).ended
    assert (await jobs.get_job(store, job.id)).reason == "c" * 64


@POSTGRESQL_IN_FULL
async def test_an_event_that_makes_no_sense_is_an_incident_and_the_rest_goes_on(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    wrong = ("step", {"step": None}), ("state", {"state": "dancing"}), ("log", {"lines": 3}), ("mood", {})
    said = event_batch(*wrong, state("succeeded"))
    taken = await ingest(store, lease, 1, said)
    assert taken.ended
    assert [kind for kind, _ in await job_history(store, job) if kind == "incident"] == ["incident"] * 4
    assert (await jobs.get_job(store, job.id)).state == State.SUCCEEDED


@POSTGRESQL_IN_FULL
async def test_a_failure_while_cancelling_by_lost_ranks_is_a_cancellation(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    await ingest(store, lease, 1, BATCH)
    await submitting.cancel(store, job.id, "tester")
    await ingest(store, lease, 1, event_batch(state("failed", "rank_lost"), first=7))
    now = await jobs.get_job(store, job.id)
    assert (now.state, now.reason) == (State.CANCELLED, "cancelled_by_user")


@POSTGRESQL_IN_FULL
async def test_a_long_story_read_in_batches_ends_with_its_last_state(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    steps = [step(number) for number in range(1, 24)]
    batch = event_batch(state("starting"), state("running"), *steps, state("succeeded"))
    await ingest(store, lease, 1, [{**event, "ts": time.time() + event["seq"]} for event in batch])
    cursor, seen, done = Cursor(), [], False
    while not done:
        tail = await live_tail.tail(store, job.id, cursor, limit=5)
        seen += [item.data.get("state") or item.data["step"] for item in tail.items]
        cursor, done = tail.cursor, tail.done
    assert seen[-24:] == [*range(1, 24), "succeeded"]
