"""Versions of models, over both databases: what they copy, what they keep from removal, and how a new job continues from one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from harness.stored_checkpoints import checkpoint_path, save_checkpoint
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.service.dispatch import retention
from shardyard.service.errors import (
    ArtifactNotFound,
    CheckpointDeleted,
    CheckpointNotFound,
    IdempotencyConflict,
    JobDeleted,
    JobNotFound,
    ResumeMismatch,
)
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.delete import delete as delete_job
from shardyard.service.jobs.submit import cancel
from shardyard.service.model_errors import (
    CheckpointInModels,
    JobInModels,
    ModelNotFound,
    PinUnderway,
    VersionAliased,
    VersionNotFound,
)
from shardyard.service.models import aliases, versions
from shardyard.service.models.versions import delete
from shardyard.service.orders.checkpoint_operations import OperationRequest
from shardyard.service.orders.checkpoint_operations import create as ask
from shardyard.service.queries import checkpoint_catalogue, models
from shardyard.service.queries.checkpoints import checkpoints as list_checkpoints
from shardyard.service.schemas.job import Job
from shardyard.service.schemas.model import AliasRequest
from shardyard.service.settings import Settings
from shardyard.service.spec import CommandSpec
from shardyard.service.store import artifacts, checkpoints, events, logged_metrics, removals
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.sweeps.submit import _naming
from shardyard.workers.checkpoint.manifest import read
from shardyard.workers.messages.event import CheckpointEvent
from shardyard.workers.storage.open_folder import folder_at

from ..conftest import Submit
from .named import named, perform_open, saved

#: A position after that of every save: what is found is of the newest one.
NEWEST = 2**31


async def test_a_version_copies_its_source_and_gets_its_digest_with_the_pin(
    store: Store, settings: Settings, submit: Submit
) -> None:
    job = await submit(steps=100)
    await saved(store, settings, job, 10, 20)
    async with store.write() as tx:
        await logged_metrics.append(tx, job.id, {"accuracy": [(1, 20, 0.75)], "broken": [(1, 20, None)]})
    first = await named(store, "nano", job, step=10, notes="one\ntwo")
    assert (first.number, first.job, first.step, first.trained, first.actor) == (1, job.id, 10, True, "ada")
    assert (first.pinned, first.digest, first.state) == (False, None, "present")
    assert first.metrics == {"accuracy": 0.75, "broken": None} and first.notes == "one\ntwo"
    assert (await named(store, "nano", job)).step == 20, "the newest without a step"
    assert [one.error for one in await perform_open(store, job)] == [None, None]
    found = await models.get_version(store, "nano", "1")
    path = checkpoint_path(Path(settings.storage) / job.id, 10)
    assert found == first.model_copy(update={"pinned": True, "digest": read(folder_at(path)).sha256})
    assert (path / "pinned").exists() and found.path == str(path)
    listed = {one.step: (one.pinned, one.models) for one in (await list_checkpoints(store, job.id)).items}
    assert listed == {10: (True, ["nano@1"]), 20: (True, ["nano@2"])}


async def test_a_version_of_a_pinned_checkpoint_has_the_digest_of_what_is_there_now(
    store: Store, settings: Settings, submit: Submit
) -> None:
    job = await submit(steps=100)
    root = Path(settings.storage) / job.id
    await saved(store, settings, job, 10)
    await named(store, "nano", job, step=10)
    await perform_open(store, job)
    first = await models.get_version(store, "nano", "1")
    data = save_checkpoint(root, 10, b"of a program that started again")
    digest = read(folder_at(checkpoint_path(root, 10))).sha256
    for saved_digest, state in ((None, "present"), (first.digest, "present"), (digest, "deleted")):
        async with store.write() as tx:
            await checkpoint_catalogue.saved(tx, job.id, CheckpointEvent(**data, kept=None, digest=saved_digest))
        assert (await models.get_version(store, "nano", "1")).state == state
    with pytest.raises(CheckpointDeleted, match="nano@1") as refused:
        await submit(resume_from="models/nano@1")
    assert refused.value.field == "train.resume_from"
    again = await named(store, "nano", job, step=10)
    assert (again.state, again.pinned, again.digest) == ("present", True, None)
    await perform_open(store, job)
    second = await models.get_version(store, "nano", "2")
    assert (second.state, second.digest) == ("present", digest) != (first.state, first.digest)


async def test_a_version_is_what_its_save_reported_also_if_another_save_is_pinned(
    store: Store, settings: Settings, submit: Submit
) -> None:
    job = await submit(steps=100)
    data = save_checkpoint(Path(settings.storage) / job.id, 10)
    digest = read(folder_at(data["path"])).sha256
    async with store.write() as tx:
        row = {"attempt": 1, "kind": "checkpoint", "ts": 1.0, "actor": "test", "data": {**data, "digest": digest}}
        await events.append(tx, job.id, [row])
        await checkpoints.put(tx, job.id, 10, "present")
    first = await named(store, "nano", job, step=10)
    assert (first.digest, first.pinned, first.state) == (digest, False, "present")
    save_checkpoint(Path(settings.storage) / job.id, 10, b"of a program that started again")
    await perform_open(store, job)
    found = await models.get_version(store, "nano", "1")
    assert (found.digest, found.pinned, found.state) == (digest, True, "deleted")


async def test_a_checkpoint_that_is_gone_is_not_pinned_when_its_step_is_saved_again(
    store: Store, settings: Settings, submit: Submit
) -> None:
    job = await submit(steps=100)
    await saved(store, settings, job, 10, 20)
    for step in (10, 20):
        await named(store, "nano", job, step=step)
    await perform_open(store, job)
    async with store.write() as tx:
        gone = {"code": "checkpoint_deleted"}
        await checkpoint_catalogue.seen(tx, job.id, (10, NEWEST), None, gone)  # a verification found it
        again = CheckpointEvent(step=30, path="x", bytes=1, seconds=1.0, held_s=1.0, kept=(30,))
        await checkpoint_catalogue.saved(tx, job.id, again)
    await saved(store, settings, job, 10, 20)
    listed = {one.step: (one.state, one.pinned) for one in (await list_checkpoints(store, job.id)).items}
    assert listed == {10: ("present", False), 20: ("present", False)}


async def test_one_key_is_one_version_also_after_its_deletion(store: Store, settings: Settings, submit: Submit) -> None:
    job = await submit(steps=100)
    await saved(store, settings, job, 10)
    made = await named(store, "nano", job, key="mine", step=10)
    assert await named(store, "nano", job, key="mine", step=10) == made
    with pytest.raises(IdempotencyConflict):
        await named(store, "nano", job, key="mine", notes="another")
    await delete(store, "nano", 1, "ada")
    assert (await named(store, "nano", job, key="mine", step=10)).number == 1
    assert (await named(store, "nano", job, step=10)).number == 2, "a number is never given again"


@pytest.mark.full
async def test_of_two_versions_of_one_key_at_the_same_time_one_is_refused(
    store: Store, settings: Settings, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither sees the other's before both are stored, because they are of different jobs."""
    jobs = [await submit(steps=100), await submit(steps=100)]
    for job in jobs:
        await saved(store, settings, job, 10)

    async def unseen(*_: object) -> None:
        return None

    monkeypatch.setattr(versions.rows, "by_key", unseen)
    await named(store, "nano", jobs[0], key="mine", step=10)
    with pytest.raises(IdempotencyConflict):
        await named(store, "nano", jobs[1], key="mine", step=10)
    assert [one.number for one in (await models.list_versions(store, "nano")).items] == [1]


@pytest.mark.full
async def test_what_is_not_there_is_refused_and_leaves_nothing(
    store: Store, settings: Settings, submit: Submit
) -> None:
    job = await submit(steps=100)
    await saved(store, settings, job, 10, 20)
    async with store.write() as tx:
        await checkpoints.put(tx, job.id, 20, "deleted")
    with pytest.raises(CheckpointNotFound, match="of step 5"):
        await named(store, "nano", job, step=5)
    with pytest.raises(CheckpointNotFound, match="of step 3000000000"):  # more than 32 bits
        await named(store, "nano", job, step=3_000_000_000)
    with pytest.raises(CheckpointDeleted):
        await named(store, "nano", job, step=20)
    with pytest.raises(ArtifactNotFound):
        await named(store, "nano", job, artifact="none")
    with pytest.raises(JobNotFound):
        await named(store, "nano", job.model_copy(update={"id": "absent"}))
    assert (await models.list_models(store)).items == [] and await perform_open(store, job) == []
    with pytest.raises(ModelNotFound):
        await models.get_model(store, "nano")


async def test_a_pin_and_its_opposite_never_run_at_once(store: Store, settings: Settings, submit: Submit) -> None:
    job = await submit(steps=100)
    await saved(store, settings, job, 10)
    place = (await list_checkpoints(store, job.id)).items[0].position
    pin, unpin = OperationRequest("pin", place), OperationRequest("unpin", place)
    assert (await ask(store, job.id, pin, None, "me")).id == (await ask(store, job.id, pin, None, "me")).id
    with pytest.raises(PinUnderway):
        await ask(store, job.id, unpin, None, "me")
    await perform_open(store, job)
    assert (await list_checkpoints(store, job.id)).items[0].pinned
    await ask(store, job.id, unpin, None, "me")
    with pytest.raises(PinUnderway):
        await named(store, "nano", job, step=10)
    await perform_open(store, job)
    assert not (await list_checkpoints(store, job.id)).items[0].pinned
    await named(store, "nano", job, step=10)
    await perform_open(store, job)
    with pytest.raises(CheckpointInModels, match="nano@1"):
        await ask(store, job.id, unpin, None, "me")
    await delete(store, "nano", 1, "ada")
    async with store.write() as tx:
        await checkpoint_catalogue.seen(tx, job.id, (10, NEWEST), {"verdict": "corrupt"}, None)
    assert (await ask(store, job.id, unpin, None, "me")).state == "pending", "a corrupt one, too, to make room"


async def test_a_pin_that_comes_too_late_says_that_the_checkpoint_is_gone(
    store: Store, settings: Settings, submit: Submit
) -> None:
    job = await submit(steps=100)
    await saved(store, settings, job, 10, 20)
    await named(store, "nano", job, step=10)
    folder_at(checkpoint_path(Path(settings.storage) / job.id, 10)).remove_all()
    (late,) = await perform_open(store, job)
    assert late.error and late.error["code"] == "checkpoint_deleted"
    found = await models.get_version(store, "nano", "latest")
    assert (found.state, found.pinned, found.digest) == ("deleted", False, None)
    with pytest.raises(CheckpointDeleted):
        await submit(name="child", resume_from="models/nano")


async def test_a_job_is_kept_while_a_version_comes_from_it(store: Store, settings: Settings, submit: Submit) -> None:
    job = await submit(steps=100)
    await saved(store, settings, job, 10)
    await named(store, "nano", job, step=10)
    await perform_open(store, job)  # an open operation would keep the job, too
    await cancel(store, job.id, "ada")
    with pytest.raises(JobInModels, match="nano@1"):
        await delete_job(store, job.id, "ada")
    async with store.write() as tx:
        await job_rows.set_columns(tx, job.id, {"finished_at": 1.0})
        assert await removals.mark_old(tx, 1.0, "retention", 10) == 0
        # A deletion that was stored at the same time as the version removes nothing.
        await removals.mark(tx, job.id, "ada")
    at_once = settings.model_copy(update={"undelete_s": 0.0})
    await retention.sweep(store, at_once)
    assert checkpoint_path(Path(settings.storage) / job.id, 10).is_dir()
    await delete(store, "nano", 1, "ada")
    await retention.sweep(store, at_once)
    assert not (Path(settings.storage) / job.id).exists()
    assert (await models.history(store, "nano")).items[0].kind == "version_deleted"
    assert (await models.list_versions(store, "nano")).items == [] and (await models.list_models(store)).items == []


async def test_a_job_is_not_deleted_by_age_while_its_version_is_created(
    store: Store, settings: Settings, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL: a statement that waits for the job's row sees no version that was stored meanwhile."""
    job = await submit(steps=100)
    await saved(store, settings, job, 10)
    await cancel(store, job.id, "ada")
    async with store.write() as tx:
        await job_rows.set_columns(tx, job.id, {"finished_at": 1.0})

    async def marked() -> int:
        async with store.write() as tx:
            return await removals.mark_old(tx, 1.0, "retention", 10)

    marking: list[asyncio.Task[int]] = []
    usual = versions._metrics

    async def metrics(tx: AsyncConnection, job_id: str, step: int) -> dict[str, float | None]:
        marking.append(asyncio.create_task(marked()))
        for _ in range(50):  # the deletion comes to the job's row meanwhile
            found = await usual(tx, job_id, step)
        return found

    monkeypatch.setattr(versions, "_metrics", metrics)
    await named(store, "nano", job, step=10)
    assert await marking[0] == 0


async def test_a_job_that_is_deleted_while_its_version_is_created_gets_none(
    store: Store, settings: Settings, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is read, then locked: in between another request may delete the job, and its files may be removed at once."""
    job = await submit(steps=100)
    await saved(store, settings, job, 10)
    usual = versions.existing

    async def existing(tx: AsyncConnection, id_or_name: str) -> RowMapping:
        row = await usual(tx, id_or_name)
        await removals.mark(tx, job.id, "bob")
        return row

    monkeypatch.setattr(versions, "existing", existing)
    with pytest.raises(JobDeleted) as refused:
        await named(store, "nano", job, step=10)
    assert refused.value.field == "job" and (await models.list_models(store)).items == []


async def test_a_job_continues_from_the_version_that_an_alias_named_when_it_was_submitted(
    store: Store, settings: Settings, submit: Submit, spec: Any
) -> None:
    job = await submit(steps=100)
    await saved(store, settings, job, 10, 20)
    for step in (10, 20):
        await named(store, "nano", job, step=step)
    await perform_open(store, job)
    await aliases.put(store, "nano", "best", AliasRequest(version=1), "ada")
    async with store.write() as tx:  # what an earlier version stored, and this one cannot read, is no obstacle
        await job_rows.set_columns(tx, job.id, {"spec": {**job.spec, "train": {**job.spec["train"], "gone": 1}}})
    paths = {}
    for text in ("models/nano@best", "models/nano@2", "models/nano"):
        child = await submit(name="child", resume_from=text)
        async with store.read() as tx:
            row = await job_rows.by_id(tx, child.id)
        assert row is not None and row["parent"] == job.id
        paths[row["spec"]["train"]["resume_from"]] = row["resume"]
    root = Path(settings.storage) / job.id
    assert paths == {f"models/nano@{at}": str(checkpoint_path(root, 10 * at)) for at in (1, 2)}
    stored = {"train": {"resume_from": "models/nano@1", "steps": 9}}
    raw = {"train": {"resume_from": "models/nano@best"}, "name": "tune"}
    assert _naming(raw, stored, "/c/1") == {"train": {"resume_from": "models/nano@1"}, "name": "tune"}
    with pytest.raises(VersionNotFound) as refused:
        await submit(resume_from="models/nano@lost")
    assert refused.value.field == "train.resume_from" and refused.value.remedy
    with pytest.raises(ModelNotFound):
        await submit(resume_from="models/lost")
    program = CommandSpec.model_validate({"name": "mine", "command": "true", "resume_from": "models/nano@best"})
    with pytest.raises(ResumeMismatch) as other:
        await submitting.submit(store, settings, program, None, "", "tester")
    assert other.value.field == "resume_from"


async def test_a_file_that_a_program_logged_is_a_version_until_another_takes_its_place(
    store: Store, settings: Settings, placed: tuple[Job, Lease]
) -> None:
    job, _ = placed
    row = {"job_id": job.id, "name": "vocab.json", "step": artifacts.NO_STEP, "type": "file", "rank": 0, "run": 1}
    row |= {"bytes": 3, "sha256": "a" * 64, "media_type": "application/octet-stream", "ts": 1.0}
    async with store.write() as tx:
        await artifacts.put(tx, [row])
    made = await named(store, "words", job, artifact="vocab.json")
    assert (made.artifact, made.step, made.digest, made.state, made.pinned) == (
        *("vocab.json", None, "a" * 64, "present"),
        True,
    )
    with pytest.raises(ResumeMismatch, match="no checkpoint"):
        async with store.read() as tx:
            await models.to_resume(tx, "models/words", "resume_from")
    async with store.write() as tx:
        await artifacts.put(tx, [{**row, "run": 2, "sha256": "b" * 64}])
    assert (await models.get_version(store, "words", "1")).state == "deleted"


@pytest.mark.full
async def test_pages_of_models_and_versions(store: Store, settings: Settings, submit: Submit) -> None:
    job = await submit(steps=100)
    await saved(store, settings, job, 10)
    for name in ("c", "a", "b", "a", "a"):
        await named(store, name, job, step=10)
    first = await models.list_models(store, limit=2)
    assert [(one.name, one.latest) for one in first.items] == [("a", 3), ("b", 1)]
    assert [one.name for one in (await models.list_models(store, first.next, 2)).items] == ["c"]
    page = await models.list_versions(store, "a", limit=2)
    assert ([one.number for one in page.items], page.next) == ([3, 2], 2)
    assert [one.number for one in (await models.list_versions(store, "a", page.next)).items] == [1]
    entries = await models.history(store, "a", limit=2)
    assert ([one.version for one in entries.items], entries.next) == ([3, 2], 2)


@pytest.mark.full
async def test_a_version_that_an_alias_names_is_not_deleted(store: Store, settings: Settings, submit: Submit) -> None:
    job = await submit(steps=100)
    await saved(store, settings, job, 10)
    await named(store, "nano", job, step=10)
    await aliases.put(store, "nano", "best", AliasRequest(version=1), "ada")
    with pytest.raises(VersionAliased, match="best"):
        await delete(store, "nano", 1, "ada")
    await aliases.remove(store, "nano", "best", 1, "ada")
    assert (await delete(store, "nano", 1, "ada")).latest is None
    assert (await delete(store, "nano", 1, "ada")).latest is None, "harmless if repeated"
