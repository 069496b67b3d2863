"""What a sweep removes and what it keeps, whenever it dies."""

import contextlib
import itertools
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from harness.bucket import Buckets
from harness.databases import POSTGRESQL_IN_FULL
from harness.stored_checkpoints import save_checkpoint
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.service.dispatch import retention
from shardyard.service.errors import JobDeleted, JobNotFound
from shardyard.service.jobs.delete import delete, undelete
from shardyard.service.jobs.edit import edit
from shardyard.service.jobs.submit import cancel
from shardyard.service.queries import cluster, jobs
from shardyard.service.queries.sweeps import list_sweeps
from shardyard.service.schemas.cluster import TimeRange
from shardyard.service.schemas.job import Job, JobEdit
from shardyard.service.settings import Settings
from shardyard.service.store import attempts, leases, removals
from shardyard.service.store import jobs as rows
from shardyard.service.store import sweeps as sweep_rows
from shardyard.service.store.cluster_tables import removed_attempts as removed
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.store.sweep_tables import sweeps, trials
from shardyard.service.store.tables import attempts as attempt_table
from shardyard.service.store.tables import events
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.open_folder import folder_at
from shardyard.workers.storage.s3_bucket import open_bucket

from ..conftest import Submit
from ..job_records import counted, fill, removed_by_transaction
from ..sweeps.learning import submit_sweep

DAY_S = 86_400.0
SWEEP = {"parameters": {"train.optimizer.lr": [0.1, 0.2]}, "search": "grid"}


class Died(Exception):
    """The process ends here."""


class Dying(Store):
    """Its process dies in a transaction, `after` earlier ones: before or after the commit."""

    def __init__(self, url: str, after: int, committed: bool) -> None:
        super().__init__(url)
        self._left, self._committed = after, committed

    @contextlib.asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        self._left -= 1
        async with super().write() as tx:
            yield tx
            if self._left < 0 and not self._committed:
                raise Died
        if self._left < 0:
            raise Died


def at_once(settings: Settings, **more: Any) -> Settings:
    return settings.model_copy(update={"undelete_s": 0.0, **more})


async def ended(
    store: Store, settings: Settings, submit: Submit, *, days: float = 0.0, rows_each: int = 0, retention: Any = None
) -> Job:
    """A job with a checkpoint that ended this many days ago."""
    job = await cancel(store, (await submit(retention=retention or {})).id, "tester")
    save_checkpoint(Path(settings.storage) / job.id, 10)
    if rows_each:
        await fill(store, job.id, rows_each)
    async with store.write() as tx:
        assert job.finished_at is not None
        await rows.set_columns(tx, job.id, {"finished_at": job.finished_at.timestamp() - days * DAY_S})
    return job


def folder(settings: Settings, job: Job) -> Path:
    return Path(settings.storage) / job.id


def sources_record(settings: Settings, job: Job) -> Path:
    """The folder that says what the sources of the job's files had."""
    record = Path(settings.files(job.id))
    record.mkdir(parents=True)
    (record / "files.json").touch()
    return record


async def deleted(store: Store, settings: Settings, submit: Submit, many: int) -> list[Job]:
    """Deleted jobs with files in the storage. They had ended."""
    made = [await ended(store, settings, submit) for _ in range(many)]
    for job in made:
        await delete(store, job.id, "ada")
    return made


def are_gone(*folders: Path) -> bool:
    return not any(one.exists() for one in folders)


async def test_a_deleted_job_is_removed_after_its_time_and_not_before(
    store: Store, settings: Settings, submit: Submit
) -> None:
    job = await ended(store, settings, submit, rows_each=2)
    before = await counted(store, job.id)
    await delete(store, job.id, "ada")
    await retention.sweep(store, settings)
    assert await counted(store, job.id) == before and folder(settings, job).is_dir()
    await undelete(store, job.id)
    await retention.sweep(store, at_once(settings))
    assert await counted(store, job.id) == before and folder(settings, job).is_dir()
    await delete(store, job.id, "ada")
    record = sources_record(settings, job)
    await retention.sweep(store, at_once(settings))
    assert await counted(store, job.id) == {} and are_gone(folder(settings, job), record)
    with pytest.raises(JobNotFound):
        await undelete(store, job.id)


async def test_the_device_time_of_a_removed_job_stays_its_users_for_eight_days(
    store: Store, settings: Settings, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also between the transactions of its removal: nothing counts twice."""
    monkeypatch.setattr(removals, "MOST_ROWS", 2)
    job, other = [await ended(store, settings, submit) for _ in range(2)]
    now = time.time()
    same = {"job_id": job.id, "gang": "g", "device": "cpu", "nodes": [], "started_at": now - 20 * DAY_S}
    # None: an earlier version did not store it; an attempt that was left open is none that ran
    of_both = [(9, 3), (7.9, 3), (6, None), (4, 2), (2, 1), (0, 1), (None, 5)]
    async with store.write() as tx:
        for number, (days, devices) in enumerate(of_both, start=1):
            at = None if days is None else now - days * DAY_S
            await attempts.insert(tx, {**same, "number": number, "devices": devices, "ended_at": at})
        await attempts.insert(tx, {**same, "job_id": other.id, "number": 1, "devices": 1, "ended_at": now})

    async def taken() -> list[tuple[str, int, float]]:
        found = (await cluster.device_times(store, TimeRange.WEEK)).items
        return [(one.actor, one.jobs, round(one.device_s / DAY_S, 1)) for one in found]

    before = await taken()
    assert before == [("tester", 2, 1 + 2 * 3 + 5 + 7 + 7)]
    await delete(store, job.id, "ada")
    async with store.write() as tx:
        await removals.begin(tx, 0.0, settings.cluster, 1)
    more = True
    while more:
        async with store.write() as tx:
            more = await removals.remove_rows(tx, attempt_table, job.id)
        assert await taken() == before
    await retention.sweep(store, settings)
    assert await counted(store, job.id) == {} and await taken() == before
    async with store.write() as tx:
        rows_left = select(removed.c.number).order_by(removed.c.number)
        assert (await tx.execute(rows_left)).scalars().all() == [2, 3, 4, 5, 6]
        await tx.execute(removed.update().values(ended_at=removed.c.ended_at - 3 * DAY_S))
    await retention.sweep(store, settings)
    async with store.read() as tx:
        assert (await tx.execute(rows_left)).scalars().all() == [4, 5, 6]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_job_with_a_storage_of_its_own_loses_its_files_in_the_services_too(
    store: Store, settings: Settings, submit: Submit, tmp_path: Path
) -> None:
    """Such as the results of Ray Train, which its program writes to the service's storage."""
    own = tmp_path / "own"
    job = await cancel(store, (await submit(checkpoint={"uri": str(own)})).id, "tester")
    save_checkpoint(own / job.id, 10)
    results = folder(settings, job) / "ray_results"
    results.mkdir(parents=True)
    (results / "result.json").touch()
    await delete(store, job.id, "ada")
    await retention.sweep(store, at_once(settings))
    assert await counted(store, job.id) == {} and are_gone(own / job.id, folder(settings, job))


@POSTGRESQL_IN_FULL
async def test_a_sweep_opens_each_storage_once(
    store: Store, settings: Settings, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new client of a bucket costs half a second of CPU, and ten thousand jobs may be removed at once."""
    made = await deleted(store, settings, submit, 3)
    opened: list[str] = []

    def noted(where: str) -> Folder:
        assert threading.current_thread().name == "retention", "no thread that others use"
        opened.append(where)
        return folder_at(where)

    monkeypatch.setattr(retention, "folder_at", noted)
    await retention.sweep(store, at_once(settings))
    assert are_gone(*(folder(settings, job) for job in made))
    assert sorted(opened) == [settings.storage, f"{settings.storage}/artifacts", f"{settings.storage}/files"]


@pytest.mark.parametrize(
    ("committed", "rows_each"),
    [(False, 3), *(pytest.param(committed, 6, marks=pytest.mark.full) for committed in (False, True))],
)
async def test_a_sweep_that_dies_at_any_transaction_is_continued_and_touches_no_other_job(
    store: Store,
    database_url: str,
    settings: Settings,
    submit: Submit,
    monkeypatch: pytest.MonkeyPatch,
    committed: bool,
    rows_each: int,
) -> None:
    """With 3 rows in each table one transaction empties it, with 6 it takes two."""
    monkeypatch.setattr(removals, "MOST_ROWS", 4)
    monkeypatch.setattr(removals, "MOST_LARGE_ROWS", 4)
    job, other = [await ended(store, settings, submit, rows_each=rows_each) for _ in range(2)]
    kept, old, other = await counted(store, other.id), at_once(settings), await jobs.get_job(store, other.id)
    await delete(store, job.id, "ada")
    for after in itertools.count():
        dying = Dying(database_url, after, committed)
        try:
            await retention.sweep(dying, old)
            break
        except Died:
            async with store.read() as tx:
                row = await rows.by_id(tx, job.id)
            assert row is None or folder(settings, job).exists() or row["removing"]
            assert row is not None or await counted(store, job.id) == {}, "the row is the last to go"
        finally:
            await dying.close()
    assert after > len(removals.OF_JOBS)
    assert await counted(store, job.id) == {} and not folder(settings, job).exists()
    with pytest.raises(JobNotFound):
        await jobs.get_job(store, job.id)
    read = await jobs.get_job(store, other.id)
    # Its attempts are open, so their device time grows.
    assert await counted(store, other.id) == kept and read.model_copy(update={"device_s": other.device_s}) == other
    assert folder(settings, other).is_dir()


@pytest.mark.full
async def test_a_removal_that_has_begun_cannot_be_undone_and_waits_for_its_files(
    store: Store, settings: Settings, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, next_one = [await ended(store, settings, submit) for _ in range(2)]
    kept, within = await counted(store, job.id), folder(settings, job)
    for one in (job, next_one):
        await delete(store, one.id, "ada")
    link, outside = within / "link", Path(settings.storage).parent / "outside"
    outside.mkdir()
    (outside / "mine").write_text("not the job's")
    link.symlink_to(outside)
    with monkeypatch.context() as broken:
        broken.setattr("shutil.rmtree", lambda path, **_: None)  # as a file system that refuses
        await retention.sweep(store, at_once(settings))
    assert await counted(store, job.id) == kept and within.is_dir()
    with pytest.raises(JobDeleted, match="is being removed"):
        await undelete(store, job.id)
    await retention.sweep(store, at_once(settings))
    assert [await counted(store, one.id) for one in (job, next_one)] == [{}, {}]
    assert not within.exists() and (outside / "mine").exists()


def stored_in(prefix: str, job: Job) -> None:
    """A checkpoint with an export beside it, and an upload whose writer died."""
    checkpoints = folder_at(f"{prefix}/{job.id}")
    (checkpoints / "step-00000010").write("rank-0", memoryview(b"x" * 100))
    (checkpoints / "exports" / "step-00000010" / "tokenizer").publish("tokenizer.json", b"{}")
    name, _, root = prefix.removeprefix("s3://").partition("/")
    open_bucket(name).call("create_multipart_upload", Key=f"{root}/{job.id}/step-00000020/rank-0")


def keys_in(prefix: str) -> set[str]:
    """All objects below it, and uploads that have not ended; where they are, without the prefix."""
    name, _, root = prefix.removeprefix("s3://").partition("/")
    objects = open_bucket(name).call("list_objects_v2", Prefix=f"{root}/").get("Contents", ())
    uploads = open_bucket(name).call("list_multipart_uploads", Prefix=f"{root}/").get("Uploads", ())
    return {one["Key"].removeprefix(f"{root}/") for one in (*objects, *uploads)}


@pytest.mark.full
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_files_in_a_bucket_are_removed_with_their_job_and_no_others(
    store: Store, settings: Settings, submit: Submit, prefix: str
) -> None:
    at_server = settings.model_copy(update={"storage": prefix})
    job, other = [await cancel(store, (await submit()).id, "tester") for _ in range(2)]
    own = await cancel(store, (await submit(checkpoint={"uri": f"{prefix}/own"})).id, "tester")
    for one, where in ((job, prefix), (other, prefix), (own, f"{prefix}/own")):
        stored_in(where, one)
        folder_at(f"{prefix}/artifacts/{one.id}").publish("0" * 64, b"a picture")
    kept = {key for key in keys_in(prefix) if other.id in key.split("/")}
    assert len(kept) == 4
    for one in (job, own):
        await delete(store, one.id, "ada")
    await retention.sweep(store, at_once(at_server))
    assert keys_in(prefix) == kept
    assert [await counted(store, one.id) for one in (job, own)] == [{}, {}]


@pytest.mark.full
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_job_stays_until_its_bucket_can_be_reached(
    store: Store, settings: Settings, submit: Submit, prefix: str, buckets: Buckets
) -> None:
    at_server = settings.model_copy(update={"storage": prefix})
    job = await cancel(store, (await submit()).id, "tester")
    stored_in(prefix, job)
    before = await counted(store, job.id)
    await delete(store, job.id, "ada")
    buckets.kill()
    try:
        await retention.sweep(store, at_once(at_server))
    finally:
        buckets.start()
    assert await counted(store, job.id) == before
    await retention.sweep(store, at_once(at_server))
    assert keys_in(prefix) == set() and await counted(store, job.id) == {}


@pytest.mark.full
async def test_a_job_under_a_lease_or_with_an_open_operation_or_of_another_cluster_is_not_removed_yet(
    store: Store, settings: Settings, submit: Submit
) -> None:
    leased, busy, away = [await ended(store, settings, submit) for _ in range(3)]
    await fill(store, busy.id, 1, [removals.operations])
    async with store.write() as tx:
        assert await leases.take(tx, Lease(leased.id, "token", "a"), 600.0)
        await tx.execute(removals.operations.update().values(settled_at=None))
        await rows.set_columns(tx, away.id, {"cluster": "away"})
    for job in (leased, busy, away):
        await delete(store, job.id, "ada")
    await retention.sweep(store, at_once(settings))
    assert all(folder(settings, job).is_dir() for job in (leased, busy, away))
    async with store.write() as tx:
        await leases.release(tx, ["token"])
        await tx.execute(removals.operations.update().values(settled_at=1.0))
    await retention.sweep(store, at_once(settings, cluster="away"))
    assert [folder(settings, job).is_dir() for job in (leased, busy, away)] == [False, False, False]


@pytest.mark.parametrize(
    ("kind", "gone"),
    [
        pytest.param("logs", {"logs"}, marks=pytest.mark.full),
        ("metrics", {"steps", "rollups", "rank_samples", "system_samples", "metric_series", "metric_chunks"}),
        pytest.param("events", set(), marks=pytest.mark.full),
        pytest.param("traces", {"traces", "trace_parts"}, marks=pytest.mark.full),
    ],
)
async def test_records_of_a_kind_are_removed_by_their_age_except_of_pinned_and_living_jobs(
    store: Store, settings: Settings, submit: Submit, kind: str, gone: set[str]
) -> None:
    old, young, pinned = [await ended(store, settings, submit, days=days, rows_each=3) for days in (3, 1, 3)]
    lives = await submit()
    await fill(store, lives.id, 3)
    await edit(store, pinned.id, JobEdit(pinned=True))
    before = [await counted(store, job.id) for job in (old, young, pinned, lives)]
    await retention.sweep(store, settings.model_copy(update={f"keep_{kind}_days": 2.0}))
    after = [await counted(store, job.id) for job in (old, young, pinned, lives)]
    assert after[1:] == before[1:]
    assert {name for name in before[0] if before[0][name] != after[0].get(name)} == (gone or {"events"})
    if kind == "events":
        assert after[0]["events"] == 2, "the moves of its state stay"
    assert (await jobs.get_job(store, old.id)).state == "cancelled" and folder(settings, old).is_dir()


async def test_a_jobs_own_retention_is_used_in_place_of_the_settings(
    store: Store, settings: Settings, submit: Submit
) -> None:
    """Each job ended three days ago. 0 keeps a kind forever, and null leaves it to the settings."""
    own: list[dict[str, float | None]] = [{"logs_days": 2.5}, {"logs_days": 4}, {"logs_days": 0}, {"traces_days": 1}]
    found = [await ended(store, settings, submit, days=3, rows_each=2, retention=one) for one in (None, *own)]
    before = [await counted(store, job.id) for job in found]

    async def gone() -> list[set[str]]:
        after = [await counted(store, job.id) for job in found]
        return [{name for name in was if was[name] != now.get(name)} for was, now in zip(before, after, strict=True)]

    traces = {"traces", "trace_parts"}
    await retention.sweep(store, settings)
    assert await gone() == [set(), {"logs"}, set(), set(), traces]
    await retention.sweep(store, settings.model_copy(update={"keep_logs_days": 2.0}))
    assert await gone() == [{"logs"}, {"logs"}, set(), set(), {"logs"} | traces]


async def test_old_jobs_are_deleted_as_a_whole_and_can_be_restored_for_a_day(
    store: Store, settings: Settings, submit: Submit
) -> None:
    old, young, pinned, *sources = [await ended(store, settings, submit, days=days) for days in (3, 1, 3, 3, 3)]
    await edit(store, pinned.id, JobEdit(pinned=True))
    async with store.write() as tx:
        for source in sources:
            await rows.set_columns(tx, source.id, {"checkpoint": str(folder(settings, source) / "step-00000010")})
    child = await submit(resume_from=sources[0].id)
    await submit_sweep(store, settings, SWEEP, resume_from=sources[1].id)
    aged = settings.model_copy(update={"keep_jobs_days": 2.0})
    await retention.sweep(store, aged)
    with pytest.raises(JobDeleted, match="deleted by retention"):
        await jobs.get_job(store, old.id)
    for kept in (young, pinned, *sources, child):
        assert (await jobs.get_job(store, kept.id)).deleted_at is None
    await edit(store, (await undelete(store, old.id)).id, JobEdit(pinned=True))
    await retention.sweep(store, at_once(aged))
    assert (await jobs.get_job(store, old.id)).pinned and folder(settings, old).is_dir()


async def test_an_old_sweep_goes_with_the_last_of_its_jobs(store: Store, settings: Settings, submit: Submit) -> None:
    kept, with_job, _ = [(await submit_sweep(store, settings, SWEEP)).id for _ in range(3)]
    job = await ended(store, settings, submit, days=3)
    await edit(store, job.id, JobEdit(pinned=True))
    async with store.write() as tx:
        await sweep_rows.change(tx, with_job, 1, {"job_id": job.id})
        await tx.execute(sweeps.update().where(sweeps.c.id != kept).values(state="cancelled", finished_at=1.0))
    await retention.sweep(store, at_once(settings))
    assert len((await list_sweeps(store)).items) == 3, "without keep_jobs_days nothing ages"
    aged = at_once(settings, keep_jobs_days=2.0)
    await retention.sweep(store, aged)
    assert {one.id for one in (await list_sweeps(store)).items} == {with_job, kept}
    await edit(store, job.id, JobEdit(pinned=False))
    await retention.sweep(store, aged)
    assert [one.id for one in (await list_sweeps(store)).items] == [kept]
    async with store.read() as tx:
        assert {row["sweep_id"] for row in (await tx.execute(trials.select())).mappings()} == {kept}


@pytest.mark.full
async def test_many_events_are_removed_in_transactions_of_few_rows(
    store: Store, settings: Settings, submit: Submit
) -> None:
    job = await ended(store, settings, submit)
    await fill(store, job.id, 10_000, [events])
    await delete(store, job.id, "ada")
    with removed_by_transaction(store) as removed:
        await retention.sweep(store, at_once(settings))
    assert max(removed) == removals.MOST_ROWS and sum(removed) == 10_000 + 2 + 1, "its states and its row, too"
    assert len([rows for rows in removed if rows]) == 10_000 // removals.MOST_ROWS + 2
    others = len(removals.OF_JOBS) + len(removals.KINDS) + 8  # on PostgreSQL the reads are of this engine, too
    assert len(removed) <= 10_000 // removals.MOST_ROWS + others
