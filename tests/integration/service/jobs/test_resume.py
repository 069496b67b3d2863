"""The checkpoint that a job resumes from, over both databases."""

import errno
from pathlib import Path
from typing import Any

import pytest

from shardyard.service.errors import (
    ResumeMismatch,
    UnknownCheckpoint,
)
from shardyard.service.jobs import preview, resume
from shardyard.service.jobs import submit as submitting
from shardyard.service.model_errors import CheckpointStorageFailed
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.spec_files import SpecFiles
from shardyard.service.store import events
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.engine import Store
from shardyard.workers.checkpoint.manifest import Manifest, write
from shardyard.workers.device_choices import continues_in
from shardyard.workers.storage.errors import StorageDenied
from shardyard.workers.storage.local_folder import LocalFolder
from shardyard.workers.storage.open_folder import folder_at

from ..conftest import Submit
from ..queries.test_jobs import Spec


async def test_resuming_finds_the_newest_complete_checkpoint(
    store: Store, settings: Settings, spec: Spec, submit: Submit
) -> None:
    local = settings.model_copy(update={"local_files": True})
    source = await submit(name="source")
    root = Path(settings.storage) / source.id
    for step, complete in ((10, True), (20, True), (30, False)):
        (root / f"step-{step:08d}").mkdir(parents=True)
        if complete:
            write(folder_at(root / f"step-{step:08d}"), Manifest(step, {}, {}, {}))
    newest = str(root / "step-00000020")
    for wanted in (source.id, "source", str(root), newest):
        job, _ = await submitting.submit(store, local, spec(resume_from=wanted), None, "", "tester")
        async with store.read() as tx:
            row = await job_rows.by_id(tx, job.id)
        assert row is not None and row["resume"] == newest


async def saved_far_away(store: Store, submit: Submit) -> Job:
    """A job named "source", with a checkpoint whose files are not seen from here."""
    source = await submit(name="source")
    async with store.write() as tx:
        await job_rows.set_columns(tx, source.id, {"checkpoint": "/far/away/step-00000020"})
    return source


async def test_a_preview_says_that_the_precision_changes(
    store: Store, settings: Settings, spec: Spec, submit: Submit
) -> None:
    source = await saved_far_away(store, submit)
    async with store.write() as tx:
        plan = {"attempt": 1, "kind": "plan", "ts": 1.0, "actor": "x", "data": {"precision": "fp32"}}
        await events.append(tx, source.id, [plan])
    path = f"/far/away/{source.id}/step-00000020"
    for given, dtype, said in (
        ("source", "bf16", [continues_in("fp32", "bf16")]),
        (path, "bf16", [continues_in("fp32", "bf16")]),
        ("source", "fp32", []),
    ):
        continued = spec(resume_from=given, precision=dtype, compile=False)
        assert (await preview.preview(store, settings, continued, SpecFiles())).choices == said


async def test_a_job_that_cannot_go_on_in_another_ones_data_is_refused(
    store: Store, settings: Settings, spec: Spec, submit: Submit
) -> None:
    await saved_far_away(store, submit)
    with pytest.raises(ResumeMismatch) as refused:
        await submit(resume_from="source", data={"seq_len": 128})
    assert refused.value.field == "train.data.seq_len"
    assert "resume_data: restart" in (refused.value.remedy or "")
    await submit(resume_from="source", data={"seq_len": 128}, resume_data="restart")
    await submit(resume_from="source", global_batch=8)


async def test_a_job_with_another_model_or_optimizer_than_the_checkpoint_is_refused(
    store: Store, settings: Settings, spec: Spec, submit: Submit
) -> None:
    await saved_far_away(store, submit)
    others: list[tuple[str, dict[str, Any]]] = [
        ("train.optimizer.name", {"optimizer": {"name": "sgd"}}),
        ("train.model.layers", {"model": {"layers": 6}}),
        ("train.model.hidden", {"model": {"hidden": 300}}),
    ]
    for field, train in others:
        with pytest.raises(ResumeMismatch) as refused:
            await submit(resume_from="source", **train)
        assert refused.value.field == field and refused.value.remedy
        with pytest.raises(ResumeMismatch):
            await preview.preview(store, settings, spec(resume_from="source", **train), SpecFiles())
    await submit(resume_from="source", optimizer={"lr": 0.01}, model={"layers": 3})


@pytest.mark.parametrize("root", ["/far/away", "s3://bucket"])
async def test_a_path_in_a_jobs_folder_is_compared_with_what_the_job_trained(
    store: Store, submit: Submit, root: str
) -> None:
    source = await submit(name="source")
    path = f"{root}/{source.id}/step-00000020"
    with pytest.raises(ResumeMismatch) as refused:
        await submit(resume_from=path, data={"seq_len": 128})
    assert refused.value.field == "train.data.seq_len"
    job = await submit(resume_from=path)
    async with store.write() as tx:
        row = await job_rows.by_id(tx, job.id)
        assert row is not None and (row["resume"], row["parent"]) == (path, source.id)
        unreadable = {**source.spec, "train": {**source.spec["train"], "gone": 1}}
        await job_rows.set_columns(tx, source.id, {"spec": unreadable})
        await job_rows.set_columns(tx, source.id, {"checkpoint": path})
    for given in (path, source.id, "source"):  # only the trainers can compare it
        job = await submit(name="on", resume_from=given, data={"seq_len": 128})
        async with store.read() as tx:
            row = await job_rows.by_id(tx, job.id)
        assert row is not None and (row["resume"], row["parent"]) == (path, source.id)


async def test_a_passing_error_of_the_storage_is_said_and_is_no_missing_checkpoint(
    store: Store, settings: Settings, spec: Spec, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = settings.model_copy(update={"local_files": True})
    source = await submit(name="source")

    def stale(self: object, name: str) -> bool:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(LocalFolder, "has", stale)
    with pytest.raises(CheckpointStorageFailed, match="Stale file handle"):
        await submitting.submit(
            store, local, spec(resume_from=str(Path(settings.storage) / source.id)), None, "", "tester"
        )


async def test_a_manifest_that_the_api_may_not_read_is_left_to_the_trainers(
    store: Store, settings: Settings, spec: Spec, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = settings.model_copy(update={"local_files": True})
    root = Path(settings.storage) / (await submit(name="source")).id / "step-00000010"
    root.mkdir(parents=True)
    write(folder_at(root), Manifest(10, {}, {}, {}))

    def denied(folder: object) -> Manifest:
        raise StorageDenied("manifest.json: Permission denied")

    monkeypatch.setattr(resume, "read", denied)
    job, _ = await submitting.submit(store, local, spec(resume_from=str(root)), None, "", "tester")
    assert job.state == "queued"


async def test_a_home_folder_is_not_known_to_the_nodes(store: Store, settings: Settings, spec: Spec) -> None:
    with pytest.raises(UnknownCheckpoint, match="not an absolute path"):
        await submitting.submit(store, settings, spec(resume_from="~/checkpoints"), None, "", "tester")
