"""What jobs use is kept by time, in a bounded number of rows."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness.patience import PATIENCE_S

from shardyard.service.queries import system
from shardyard.service.schemas.job import Job
from shardyard.service.store import system_samples
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.store.packing.metric_curve import Bucket
from shardyard.service.store.packing.system_bucket import packed


async def test_a_month_takes_a_bounded_number_of_rows(store: Store, placed: tuple[Job, Lease]) -> None:
    """The newest hour by 5 s, 12 hours by 2 minutes, and the rest by 30 minutes; no extreme is lost."""
    job, _ = placed
    days = 35
    async with store.write() as tx:
        for day in range(days):
            start = day * 86_400.0
            await system_samples.append(tx, job.id, [(start + 1200 * i, {"rank/0/cpu": float(day)}) for i in range(72)])
        await system_samples.append(tx, job.id, [(days * 86_400.0 + 5 * i, {"rank/0/cpu": 99.0}) for i in range(1000)])
        kept = [len(await system_samples.read(tx, job.id, width, 0, 2.0**31)) for width in system_samples.KEPT]
    assert kept[0] == 720
    assert all(many <= most for many, most in zip(kept, system_samples.KEPT.values(), strict=True))
    whole = await system.curves(store, job.id, "rank/cpu")
    assert len(whole.starts) <= system.MOST_BUCKETS
    (curve,) = whole.curves
    assert curve.mean[-1] == 99.0
    assert (whole.starts[-1] - whole.starts[0]) / 86_400 == pytest.approx(30, abs=0.5)
    last_hour = await system.curves(store, job.id, "rank/cpu", since=days * 86_400.0 + 3600)
    assert last_hour.width == 5


async def test_large_gangs_are_packed_beside_the_event_loop(
    store: Store, placed: tuple[Job, Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = placed
    where: set[int] = set()

    def noting(buckets: dict[str, Bucket]) -> bytes:
        where.add(threading.get_ident())
        return packed(buckets)

    monkeypatch.setattr(system_samples, "packed", noting)
    async with store.write() as tx:
        await system_samples.append(tx, job.id, [(100_000.0, {"rank/0/cpu": 1.0})])
    assert where and threading.get_ident() not in where


async def test_a_sample_that_is_older_than_what_is_kept_is_left_out(store: Store, placed: tuple[Job, Lease]) -> None:
    job, _ = placed
    async with store.write() as tx:
        await system_samples.append(tx, job.id, [(100_000.0, {"rank/0/cpu": 1.0})])
        await system_samples.append(tx, job.id, [(90_000.0, {"rank/0/cpu": 2.0})])
        hour, half_day, _ = [len(await system_samples.read(tx, job.id, width, 0, 2e5)) for width in system_samples.KEPT]
    assert (hour, half_day) == (1, 2)


async def test_samples_wait_for_no_call_that_blocks(store: Store, placed: tuple[Job, Lease]) -> None:
    """Storage that does not answer may keep all threads of `asyncio.to_thread`; a transaction does not wait for one."""
    job, _ = placed
    answered = threading.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    blocked = asyncio.create_task(asyncio.to_thread(answered.wait))
    try:
        async with asyncio.timeout(PATIENCE_S), store.write() as tx:
            await system_samples.append(tx, job.id, [(100_000.0, {"rank/0/cpu": 1.0})])
        assert not blocked.done()
    finally:
        answered.set()
        await blocked
