"""Deleted jobs are hidden and come back whole; those that others need are kept."""

import asyncio
from collections.abc import Awaitable

import pytest

from shardyard.service.errors import JobDeleted, JobInUse, JobNotEnded, JobNotFound, JobPinned, ShardyardError
from shardyard.service.jobs.delete import delete, undelete
from shardyard.service.jobs.edit import edit
from shardyard.service.jobs.submit import cancel
from shardyard.service.queries import history, jobs
from shardyard.service.schemas.job import Job, JobEdit
from shardyard.service.schemas.job_order import Order, Sort
from shardyard.service.schemas.sweep import SweepDetail
from shardyard.service.settings import Settings
from shardyard.service.store import jobs as rows
from shardyard.service.store.engine import Store
from shardyard.service.store.jobs import Filter
from shardyard.service.store.sweep_tables import sweeps

from ..conftest import Submit
from ..sweeps.learning import submit_sweep

SWEEP = {"parameters": {"train.optimizer.lr": [0.1, 0.2]}, "search": "grid"}
NO_JOB = "job-" + "0" * 26


async def ended(store: Store, submit: Submit, **fields: object) -> Job:
    return await cancel(store, (await submit(**fields)).id, "tester")


async def saved_at(store: Store, settings: Settings, job: Job) -> None:
    """The job's gang reported a checkpoint, which this process does not look for."""
    path = f"{settings.storage}/{job.id}/step-00000010"
    async with store.write() as tx:
        await rows.set_columns(tx, job.id, {"checkpoint": path})


async def names(store: Store, **wanted: bool) -> list[str]:
    return [job.name for job in (await jobs.list_jobs(store, Filter(**wanted), sort=Sort(Order.NAME))).items]


async def test_a_deleted_job_is_in_no_list_and_comes_back_as_it_was(store: Store, submit: Submit) -> None:
    older, job = await ended(store, submit, name="same"), await ended(store, submit, name="same", labels={"a": "1"})
    gone = await delete(store, job.id, "ada")
    assert gone.deleted_at is not None and gone == await delete(store, job.id, "bob")
    assert await names(store) == ["same"] and await names(store, deleted=True) == ["same"]
    assert (await jobs.list_jobs(store, Filter(labels={"a": "1"}))).items == []
    assert await jobs.get_job(store, "same") == older
    with pytest.raises(JobDeleted) as refused:
        await history.history(store, job.id)
    assert "deleted by ada" in refused.value.message and f"shardyard undelete {job.id}" in str(refused.value.remedy)
    await delete(store, older.id, "ada")
    with pytest.raises(JobDeleted):
        await jobs.get_job(store, "same")
    assert await undelete(store, job.id) == job == await undelete(store, job.id) == await jobs.get_job(store, job.id)
    assert await undelete(store, older.id) == older and await names(store, deleted=True) == []


async def test_a_job_that_is_being_removed_is_not_among_those_that_can_be_restored(
    store: Store, submit: Submit
) -> None:
    older, newer = [await ended(store, submit, name="same") for _ in range(2)]
    for job in (older, newer):
        await delete(store, job.id, "ada")
    async with store.write() as tx:
        await rows.set_columns(tx, newer.id, {"removing": True})
    (listed,) = (await jobs.list_jobs(store, Filter(deleted=True))).items
    assert (listed.id, listed.deleted_by) == (older.id, "ada")
    assert await undelete(store, older.id) == older
    with pytest.raises(JobDeleted, match="is being removed"):
        await undelete(store, newer.id)


async def test_jobs_that_live_or_are_pinned_or_do_not_exist_are_not_deleted(store: Store, submit: Submit) -> None:
    lives, pinned = await submit(), await ended(store, submit)
    await edit(store, pinned.id, JobEdit(pinned=True))
    assert (await jobs.get_job(store, pinned.id)).pinned
    refusals: list[tuple[str, type[ShardyardError]]] = [
        *((lives.id, JobNotEnded), (pinned.id, JobPinned)),
        *((NO_JOB, JobNotFound), (lives.name, JobNotFound)),
    ]
    for job_id, error in refusals:
        with pytest.raises(error):
            await delete(store, job_id, "ada")
    for name in ("absent", NO_JOB):
        with pytest.raises(JobNotFound):
            await undelete(store, name)
    await edit(store, pinned.id, JobEdit(pinned=False))
    assert (await delete(store, pinned.id, "ada")).deleted_at is not None


async def test_a_job_whose_checkpoint_another_needs_is_kept_until_that_one_has_ended(
    store: Store, settings: Settings, submit: Submit
) -> None:
    source = await ended(store, submit)
    await saved_at(store, settings, source)
    child = await submit(resume_from=source.id)
    assert child.parent == source.id
    with pytest.raises(JobInUse, match=child.id):
        await delete(store, source.id, "ada")
    await cancel(store, child.id, "tester")
    await delete(store, source.id, "ada")
    for named in (source.id, f"{settings.storage}/{source.id}/step-00000010"):
        with pytest.raises(JobDeleted, match=source.id):
            await submit(resume_from=named)
    await undelete(store, source.id)
    assert (await submit(resume_from=source.id)).parent == source.id


async def test_a_job_with_whose_checkpoint_a_sweeps_trials_begin_is_kept_until_the_sweep_has_ended(
    store: Store, settings: Settings, submit: Submit
) -> None:
    source = await ended(store, submit)
    await saved_at(store, settings, source)
    sweep = await submit_sweep(store, settings, SWEEP, resume_from=source.id)
    with pytest.raises(JobInUse, match=sweep.id) as refused:
        await delete(store, source.id, "ada")
    assert refused.value.remedy == f"Wait for the end of {sweep.id}."
    async with store.write() as tx:
        await tx.execute(sweeps.update().values(finished_at=1.0))
    assert (await delete(store, source.id, "ada")).deleted_at is not None


@pytest.mark.full
@pytest.mark.parametrize("by", ["job", "sweep"])
async def test_of_a_deletion_and_what_continues_at_the_same_time_one_is_refused(
    store: Store, settings: Settings, submit: Submit, by: str
) -> None:
    for _ in range(5):
        source = await ended(store, submit)
        await saved_at(store, settings, source)
        user: Awaitable[Job | SweepDetail] = (
            submit(resume_from=source.id)
            if by == "job"
            else submit_sweep(store, settings, SWEEP, resume_from=source.id)
        )
        both = await asyncio.gather(delete(store, source.id, "ada"), user, return_exceptions=True)
        assert sorted(isinstance(one, JobInUse | JobDeleted) for one in both) == [False, True], both
