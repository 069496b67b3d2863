"""Edits of a job's name, labels and notes, over both databases."""

import asyncio

import pytest
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.service.errors import JobDeleted, JobNotFound
from shardyard.service.jobs import edit as editing
from shardyard.service.jobs.delete import delete
from shardyard.service.jobs.edit import edit
from shardyard.service.jobs.submit import cancel
from shardyard.service.queries import jobs
from shardyard.service.schemas.job import JobEdit
from shardyard.service.schemas.job_order import Order, Sort
from shardyard.service.store.engine import Store
from shardyard.service.store.jobs import Filter

from ..conftest import Submit


async def found_by(store: Store, **labels: str) -> list[str]:
    return [job.id for job in (await jobs.list_jobs(store, Filter(labels=labels))).items]


async def test_an_edited_job_is_found_by_its_new_name_and_labels_and_no_longer_by_the_old(
    store: Store, submit: Submit
) -> None:
    job, other = await submit(name="before", labels={"team": "a", "kept": "1"}), await submit(name="other")
    wanted = JobEdit(name="after", labels={"kept": "1", "team": "b", "new": ""}, notes=" One.\r\n\n<b>Two</b>\n")
    edited = await edit(store, job.id, wanted)
    assert (edited.name, edited.labels, edited.notes) == (wanted.name, wanted.labels, wanted.notes)
    assert edited == await jobs.get_job(store, "after") == await edit(store, job.id, wanted)
    assert edited.spec == job.spec and edited.spec["name"] == "before"
    assert [one.name for one in (await jobs.list_jobs(store, sort=Sort(Order.NAME))).items] == ["after", "other"]
    assert [one.id for one in (await jobs.list_jobs(store, Filter(name="after", text="fte"))).items] == [job.id]
    assert await found_by(store, team="b", new="", kept="1") == [job.id] and await found_by(store, team="a") == []
    assert (await jobs.get_job(store, other.id)) == other
    with pytest.raises(JobNotFound):
        await jobs.get_job(store, "before")


async def test_what_is_not_given_stays_and_what_is_empty_is_removed_also_of_an_ended_job(
    store: Store, submit: Submit
) -> None:
    job = await submit(name="mine", labels={"team": "a"})
    await cancel(store, job.id, "tester")
    assert job.notes == ""
    edited = await edit(store, job.id, JobEdit(notes="One."))
    assert (edited.state, edited.name, edited.labels, edited.notes) == ("cancelled", "mine", {"team": "a"}, "One.")
    edited = await edit(store, job.id, JobEdit(labels={}, notes=""))
    assert (edited.name, edited.labels, edited.notes) == ("mine", {}, "") and await found_by(store, team="a") == []
    with pytest.raises(JobNotFound):
        await edit(store, "absent", JobEdit(notes="One."))


async def test_of_edits_at_the_same_time_one_counts_as_a_whole(store: Store, submit: Submit) -> None:
    job = await submit(labels={"team": "a"})
    edits = [JobEdit(name=f"name-{n}", labels={"team": f"{n}", f"of-{n}": "1"}, notes=f"{n}") for n in range(8)]
    await asyncio.gather(*(edit(store, job.id, wanted) for wanted in edits))
    now = await jobs.get_job(store, job.id)
    assert JobEdit(name=now.name, labels=now.labels, notes=now.notes) in edits
    for wanted in edits:
        assert await found_by(store, **(wanted.labels or {})) == ([job.id] if wanted.name == now.name else [])


async def test_a_job_that_is_deleted_at_the_same_time_is_not_pinned(
    store: Store, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be hidden, and never removed. On SQLite there is one writer."""
    job = await cancel(store, (await submit()).id, "tester")
    if store.dialect == "sqlite":
        await delete(store, job.id, "ada")

    async def deleted_after(tx: AsyncConnection, job_id: str) -> RowMapping:
        row = await jobs.existing(tx, job_id)
        await delete(store, job.id, "ada")
        return row

    monkeypatch.setattr(editing, "existing", deleted_after)
    with pytest.raises(JobDeleted):
        await edit(store, job.id, JobEdit(pinned=True))
    (deleted,) = (await jobs.list_jobs(store, Filter(deleted=True))).items
    assert not deleted.pinned
