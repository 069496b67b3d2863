"""What bounds by size remove and what they keep, whenever a sweep dies, and by how many dispatchers at once."""

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from sqlalchemy import select, update

from shardyard.service.dispatch import retention, size_retention
from shardyard.service.jobs.delete import delete, undelete
from shardyard.service.jobs.edit import edit
from shardyard.service.jobs.submit import cancel
from shardyard.service.queries import logs
from shardyard.service.queries.logs import LogFilter
from shardyard.service.schemas.job import Job, JobEdit
from shardyard.service.settings import Settings
from shardyard.service.store import jobs as rows
from shardyard.service.store import leases, log_sizes, removals, tables
from shardyard.service.store import logs as log_rows
from shardyard.service.store import traces as trace_rows
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from ..conftest import Submit
from ..job_records import removed_by_transaction
from .test_retention import Died, Dying

DAY_S = 86_400.0
KIB = 1 << 10
#: Characters of two bytes, with which a line takes one KiB.
LINE = "é" * ((KIB - log_sizes.LINE_BYTES) // 2)
LINES, PARTS = 30, 4


@pytest.fixture(autouse=True)
def _few_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So every removal takes several transactions."""
    monkeypatch.setattr(removals, "MOST_ROWS", 7)
    monkeypatch.setattr(removals, "MOST_LARGE_ROWS", 3)
    monkeypatch.setattr(size_retention, "LINES", 7)


def mib(kib: float) -> float:
    return kib / KIB


def bounded(settings: Settings, **kib: int) -> Settings:
    """All jobs together store at most this."""
    return settings.model_copy(update={f"keep_{kind}_gib": number / KIB / KIB for kind, number in kib.items()})


async def written(store: Store, job: Job, count: int = LINES) -> None:
    """Lines of one KiB each."""
    same = {"attempt": 1, "rank": 0, "stream": "stdout", "text": LINE, "ts": 1.0}
    async with store.write() as tx:
        await log_rows.append(tx, job.id, [{**same, "line": number} for number in range(count)])


async def traced(store: Store, job: Job, number: int) -> None:
    """A trace of `PARTS` KiB, of which one part is reported twice."""
    same = {"job_id": job.id, "attempt": 1, "steps": 1, "state": "done", "actor": "me", "asked_at": 1.0}
    part = {"job_id": job.id, "trace_id": f"trace-{number}", "step": 1, "began": 1.0, "seconds": 1.0, "head": {}}
    async with store.write() as tx:
        await tx.execute(tables.traces.insert().values(**same, id=f"trace-{number}", settled_at=1.0))
        for rank in (*range(PARTS), 0):
            await trace_rows.keep(tx, {**part, "rank": rank, "body": b"x" * KIB})


async def ended(store: Store, job: Job, days: float = 0.0, *, traces: int = 0) -> Job:
    """The job with lines and traces, ended this many days ago."""
    await written(store, job)
    for number in range(traces):
        await traced(store, job, number)
    done = await cancel(store, job.id, "tester")
    assert done.finished_at is not None
    async with store.write() as tx:
        await rows.set_columns(tx, job.id, {"finished_at": done.finished_at.timestamp() - days * DAY_S})
    return done


async def first_lines(store: Store, jobs: Sequence[Job]) -> list[int | None]:
    """Of each job the position of its first line; None without lines. The newest lines are always there."""
    found: list[int | None] = []
    for job in jobs:
        page = await logs.page(store, job.id)
        kept = [line.position for line in page.lines]
        assert kept == list(range(page.removed + 1, LINES + 1))
        assert (await logs.search(store, job.id, LogFilter())).removed == page.removed
        found.append(kept[0] if kept else None)
    return found


async def kept_traces(store: Store, job: Job) -> dict[str, int]:
    """Trace → the number of its parts."""
    parts = tables.trace_parts
    async with store.read() as tx:
        names = (await tx.execute(select(tables.traces.c.id).where(tables.traces.c.job_id == job.id))).scalars().all()
        found = (await tx.execute(select(parts.c.trace_id).where(parts.c.job_id == job.id))).scalars().all()
    return {name: Counter(found)[name] for name in names}


async def assert_sizes_are_true(store: Store) -> None:
    """What is counted is what is stored."""
    lines, sizes = tables.logs, tables.log_sizes
    async with store.read() as tx:
        stored = (await tx.execute(select(lines.c.job_id, lines.c.position, lines.c.text))).all()
        counted = (await tx.execute(select(sizes))).all()
    assert {row.job_id for row in stored} <= {row.job_id for row in counted}
    for size in counted:
        texts = [row.text for row in stored if row.job_id == size.job_id and row.position > size.uncounted]
        assert size.bytes == sum(len(text.encode()) + log_sizes.LINE_BYTES for text in texts)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Those of bounds by size."""
    return [record.getMessage() for record in caplog.records if record.name == size_retention.__name__]


async def test_an_ended_job_keeps_the_newest_lines_that_its_spec_allows(
    store: Store, settings: Settings, submit: Submit
) -> None:
    own = {"logs_mib": mib(10)}
    made = [await submit(retention=one) for one in (own, own, {"logs_mib": 0}, {}, {"logs_mib": mib(9.5)})]
    lives = await submit(retention=own)
    for job in made:
        await ended(store, job)
    await edit(store, made[1].id, JobEdit(pinned=True))
    await written(store, lives)
    for _ in range(2):
        await retention.sweep(store, settings)
        assert await first_lines(store, [*made, lives]) == [21, 1, 1, 1, 22, 1]
    await edit(store, made[1].id, JobEdit(pinned=False))
    await cancel(store, lives.id, "tester")
    async with store.write() as tx:
        assert await leases.take(tx, Lease(made[1].id, "token", "a"), 600.0)
    await retention.sweep(store, settings)
    assert await first_lines(store, [made[1], lives]) == [1, 21], "a dispatcher still looks after the first"
    await assert_sizes_are_true(store)


@POSTGRESQL_IN_FULL
async def test_an_ended_job_keeps_the_newest_traces_that_its_spec_allows(
    store: Store, settings: Settings, submit: Submit
) -> None:
    own = {"traces_mib": mib(2 * PARTS)}
    bound, pinned, lives = [await submit(retention=own) for _ in range(3)]
    for job in (bound, pinned):
        await ended(store, job, traces=3)
    await edit(store, pinned.id, JobEdit(pinned=True))
    for number in range(3):
        await traced(store, lives, number)
    for _ in range(2):
        await retention.sweep(store, settings)
        assert await kept_traces(store, bound) == {"trace-1": PARTS, "trace-2": PARTS}
    for job in (pinned, lives):
        assert await kept_traces(store, job) == dict.fromkeys(("trace-0", "trace-1", "trace-2"), PARTS)
    assert await first_lines(store, [bound]) == [1]


@POSTGRESQL_IN_FULL
async def test_beyond_the_bound_of_all_jobs_the_oldest_lines_of_the_job_that_ended_first_go(
    store: Store, settings: Settings, submit: Submit, caplog: pytest.LogCaptureFixture
) -> None:
    pinned, oldest, deleted, newer, newest = [await ended(store, await submit(), days) for days in (5, 4, 3, 2, 1)]
    lives = await submit(retention={"logs_days": 1})
    await written(store, lives)
    await edit(store, pinned.id, JobEdit(pinned=True))
    await delete(store, deleted.id, "ada")
    caplog.set_level(logging.WARNING, size_retention.__name__)
    with removed_by_transaction(store) as removed:
        for _ in range(2):
            await retention.sweep(store, bounded(settings, logs=130))
    assert max(removed) == removals.MOST_ROWS and sum(removed) == 50
    await undelete(store, deleted.id)
    all_jobs = [pinned, oldest, deleted, newer, newest, lives]
    assert await first_lines(store, all_jobs) == [1, None, 21, 1, 1, 1]
    await retention.sweep(store, bounded(settings, logs=125))
    assert await first_lines(store, all_jobs) == [1, None, 26, 1, 1, 1], "a restored job is as it was"
    assert not warnings(caplog)
    await assert_sizes_are_true(store)


@POSTGRESQL_IN_FULL
async def test_running_and_pinned_jobs_leave_the_others_half_of_the_bound(
    store: Store, settings: Settings, submit: Submit, caplog: pytest.LogCaptureFixture
) -> None:
    pinned, oldest, newest = [await ended(store, await submit(), days) for days in (3, 2, 1)]
    lives = await submit()
    await written(store, lives)
    await edit(store, pinned.id, JobEdit(pinned=True))
    caplog.set_level(logging.WARNING, size_retention.__name__)
    for kib, kept in ((120, [1, 1, 1, 1]), (90, [1, 16, 1, 1]), (40, [1, None, 11, 1]), (10, [1, None, 26, 1])):
        for _ in range(2):
            await retention.sweep(store, bounded(settings, logs=kib))
            assert await first_lines(store, [pinned, oldest, newest, lives]) == kept, kib
    messages = warnings(caplog)
    assert len(messages) == 6 and all("the logs of running and pinned jobs take 0.00 GiB" in one for one in messages)
    await edit(store, pinned.id, JobEdit(pinned=False))
    await cancel(store, lives.id, "tester")
    await retention.sweep(store, bounded(settings, logs=10))
    assert await first_lines(store, [pinned, oldest, newest, lives]) == [None, None, None, 21]
    assert len(warnings(caplog)) == 6
    await assert_sizes_are_true(store)


@POSTGRESQL_IN_FULL
async def test_beyond_the_bound_of_all_jobs_the_oldest_traces_of_the_job_that_ended_first_go(
    store: Store, settings: Settings, submit: Submit
) -> None:
    pinned, older, newer = [await ended(store, await submit(), days, traces=2) for days in (3, 2, 1)]
    await edit(store, pinned.id, JobEdit(pinned=True))
    both = dict.fromkeys(("trace-0", "trace-1"), PARTS)
    for kib, kept in ((24, both), (23, {"trace-1": PARTS}), (20, {"trace-1": PARTS}), (16, {})):
        await retention.sweep(store, bounded(settings, traces=kib))
        assert [await kept_traces(store, job) for job in (pinned, older, newer)] == [both, kept, both], kib


async def test_two_dispatchers_remove_no_more_than_one(
    store: Store, database_url: str, settings: Settings, submit: Submit
) -> None:
    made = [await ended(store, await submit(), days, traces=2) for days in (3, 2, 1)]
    own = await ended(store, await submit(retention={"logs_mib": mib(10)}), 0, traces=1)
    other = Store(database_url)
    both = bounded(settings, logs=50, traces=16)
    try:
        await asyncio.gather(*(retention.sweep(each, both) for each in (store, other)))
    finally:
        await other.close()
    assert await first_lines(store, [*made, own]) == [None, 21, 1, 21]
    left = [await kept_traces(store, job) for job in (*made, own)]
    assert left == [{}, {"trace-1": PARTS}, dict.fromkeys(("trace-0", "trace-1"), PARTS), {"trace-0": PARTS}]
    await assert_sizes_are_true(store)


@pytest.mark.parametrize("committed", [False, pytest.param(True, marks=pytest.mark.full)])
async def test_a_sweep_that_dies_at_any_transaction_is_continued_and_leaves_true_sizes(
    store: Store, database_url: str, settings: Settings, submit: Submit, committed: bool
) -> None:
    older = await ended(store, await submit(), 1, traces=2)
    own = await ended(store, await submit(retention={"logs_mib": mib(20), "traces_mib": mib(PARTS)}), traces=2)
    both = bounded(settings, logs=30, traces=2 * PARTS)
    for after in itertools.count():
        dying = Dying(database_url, after, committed)
        try:
            await retention.sweep(dying, both)
            break
        except Died:
            await assert_sizes_are_true(store)
            await first_lines(store, [older, own])
            assert (await kept_traces(store, own))["trace-1"] == PARTS
        finally:
            await dying.close()
    assert after > 3
    assert await first_lines(store, [older, own]) == [21, 11]
    assert [await kept_traces(store, job) for job in (older, own)] == [{"trace-1": PARTS}] * 2
    await assert_sizes_are_true(store)


@POSTGRESQL_IN_FULL
@pytest.mark.parametrize("every", [True, False])
async def test_lines_of_an_earlier_version_are_counted_when_a_bound_needs_them(
    store: Store, settings: Settings, submit: Submit, every: bool
) -> None:
    own = await ended(store, await submit(retention={"logs_mib": mib(10)}))
    other, lives = await ended(store, await submit(), 1), await submit()
    await written(store, lives, LINES - 5)
    async with store.write() as tx:  # as the migration leaves them
        positions = {
            "bytes": 0,
            "uncounted": select(rows.jobs.c.log_pos)
            .where(rows.jobs.c.id == tables.log_sizes.c.job_id)
            .scalar_subquery(),
        }
        await tx.execute(update(tables.log_sizes).values(positions))
    await written(store, lives, 5)
    await assert_sizes_are_true(store)
    await retention.sweep(store, bounded(settings, logs=60) if every else settings)
    assert await first_lines(store, [own, other, lives]) == ([21, 11, 1] if every else [21, 1, 1])
    await assert_sizes_are_true(store)
    assert await uncounted(store) == (set() if every else {other.id, lives.id})


async def uncounted(store: Store) -> set[str]:
    sizes = tables.log_sizes
    async with store.read() as tx:
        return {*(await tx.execute(select(sizes.c.job_id).where(sizes.c.uncounted > 0))).scalars()}


@POSTGRESQL_IN_FULL
async def test_what_goes_by_age_is_not_counted_any_more(store: Store, settings: Settings, submit: Submit) -> None:
    old, young = [await ended(store, await submit(), days) for days in (3, 1)]
    aged: dict[str, Any] = {"keep_logs_days": 2.0}
    await retention.sweep(store, settings.model_copy(update=aged))
    assert await first_lines(store, [old, young]) == [None, 1]
    await assert_sizes_are_true(store)
    await retention.sweep(store, bounded(settings, logs=LINES))
    assert await first_lines(store, [young]) == [1]


@POSTGRESQL_IN_FULL
async def test_lines_that_were_never_counted_do_not_make_a_size_negative(store: Store, submit: Submit) -> None:
    """An earlier version that still ran after the migration stored them."""
    old = await ended(store, await submit())
    async with store.write() as tx:
        await tx.execute(update(tables.log_sizes).values(bytes=5 * KIB))
        assert not await log_sizes.remove_oldest(tx, old.id, LINES, 10 * KIB)
        assert (await tx.execute(select(tables.log_sizes.c.bytes))).scalar_one() == 0
    await written(store, old, 1)
    async with store.read() as tx:
        assert (await tx.execute(select(tables.log_sizes.c.bytes))).scalar_one() == KIB
