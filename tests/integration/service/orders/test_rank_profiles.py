"""Asking for profiles, over both databases: what is refused leaves nothing behind, one key is one profile, and its file is the job's."""

import asyncio
from dataclasses import replace

import pytest

from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.dispatch.retry import lose_attempt
from shardyard.service.errors import (
    IdempotencyConflict,
    JobNotFound,
    JobNotRunning,
    ShardyardError,
)
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.transitions import Cause
from shardyard.service.orders import rank_profiles
from shardyard.service.orders.rank_profiles import MOST_OPEN, create, page
from shardyard.service.policies.limits import ArtifactLimits, Rules
from shardyard.service.profile_errors import ProfileNotPossible, ProfileRankUnknown, TooManyProfiles
from shardyard.service.queries import artifacts, live_tail
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.job import Job
from shardyard.service.schemas.profile import ProfileRequest
from shardyard.service.settings import Settings
from shardyard.service.spec import CommandSpec
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.workers.messages.artifact import Artifact
from shardyard.workers.messages.event import ProfileEvent, to_json

from ..conftest import Submit
from ..gang_events import event_batch, state
from ..running_job import running, started

STACKS = ProfileRequest(rank=1)
FILE = Artifact(name="profiles/rank-1-stacks-x.txt", bytes=9, sha256="a" * 64)


async def test_what_cannot_be_profiled_is_refused(store: Store, submit: Submit) -> None:
    queued, job = await submit(name="queued"), await running(store, submit)
    cases: list[tuple[str, ProfileRequest, type[ShardyardError]]] = [
        ("absent", STACKS, JobNotFound),
        (queued.id, STACKS, JobNotRunning),
        (job.id, ProfileRequest(rank=2), ProfileRankUnknown),
    ]
    for name, request, kind in cases:
        with pytest.raises(kind) as refused:
            await create(store, name, request, None, "me")
        assert kind is JobNotFound or (refused.value.field and refused.value.remedy)
    assert (await page(store, job.id)).items == []


async def test_what_no_process_can_record_of_itself_is_refused(
    store: Store, settings: Settings, submit: Submit
) -> None:
    training = await running(store, submit)
    spec = CommandSpec.model_validate({"name": "mine", "command": ["true"], "ranks": 2})
    program = await started(store, (await submitting.submit(store, settings, spec, None, "", "tester"))[0])
    for job in (program, training):
        with pytest.raises(ProfileNotPossible) as refused:
            await create(store, job.id, ProfileRequest(rank=0, kind="memory"), None, "me")
        assert refused.value.field == "kind" and refused.value.remedy
        assert (await create(store, job.id, ProfileRequest(rank=0, kind="operators"), None, "me")).state == "open"


async def test_one_key_is_one_profile_and_few_are_open(store: Store, submit: Submit) -> None:
    job = await running(store, submit)
    asked = await asyncio.gather(*(create(store, job.id, STACKS, "key", "me") for _ in range(5)))
    assert len({profile.id for profile in asked}) == 1
    assert (asked[0].job, asked[0].state, asked[0].file, asked[0].actor) == (job.id, "open", None, "me")
    with pytest.raises(IdempotencyConflict):
        await create(store, job.id, ProfileRequest(rank=0), "key", "me")
    for _ in range(MOST_OPEN - 1):
        await create(store, job.id, STACKS, None, "me")
    with pytest.raises(TooManyProfiles):
        await create(store, job.id, STACKS, None, "me")
    first = await page(store, job.id, limit=5)
    rest = await page(store, job.id, before=first.next, limit=5)
    assert len({one.id for one in (*first.items, *rest.items)}) == MOST_OPEN and rest.next is None


async def test_a_profile_is_reported_once_done_or_failed(store: Store, settings: Settings, submit: Submit) -> None:
    job = await running(store, submit)
    taken, left = [await create(store, job.id, STACKS, None, who) for who in ("me", "you")]
    event = ProfileEvent(id=taken.id, profile="stacks", rank=1, done=True, message="the stacks", file=FILE)
    async with store.write() as tx:
        first = await rank_profiles.settle(tx, job.id, event, 5.0, run=1, limits=ArtifactLimits())
        assert first is not None and (first.asked_by, first.done, first.file) == ("me", True, FILE)
        assert await rank_profiles.settle(tx, job.id, event, 6.0, run=1, limits=ArtifactLimits()) is None
    async with store.write() as tx:
        row = await job_rows.by_id(tx, job.id)
        assert row is not None
        await lose_attempt(tx, row, Cause("test", 7.0, "rank_lost"), settings.rules.backoff)
    newest, oldest = (await page(store, job.id)).items
    assert (oldest.state, oldest.file, oldest.message) == ("done", FILE.name, "the stacks")
    assert (newest.id, newest.state, newest.file) == (left.id, "failed", None)
    batch = [item.data for item in (await live_tail.tail(store, job.id, Cursor())).items if item.kind == "profile"]
    assert [(data["id"], data["done"], data["asked_by"]) for data in batch] == [(left.id, False, "you")]


async def test_a_profile_becomes_a_file_of_its_job_however_often_it_is_reported(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    await ingest(store, lease, 1, event_batch(state("starting"), state("running")))
    asked = await create(store, job.id, ProfileRequest(rank=0), None, "me")
    event = ProfileEvent(id=asked.id, profile="stacks", rank=0, done=True, message="so", file=FILE)
    hostile = replace(event, file=replace(FILE, sha256="../" * 21 + "x"))
    batch = [("profile", to_json(one)) for one in (hostile, event, event)]
    await ingest(store, lease, 1, event_batch(*batch, first=3))
    [file] = (await artifacts.page(store, job.id)).items
    assert (file.name, file.rank, file.bytes, file.sha256) == (FILE.name, 0, 9, FILE.sha256)
    [done] = (await page(store, job.id)).items
    assert (done.state, done.file) == ("done", FILE.name)


async def test_a_profile_without_room_among_the_jobs_files_fails_and_says_why(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    await ingest(store, lease, 1, event_batch(state("starting"), state("running")))
    asked = [await create(store, job.id, ProfileRequest(rank=0), None, "me") for _ in range(2)]
    batch = [
        ("profile", to_json(ProfileEvent(id=one.id, profile="stacks", rank=0, done=True, message="so", file=file)))
        for one, file in zip(asked, (FILE, replace(FILE, name="profiles/second")), strict=True)
    ]
    await ingest(store, lease, 1, event_batch(*batch, first=3), Rules(artifacts=ArtifactLimits(files=1)))
    [file] = (await artifacts.page(store, job.id)).items
    second, first = (await page(store, job.id)).items
    assert (file.name, first.state, first.file) == (FILE.name, "done", FILE.name)
    assert (second.state, second.file) == ("failed", None) and second.message and "may have 1 files" in second.message
