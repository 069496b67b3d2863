"""How long a gang may take for the save after which it ends, and what is reported if it takes longer."""

import asyncio
from typing import Any

import pytest
from harness.databases import POSTGRESQL_IN_FULL

from shardyard.service.dispatch import final_save
from shardyard.service.dispatch.elastic_growth import _can_continue
from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.errors import LeaseLost
from shardyard.service.jobs.pause import pause
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.states import State
from shardyard.service.store import attempts, jobs
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from ...inprocess_cluster import Gang, InProcessCluster, run_until_stopped
from ..gang_events import event_batch, state, step
from .dispatching import dispatching, job_history, reached, submit, until

Placed = tuple[Job, Lease]


def checkpoint(step: int, seconds: float = 0.1) -> dict[str, Any]:
    return {"step": step, "path": f"/c/{step}", "bytes": 1, "seconds": seconds, "held_s": 0.1}


async def report(store: Store, placed: Placed, *given: tuple[str, dict[str, Any]]) -> None:
    """Further events of the job's gang."""
    job, lease = placed
    async with store.read() as tx:
        attempt = await attempts.get(tx, job.id, 1)
    assert attempt is not None
    await ingest(store, lease, 1, event_batch(*given, first=attempt["cursor"] + 1))


async def incidents(store: Store, job: Job) -> list[Any]:
    return [item for item in await job_history(store, job) if item.kind == "incident"]


RUNNING = (state("starting"), state("running"))


async def test_a_job_whose_saves_take_long_has_more_time(store: Store, settings: Settings, placed: Placed) -> None:
    job, short = placed[0], settings.model_copy(update={"reshard_s": 10.0})
    assert await final_save.patience_s(store, short, job.id) == 10.0
    await report(store, placed, *RUNNING, ("checkpoint", checkpoint(1, 3.0)))
    assert await final_save.patience_s(store, short, job.id) == 10.0
    await report(store, placed, ("checkpoint", checkpoint(2, 400.0)))
    assert await final_save.patience_s(store, short, job.id) == 1200.0


async def test_a_report_of_a_restored_checkpoint_does_not_shorten_the_wait(
    store: Store, settings: Settings, placed: Placed
) -> None:
    """Of a save whose own report was lost nothing is known but that it is there."""
    job, short = placed[0], settings.model_copy(update={"reshard_s": 10.0})
    await report(store, placed, *RUNNING, ("checkpoint", checkpoint(1, 300.0)), ("checkpoint", checkpoint(2, 400.0)))
    await report(store, placed, ("checkpoint", checkpoint(3, 0.0)))
    assert await final_save.patience_s(store, short, job.id) == 1200.0


async def test_steps_that_are_lost_are_reported_and_saved_ones_are_not(store: Store, placed: Placed) -> None:
    job, lease = placed
    await final_save.report_cut_off(store, lease, 600.0)
    await report(store, placed, *RUNNING, step(1), ("checkpoint", checkpoint(1)))
    await final_save.report_cut_off(store, lease, 600.0)
    assert await incidents(store, job) == []
    await report(store, placed, step(2))
    for _ in range(2):  # the database's answer may be lost
        await final_save.report_cut_off(store, lease, 600.0)
    (lost,) = await incidents(store, job)
    assert (lost.data["cause"], lost.data["step"]) == ("checkpoint_failed", 2)
    with pytest.raises(LeaseLost):
        await final_save.report_cut_off(store, Lease(job.id, "another", "b"), 600.0)
    assert len(await incidents(store, job)) == 1


async def test_a_job_whose_newest_save_failed_does_not_grow_before_it_has_saved(store: Store, placed: Placed) -> None:
    async def may_grow() -> bool:
        async with store.read() as tx:
            row = await jobs.by_id(tx, placed[0].id)
            assert row is not None
            return await _can_continue(tx, row)

    assert await may_grow()
    await report(store, placed, *RUNNING, step(1))
    await final_save.report_cut_off(store, placed[1], 600.0)
    assert not await may_grow()
    await report(store, placed, ("checkpoint", checkpoint(1)))
    assert await may_grow()
    await report(store, placed, ("incident", {"cause": "straggler", "message": ""}))
    assert await may_grow()
    await report(store, placed, ("incident", {"cause": "checkpoint_failed", "message": "a full disk"}))
    assert not await may_grow()


@POSTGRESQL_IN_FULL
async def test_a_save_that_takes_longer_than_the_setting_is_not_cut_off(
    store: Store, settings: Settings, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoints have taken a minute so far."""
    asked, stop = list[str](), cluster.stop

    async def save_first(gang: str, reason: str) -> None:
        asked.append(reason)
        await asyncio.sleep(0.5)
        await cluster.living[gang].emit("checkpoint", **checkpoint(1000))
        await stop(gang, reason)

    async def saves(gang: Gang) -> None:
        await gang.emit("checkpoint", **checkpoint(0, 60.0))
        await run_until_stopped(gang)

    monkeypatch.setattr(cluster, "stop", save_first)
    cluster.script = saves
    job = await submit(store, settings)
    async with dispatching(store, settings.model_copy(update={"reshard_s": 0.1}), cluster):
        await until(store, job, reached(State.RUNNING))
        await pause(store, job.id, "tester")
        await until(store, job, reached(State.PAUSED))
    assert asked == ["preempt"]
    assert await incidents(store, job) == []
