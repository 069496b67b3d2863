"""What has become of a job's checkpoints, over both databases: said by saves, restores and operations, and kept to by what is asked."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from harness.patience import PATIENCE_S
from harness.stored_checkpoints import save_checkpoint
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.service.dispatch.admission import admit
from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.dispatch.operation_runner import OperationRunner
from shardyard.service.errors import CheckpointCorrupt, CheckpointDeleted, ShardyardError
from shardyard.service.jobs import submit as submitting
from shardyard.service.orders.checkpoint_operations import OperationRequest, create
from shardyard.service.queries import checkpoint_catalogue, models
from shardyard.service.queries.checkpoints import checkpoints
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.spec import CommandSpec
from shardyard.service.store import events, nodes, operations
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.store.tables import jobs
from shardyard.workers.checkpoint.manifest import read
from shardyard.workers.messages.event import CheckpointEvent
from shardyard.workers.storage.open_folder import folder_at
from shardyard.workers.storage.uri import below
from shardyard.workers.tasks.checkpoint_task import Operation, Outcome, failed

from ...inprocess_cluster import InProcessCluster
from ..conftest import Submit
from ..gang_events import NODE, event_batch
from ..models.named import named


def saved(root: str, step: int, *kept: int) -> tuple[str, dict[str, Any]]:
    return "checkpoint", {"step": step, "path": below(root, f"step-{step:08d}"), "kept": list(kept) or None}


def skipped(step: int) -> tuple[str, dict[str, Any]]:
    return "incident", {"cause": "checkpoint_corrupt", "rank": None, "message": "is corrupt", "step": step}


async def placed_program(store: Store, settings: Settings) -> tuple[Job, Lease]:
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])
    spec = CommandSpec.model_validate({"name": "mine", "command": "true"})
    job, _ = await submitting.submit(store, settings, spec, None, "", "tester")
    (lease,) = (await admit(store, settings, "a", None)).leases
    return job, lease


async def states(store: Store, job: Job) -> dict[int, str]:
    return {one.step: one.state for one in (await checkpoints(store, job.id)).items}


async def newest(store: Store, job: Job) -> str | None:
    async with store.read() as tx:
        found: str | None = (await tx.execute(select(jobs.c.checkpoint).where(jobs.c.id == job.id))).scalar_one()
    return found


@pytest.fixture
def root(placed: tuple[Job, Lease]) -> str:
    return f"/checkpoints/{placed[0].id}"


async def test_a_save_says_what_it_kept_though_the_one_before_was_never_reported(
    store: Store, placed: tuple[Job, Lease], root: str
) -> None:
    job, lease = placed
    first = event_batch(saved(root, 10, 10), saved(root, 20, 10, 20))
    await ingest(store, lease, 1, first)
    assert await states(store, job) == {20: "present", 10: "present"}
    await ingest(store, lease, 1, event_batch(saved(root, 40, 30, 40), first=3))
    assert await states(store, job) == {40: "present", 20: "deleted", 10: "deleted"}
    # Training went back and saved a step again; where nothing is known of the others, nothing is said of them.
    await ingest(store, lease, 1, event_batch(saved(root, 20), first=4))
    assert await states(store, job) == {20: "present", 40: "present", 10: "deleted"}


async def test_the_jobs_checkpoint_is_the_newest_though_an_earlier_step_was_saved_again(
    store: Store, placed: tuple[Job, Lease], root: str
) -> None:
    job, lease = placed

    await ingest(store, lease, 1, event_batch(saved(root, 60, 60), saved(root, 70, 60, 70), saved(root, 60, 60, 70)))
    assert await newest(store, job) == below(root, "step-00000070")
    await ingest(store, lease, 1, event_batch(skipped(70), saved(root, 60, 60, 70), first=4))
    assert await newest(store, job) == below(root, "step-00000060")


async def test_what_is_corrupt_or_deleted_is_refused_with_a_remedy(
    store: Store, settings: Settings, spec: Any, placed: tuple[Job, Lease], root: str
) -> None:
    job, lease = placed
    await ingest(
        store, lease, 1, event_batch(saved(root, 10), saved(root, 20, 20), saved(root, 30, 20, 30), skipped(20))
    )
    n = {one.step: one.position for one in (await checkpoints(store, job.id)).items}
    assert await states(store, job) == {30: "present", 20: "corrupt", 10: "deleted"}
    away = settings.model_copy(update={"local_files": False})
    refusals: tuple[tuple[int, type[ShardyardError]], ...] = ((10, CheckpointDeleted), (20, CheckpointCorrupt))
    for step, kind in refusals:
        for request in (OperationRequest("pin", n[step]), OperationRequest("export", n[step], "fp32")):
            with pytest.raises(kind) as refused:
                await create(store, job.id, request, None, "me")
            assert (refused.value.field, bool(refused.value.remedy)) == ("position", True)
        for where in (root, f"s3://bucket/{job.id}"):
            child = spec(resume_from=below(where, f"step-{step:08d}"))
            with pytest.raises(kind) as refused:
                await submitting.submit(store, away, child, None, "", "me")
            assert refused.value.field == "train.resume_from" and f"shardyard checkpoints {job.id}" in str(
                refused.value.remedy
            )
    for step in (20, 30):  # a disk that could not be read may be back
        await create(store, job.id, OperationRequest("verify", n[step]), None, "me")
    with pytest.raises(CheckpointDeleted):
        await create(store, job.id, OperationRequest("verify", n[10]), None, "me")
    child, created = await submitting.submit(
        store, away, spec(resume_from=below(root, "step-00000030")), None, "", "me"
    )
    assert created and child.state == "queued"


class Finding(InProcessCluster):
    """Every operation ends with `outcome`."""

    outcome = Outcome()

    async def perform(self, operation: Operation, node: str | None) -> Outcome:
        return self.outcome


async def carry_out(store: Store, settings: Settings, operation: str, outcome: Outcome) -> None:
    cluster = Finding()
    cluster.outcome = outcome
    runner = OperationRunner(store, settings, cluster, "test")
    async with store.read() as tx:
        pending = await operations.free(tx, runner.room)
    await runner.begin(pending)
    [working] = [task for task in asyncio.all_tasks() if task.get_name() == operation]
    await asyncio.wait_for(working, PATIENCE_S)


@pytest.mark.parametrize(
    ("kind", "outcome", "state"),
    [
        ("verify", Outcome({"verdict": "valid"}), "present"),
        ("verify", Outcome({"verdict": "corrupt"}), "corrupt"),
        ("verify", Outcome({"verdict": "deleted"}), "deleted"),
        ("export", failed("checkpoint_deleted", "gone"), "deleted"),
        ("export", failed("checkpoint_corrupt", "a file"), "corrupt"),
        ("export", failed("storage_unreachable", "no answer"), "present"),
    ],
)
@POSTGRESQL_IN_FULL
async def test_an_operation_says_what_it_found(
    store: Store,
    settings: Settings,
    submit: Submit,
    placed: tuple[Job, Lease],
    root: str,
    kind: Any,
    outcome: Outcome,
    state: str,
) -> None:
    job, lease = placed
    await ingest(store, lease, 1, event_batch(saved(root, 10)))
    [only] = (await checkpoints(store, job.id)).items
    asked = await create(
        store, job.id, OperationRequest(kind, only.position, "fp32" if kind == "export" else None), None, "me"
    )
    await carry_out(store, settings, asked.id, outcome)
    assert await states(store, job) == {10: state}


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_no_save_is_stored_while_an_operation_ends(
    store: Store, settings: Settings, placed: tuple[Job, Lease], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the end could overwrite the state of a save that it did not see."""
    job, lease = placed
    await ingest(store, lease, 1, event_batch(saved(root, 10)))
    [only] = (await checkpoints(store, job.id)).items
    asked = await create(store, job.id, OperationRequest("verify", only.position), None, "me")
    seen, unlocked = checkpoint_catalogue.seen, []

    async def looked_at(tx: AsyncConnection, *given: Any) -> None:
        await seen(tx, *given)
        async with store.write() as other:
            free = select(jobs.c.id).where(jobs.c.id == job.id).with_for_update(skip_locked=True)
            unlocked.append((await other.execute(free)).all())

    monkeypatch.setattr(checkpoint_catalogue, "seen", looked_at)
    await carry_out(store, settings, asked.id, Outcome({"verdict": "corrupt"}))
    assert await states(store, job) == {10: "corrupt"}
    assert unlocked == [[]]


async def test_a_finding_is_not_that_of_a_later_save(store: Store, placed: tuple[Job, Lease], root: str) -> None:
    """The damage was found, the job went on from the checkpoint before, and saved the step again."""
    job, lease = placed
    await ingest(store, lease, 1, event_batch(saved(root, 10)))
    [before] = (await checkpoints(store, job.id)).items
    async with store.write() as tx:
        await checkpoint_catalogue.seen(tx, job.id, (10, before.position), {"verdict": "corrupt"}, None)
    assert await states(store, job) == {10: "corrupt"}
    await ingest(store, lease, 1, event_batch(saved(root, 10), first=2))
    for found in ({"verdict": "corrupt"}, {"verdict": "deleted"}):
        async with store.write() as tx:
            await checkpoint_catalogue.seen(tx, job.id, (10, before.position), found, None)
    assert await states(store, job) == {10: "present"}


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("order", [(10, 11, 13, 12), (10, 12, 11, 13), (11, 13, 12, 10)], ids=str)
async def test_saves_of_a_program_that_are_reported_late_remove_no_later_one(
    order: tuple[int, ...], at_once: bool, store: Store, settings: Settings
) -> None:
    """Ranks take turns to complete a checkpoint, and their clocks need not agree. Two are kept."""
    job, lease = await placed_program(store, settings)
    batch = event_batch(*(saved("/c", step, step - 1, step) for step in order))
    for part in [batch] if at_once else [[event] for event in batch]:
        await ingest(store, lease, 1, part)
    found = await states(store, job)
    assert (found[12], found[13], found[11]) == ("present", "present", "deleted")
    assert await newest(store, job) == below("/c", "step-00000013")


@pytest.mark.parametrize("at_once", [True, False])
async def test_saves_of_a_second_trainer_with_smaller_steps_are_not_late(
    at_once: bool, store: Store, settings: Settings
) -> None:
    """Two trainers of one Ray driver: retention spares the newest of the other one, and removes its older ones."""
    job, lease = await placed_program(store, settings)
    batch = event_batch(
        saved("/c", 100, 100), saved("/c", 200, 100, 200), saved("/c", 300, 200, 300), saved("/c", 50, 50, 300)
    )
    for part in [batch] if at_once else [[event] for event in batch]:
        await ingest(store, lease, 1, part)
    assert await states(store, job) == {50: "present", 300: "present", 200: "deleted", 100: "deleted"}
    assert await newest(store, job) == below("/c", "step-00000300")


async def test_a_save_after_a_corrupt_one_was_skipped_is_not_late(store: Store, settings: Settings) -> None:
    """It removed the corrupt one, which has the highest step."""
    job, lease = await placed_program(store, settings)
    batch = event_batch(saved("/c", 20, 20), saved("/c", 30, 20, 30), skipped(30), saved("/c", 25, 20, 25))
    await ingest(store, lease, 1, batch)
    assert await states(store, job) == {25: "present", 30: "deleted", 20: "present"}
    assert await newest(store, job) == below("/c", "step-00000025")


async def test_saves_of_a_training_are_in_the_order_of_their_events(
    store: Store, placed: tuple[Job, Lease], root: str
) -> None:
    """Whatever the clocks say: a dispatcher whose clock was ahead may have ended meanwhile."""
    job, lease = placed
    await ingest(store, lease, 1, event_batch(saved(root, 100, 100)), behind_s=300.0)
    await ingest(store, lease, 1, event_batch(saved(root, 90, 90), first=2))
    assert await states(store, job) == {90: "present", 100: "deleted"}
    assert await newest(store, job) == below(root, "step-00000090")


async def test_a_verification_of_what_was_removed_meanwhile_changes_nothing(
    store: Store, placed: tuple[Job, Lease], root: str
) -> None:
    job, lease = placed
    await ingest(store, lease, 1, event_batch(saved(root, 10, 10)))
    [before] = (await checkpoints(store, job.id)).items
    await ingest(store, lease, 1, event_batch(saved(root, 20, 20), first=2))
    async with store.write() as tx:
        await checkpoint_catalogue.seen(tx, job.id, (10, before.position), {"verdict": "valid"}, None)
    assert await states(store, job) == {20: "present", 10: "deleted"}


@pytest.mark.parametrize("reported", [True, False])
async def test_a_pin_that_is_stored_after_a_later_save_of_its_step_is_of_that_save(
    store: Store, settings: Settings, submit: Submit, reported: bool
) -> None:
    job = await submit(steps=100)
    root = Path(settings.storage) / job.id

    async def save(content: bytes, reports: bool) -> str:
        data = save_checkpoint(root, 10, content)
        digest = read(folder_at(data["path"])).sha256
        event = CheckpointEvent(**data, kept=None, digest=digest if reports else None)
        async with store.write() as tx:
            row = {"attempt": 1, "kind": "checkpoint", "ts": 1.0, "actor": "test"}
            await events.append(tx, job.id, [{**row, "data": {**data, "digest": event.digest}}])
            await checkpoint_catalogue.saved(tx, job.id, event)
        return digest

    first = await save(b"first", reported)
    [before] = (await checkpoints(store, job.id)).items
    await named(store, "nano", job, step=10)
    second = await save(b"of a program that started again", True)
    for found, states in ((first, ["deleted"]), (second, ["deleted", "present"])):
        if found == second:
            await named(store, "nano", job, step=10)
        async with store.write() as tx:
            await checkpoint_catalogue.seen(tx, job.id, (10, before.position), {"pinned": True, "digest": found}, None)
        made = [await models.get_version(store, "nano", str(number + 1)) for number in range(len(states))]
        assert [(one.state, one.pinned) for one in made] == [(state, True) for state in states]
        assert [one.digest for one in made] == [first, second][: len(states)]
