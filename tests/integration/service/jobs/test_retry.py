"""A retry is a new job with the same spec that continues where the old one stopped."""

import sys
from pathlib import Path
from typing import Any

import pytest
from harness.stored_checkpoints import save_checkpoint

from shardyard.service.errors import (
    CheckpointCorrupt,
    IdempotencyConflict,
    JobDeleted,
    JobNotEnded,
    JobSucceeded,
    ResumeMismatch,
)
from shardyard.service.jobs.delete import delete
from shardyard.service.jobs.edit import edit
from shardyard.service.jobs.retry import retry
from shardyard.service.jobs.submit import Request, cancel, submit
from shardyard.service.queries import jobs
from shardyard.service.schemas.job import Job, JobEdit
from shardyard.service.settings import Settings
from shardyard.service.spec import CommandSpec
from shardyard.service.spec_files import SpecFiles
from shardyard.service.store import checkpoints, events
from shardyard.service.store import jobs as rows
from shardyard.service.store.engine import Store
from shardyard.workers.checkpoint.program_files import publish, sources, write_part
from shardyard.workers.checkpoint.retention import folder
from shardyard.workers.storage.open_folder import folder_at

from ..conftest import Submit


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, local_files=True)


async def again(store: Store, settings: Settings, job: str, key: str | None = None) -> tuple[Job, bool]:
    return await retry(store, settings, job, Request(key, f"retry {job}", "tester"), SpecFiles())


def saved(settings: Settings, job: Job, step: int) -> None:
    save_checkpoint(Path(settings.storage) / job.id, step)


def saved_by_program(root: Path, step: int) -> str:
    """The address of a program's checkpoint."""
    weights = root.parent / "weights"
    root.parent.mkdir(parents=True, exist_ok=True)
    weights.write_text(f"step {step}")
    place = folder_at(str(root))
    part = write_part(folder(place, step), 0, sources(weights))
    return publish(place, step, "files", [part], 5, ()).path


async def resumed(store: Store, job: Job) -> str | None:
    async with store.read() as tx:
        row = await rows.by_id(tx, job.id)
    return None if row is None else row["resume"]


async def test_a_training_continues_from_its_newest_checkpoint_and_both_jobs_name_each_other(
    store: Store, settings: Settings, submit: Submit
) -> None:
    job = await cancel(store, (await submit(ranks=2, steps=50, resume_data="continue")).id, "tester")
    for step in (10, 20):
        saved(settings, job, step)
    await edit(store, job.id, JobEdit(name="other", labels={"team": "a"}, notes="Mine."))
    new, created = await again(store, settings, job.id)
    assert created and (new.state, new.retry_of, new.parent, new.notes) == ("queued", job.id, job.id, "")
    assert (new.name, new.labels, new.layout) == ("other", {"team": "a"}, job.layout)
    train = {**job.spec["train"], "resume_from": job.id, "resume_data": "continue"}
    assert new.spec == {**job.spec, "name": "other", "labels": {"team": "a"}, "train": train}
    async with store.read() as tx:
        row = await rows.by_id(tx, new.id)
    assert row is not None and row["resume"].endswith(f"/{job.id}/step-00000020")
    assert (await jobs.get_job(store, job.id)).retried_by == new.id
    saved(settings, job, 50)
    with pytest.raises(ResumeMismatch, match="leave nothing to do"):
        await again(store, settings, job.id)


@pytest.mark.parametrize("local_files", [True, False])
async def test_a_retry_continues_from_the_newest_checkpoint_that_is_not_known_to_be_corrupt_or_deleted(
    store: Store, settings: Settings, submit: Submit, local_files: bool
) -> None:
    """Its job has skipped the corrupt one, too. A server that does not see the storage goes by what was reported."""
    seen = settings.model_copy(update={"local_files": local_files})
    job = await cancel(store, (await submit(steps=50)).id, "tester")
    for step, state in ((10, "present"), (20, "present"), (30, "deleted"), (40, "corrupt")):
        data = save_checkpoint(Path(settings.storage) / job.id, step)
        async with store.write() as tx:
            await events.append(
                tx, job.id, [{"attempt": 1, "kind": "checkpoint", "ts": 1.0, "actor": "x", "data": data}]
            )
            await checkpoints.put(tx, job.id, step, state)
            await rows.set_columns(tx, job.id, {"checkpoint": data["path"]})
    new, _ = await again(store, seen, job.id)
    assert new.spec["train"]["resume_from"] == job.id
    assert await resumed(store, new) == str(Path(settings.storage) / job.id / "step-00000020")
    async with store.write() as tx:
        for step in (10, 20):
            await checkpoints.put(tx, job.id, step, "corrupt")
    with pytest.raises(CheckpointCorrupt, match="step 40") as refused:
        await again(store, seen, job.id)
    assert refused.value.field == "train.resume_from" and f"shardyard clone {job.id}" in str(refused.value.remedy)


async def test_a_retry_without_a_checkpoint_begins_as_its_job_did_also_when_a_name_means_another_job_by_now(
    store: Store, settings: Settings, submit: Submit
) -> None:
    source = await cancel(store, (await submit(name="source")).id, "tester")
    saved(settings, source, 10)
    job = await cancel(store, (await submit(resume_from="source", resume_data="restart")).id, "tester")
    await submit(name="source")
    new, _ = await again(store, settings, job.name)
    assert (new.parent, new.retry_of, new.spec["train"]["resume_data"]) == (source.id, job.id, "restart")
    await cancel(store, new.id, "tester")
    await delete(store, source.id, "tester")
    with pytest.raises(JobDeleted, match=source.id):
        await again(store, settings, job.id)


async def test_a_program_continues_from_its_newest_checkpoint_or_begins_as_its_job_did(
    store: Store, settings: Settings, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"name": "mine", "command": [sys.executable, "-V"], "cwd": "/"}

    async def cancelled(**more: Any) -> Job:
        spec = CommandSpec.model_validate({**given, **more})
        return await cancel(store, (await submit(store, settings, spec, None, "", "tester"))[0].id, "tester")

    source = await cancelled(checkpoint={"uri": str(tmp_path / "own")})
    newest = [saved_by_program(tmp_path / "own" / source.id, step) for step in (3, 5)][-1]
    new, _ = await again(store, settings, source.id)
    assert (new.spec["resume_from"], new.parent, await resumed(store, new)) == (source.id, source.id, newest)
    child = await cancelled(name="child", resume_from=source.id)
    saved_by_program(tmp_path / "own" / source.id, 7)
    new, _ = await again(store, settings, child.id)
    assert (new.retry_of, new.parent, await resumed(store, new)) == (child.id, source.id, newest), "as the child began"


async def test_a_program_without_a_checkpoint_starts_from_its_beginning(store: Store, settings: Settings) -> None:
    given: dict[str, Any] = {"name": "mine", "command": [sys.executable, "-V"], "ranks": 2, "cwd": "/"}
    job, _ = await submit(store, settings, CommandSpec.model_validate(given), None, "", "tester")
    await cancel(store, job.id, "tester")
    new, _ = await again(store, settings, job.id)
    assert (new.spec, new.retry_of, new.parent) == (job.spec, job.id, None)


async def test_the_same_key_makes_one_job_also_by_name(store: Store, settings: Settings, submit: Submit) -> None:
    job = await cancel(store, (await submit(name="mine")).id, "tester")
    new, created = await again(store, settings, "mine", "key")
    assert created and await again(store, settings, "mine", "key") == (new, False)
    with pytest.raises(IdempotencyConflict):
        await again(store, settings, job.id, "key")
    await cancel(store, new.id, "tester")
    await delete(store, new.id, "tester")
    with pytest.raises(JobDeleted):
        await again(store, settings, "mine", "key")


async def test_a_job_that_lives_or_succeeded_or_was_deleted_is_not_retried(
    store: Store, settings: Settings, submit: Submit
) -> None:
    job = await submit()
    with pytest.raises(JobNotEnded):
        await again(store, settings, job.id)
    async with store.write() as tx:
        await rows.set_columns(tx, job.id, {"state": "succeeded"})
    with pytest.raises(JobSucceeded):
        await again(store, settings, job.id)
    await delete(store, job.id, "tester")
    with pytest.raises(JobDeleted):
        await again(store, settings, job.id)
