"""Where a program's checkpoints are, and from which one it continues: what is refused, and what the ranks get."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from shardyard.service.dispatch.gang_spec import gang_spec
from shardyard.service.errors import (
    CheckpointCorrupt,
    CheckpointDeleted,
    InvalidSpec,
    ResumeMismatch,
    ShardyardError,
    UnknownCheckpoint,
)
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.preview import preview
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.spec import CommandSpec
from shardyard.service.spec_files import SpecFiles
from shardyard.service.store import checkpoints as rows
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.engine import Store
from shardyard.workers.checkpoint.manifest import MANIFEST, Manifest, write
from shardyard.workers.checkpoint.program_files import publish, sources, write_part
from shardyard.workers.checkpoint.retention import folder
from shardyard.workers.storage.open_folder import folder_at


def program(**fields: Any) -> CommandSpec:
    return CommandSpec.model_validate({"name": "mine", "command": ["python", "train.py"], **fields})


async def submit(store: Store, settings: Settings, **fields: Any) -> Job:
    job, _ = await submitting.submit(store, settings, program(**fields), None, "", "tester")
    return job


async def run_of(store: Store, settings: Settings, job: Job) -> dict[str, Any]:
    """What the ranks get."""
    async with store.read() as tx:
        row = await job_rows.by_id(tx, job.id)
    assert row is not None
    run: dict[str, Any] = gang_spec(row, {"number": 1, "gang": "g", "device": "cpu"}, settings).run  # type: ignore[arg-type]
    return run


def saved(root: Path, step: int) -> str:
    """The address of a program's checkpoint."""
    root.parent.mkdir(parents=True, exist_ok=True)
    (root.parent / "weights").write_text(f"step {step}")
    place = folder_at(str(root))
    part = write_part(folder(place, step), 0, sources(root.parent / "weights"))
    return publish(place, step, "files", [part], 5, ()).path


@pytest.fixture
def local(settings: Settings, tmp_path: Path) -> Settings:
    """Settings of a server that sees the storage."""
    return settings.model_copy(update={"local_files": True, "storage": str(tmp_path / "storage")})


async def test_the_ranks_get_the_folder_and_the_number_to_keep(store: Store, local: Settings, tmp_path: Path) -> None:
    run = await run_of(store, local, job := await submit(store, local))
    assert run["checkpoints"] == f"{local.storage}/{job.id}" and not {"keep", "resume"} & run.keys()
    own = {"uri": str(tmp_path / "own"), "keep": 7}
    run = await run_of(store, local, job := await submit(store, local, checkpoint=own))
    assert (run["checkpoints"], run["keep"]) == (f"{own['uri']}/{job.id}", 7)


async def test_a_job_continues_the_newest_checkpoint_of_another(store: Store, local: Settings, tmp_path: Path) -> None:
    first = await submit(store, local, checkpoint={"uri": str(tmp_path / "own")})
    with pytest.raises(UnknownCheckpoint, match="no complete checkpoint") as refused:
        await submit(store, local, resume_from=first.id)
    assert refused.value.field == "resume_from" and "shardyard.checkpoint" in str(refused.value.remedy)
    saved(tmp_path / "own" / first.id, 3)
    newest = saved(tmp_path / "own" / first.id, 5)
    child = await submit(store, local, resume_from=first.name)
    assert (child.parent, (await run_of(store, local, child))["resume"]) == (first.id, newest)
    found = await preview(store, local, program(resume_from=newest), SpecFiles())
    assert found.resume == newest
    async with store.write() as tx:
        await rows.put(tx, first.id, 5, "deleted")
    for _ in range(2):  # its folder is there, and then it is gone, too
        with pytest.raises(CheckpointDeleted) as gone:
            await submit(store, local, resume_from=newest)
        assert gone.value.field == "resume_from" and "Set resume_from" in str(gone.value.remedy)
        shutil.rmtree(newest, ignore_errors=True)


async def test_a_job_continues_the_newest_checkpoint_of_another_that_is_not_known_to_be_corrupt(
    store: Store, local: Settings, tmp_path: Path
) -> None:
    first = await submit(store, local)
    older, newest = [saved(tmp_path / "storage" / first.id, step) for step in (3, 5)]
    async with store.write() as tx:
        await rows.put(tx, first.id, 5, "corrupt")
    child = await submit(store, local, resume_from=first.id)
    assert (await run_of(store, local, child))["resume"] == older
    with pytest.raises(CheckpointCorrupt) as named:
        await submit(store, local, resume_from=newest)
    assert "Set resume_from to another checkpoint" in str(named.value.remedy)
    async with store.write() as tx:
        await rows.put(tx, first.id, 3, "corrupt")
    with pytest.raises(CheckpointCorrupt, match="step 5") as refused:
        await submit(store, local, resume_from=first.id)
    assert refused.value.field == "resume_from" and f"shardyard clone {first.id}" in str(refused.value.remedy)


async def test_what_no_program_can_read_is_refused(store: Store, local: Settings, tmp_path: Path, spec: Any) -> None:
    training, _ = await submitting.submit(store, local, spec(), None, "", "tester")
    damaged = saved(tmp_path / "storage" / "a", 1)
    folder_at(damaged).publish(MANIFEST, b"{}")
    other = folder(folder_at(str(tmp_path / "storage" / "b")), 1)
    write(other, Manifest(1, {}, {}, {}))
    (tmp_path / "file").touch()
    cases: list[tuple[dict[str, Any], type[ShardyardError], str]] = [
        ({"resume_from": training.id}, ResumeMismatch, "resume_from"),
        ({"resume_from": other.where}, ResumeMismatch, "resume_from"),
        ({"resume_from": damaged}, CheckpointCorrupt, "resume_from"),
        ({"resume_from": "no-such-job"}, UnknownCheckpoint, "resume_from"),
        ({"resume_from": str(tmp_path / "none")}, UnknownCheckpoint, "resume_from"),
        ({"checkpoint": {"uri": "relative"}}, InvalidSpec, "checkpoint.uri"),
        ({"checkpoint": {"uri": str(tmp_path / "file" / "below")}}, InvalidSpec, "checkpoint.uri"),
    ]
    for fields, kind, field in cases:
        with pytest.raises(kind) as refused:
            await submit(store, local, **fields)
        assert refused.value.field == field and refused.value.remedy, fields


async def test_a_training_job_does_not_continue_a_programs_files(
    store: Store, local: Settings, tmp_path: Path, spec: Any
) -> None:
    where = saved(tmp_path / "storage" / "a", 1)
    with pytest.raises(ResumeMismatch, match="program's own files"):
        await submitting.submit(store, local, spec(resume_from=where), None, "", "tester")
