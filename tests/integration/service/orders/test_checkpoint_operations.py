"""Asking for operations, over both databases: what is refused leaves nothing behind, one key is one operation, one lease holds."""

import asyncio
import time
from typing import Any

import pytest
from harness.query_plans import query_plan
from sqlalchemy import text

from shardyard.service.errors import (
    CheckpointNotFound,
    ExportUnderway,
    ExportUnsupported,
    IdempotencyConflict,
    InvalidCursor,
    JobNotFound,
    OperationNotFound,
    ShardyardError,
    TooManyOperations,
)
from shardyard.service.jobs import submit as submitting
from shardyard.service.orders import checkpoint_operations
from shardyard.service.orders.checkpoint_operations import KEPT, MOST_OPEN, OperationRequest, create
from shardyard.service.schemas.job import Job
from shardyard.service.schemas.operation import Verified
from shardyard.service.settings import Settings
from shardyard.service.spec import CommandSpec
from shardyard.service.store import events, jobs, orders
from shardyard.service.store import operations as rows
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.store.tables import operations

from ..conftest import Submit

#: What a verification of a whole checkpoint finds.
FOUND = {"verdict": "valid", "message": None, "corrupt": [], "corrupt_files": 0, "files": 3, "bytes": 9}


async def reported(store: Store, job: Job, *steps: int) -> list[int]:
    """The places of checkpoints of these steps in the job's history."""
    place = (await newest_position(store, job)) + 1
    same = {"attempt": 1, "kind": "checkpoint", "ts": 1.0, "actor": "test"}
    async with store.write() as tx:
        data = [{"step": step, "path": f"/checkpoints/{job.id}/step-{step:08d}"} for step in steps]
        await events.append(tx, job.id, [{**same, "data": one} for one in data])
    return list(range(place, place + len(steps)))


async def newest_position(store: Store, job: Job) -> int:
    async with store.read() as tx:
        row = await jobs.by_id(tx, job.id)
    assert row is not None
    return int(row["event_pos"])


async def test_the_files_of_a_program_are_verified_and_not_exported(store: Store, settings: Settings) -> None:
    spec = CommandSpec.model_validate({"name": "mine", "command": "true"})
    job, _ = await submitting.submit(store, settings, spec, None, "", "tester")
    [place] = await reported(store, job, 5)
    with pytest.raises(ExportUnsupported, match="program's own files"):
        await create(store, job.id, OperationRequest("export", place, "bf16"), None, "tester")
    assert (await create(store, job.id, OperationRequest("verify", place), None, "tester")).state == "pending"


async def test_what_cannot_be_done_is_refused(store: Store, submit: Submit) -> None:
    job = await submit(steps=100, checkpoint={"export": True})
    [early, last] = await reported(store, job, 50, 100)
    cases: list[tuple[str, OperationRequest, type[ShardyardError], str | None]] = [
        ("absent", OperationRequest("verify", early), JobNotFound, None),
        (job.id, OperationRequest("verify", 1), CheckpointNotFound, "position"),  # the history begins with its state
        (job.id, OperationRequest("export", last + 1, "fp32"), CheckpointNotFound, "position"),
        (job.id, OperationRequest("export", last, "fp32"), ExportUnderway, "position"),
    ]
    async with store.write() as tx:  # an earlier version's spec, which this one cannot read, is no obstacle
        await jobs.set_columns(tx, job.id, {"spec": {**job.spec, "train": {**job.spec["train"], "gone": 1}}})
    for name, request, kind, field in cases:
        with pytest.raises(kind) as refused:
            await create(store, name, request, None, "me")
        assert (refused.value.field, bool(refused.value.remedy)) == (field, True), request
    assert (await checkpoint_operations.page(store, job.id)).items == []
    out = [
        (await create(store, job.id, OperationRequest("export", n, dtype), None, "me")).id
        for n, dtype in ((early, "fp32"), (last, "bf16"))
    ]
    async with store.read() as tx:
        found = [row["out"] for row in await orders.open_of(tx, operations, job.id)]
    assert len(out) == 2 and found == [
        f"/checkpoints/{job.id}/export-00000050",
        f"/checkpoints/{job.id}/export-00000100-bf16",
    ]


async def test_one_key_and_one_request_are_one_operation(store: Store, submit: Submit) -> None:
    job = await submit()
    [first, second] = await reported(store, job, 10, 20)
    asked = await asyncio.gather(
        *(create(store, job.id, OperationRequest("verify", first), "key", "me") for _ in range(10))
    )
    assert len({one.id for one in asked}) == 1
    assert (asked[0].state, asked[0].step, asked[0].actor, asked[0].settled_at) == ("pending", 10, "me", None)
    with pytest.raises(IdempotencyConflict):
        await create(store, job.id, OperationRequest("verify", second), "key", "me")
    assert (await create(store, job.name, OperationRequest("verify", first), None, "you")).id == asked[0].id
    [again] = await reported(store, job, 10)  # the same step, saved once more: the same folder
    assert (await create(store, job.id, OperationRequest("verify", again), None, "you")).id == asked[0].id
    await settle(store, job)
    assert (await create(store, job.id, OperationRequest("verify", first), "key", "me")).state == "done"
    assert (await create(store, job.id, OperationRequest("verify", first), None, "you")).id != asked[0].id


async def settle(store: Store, job: Job) -> None:
    """All that waits, as a dispatcher does."""
    async with store.write() as tx:
        for row in await rows.free(tx, 100):
            assert await rows.take(tx, row["id"], Lease(job.id, row["id"], "test"), 60.0, 1.0) is not None
            end: dict[str, Any] = {"state": "done", "result": FOUND, "error": None, "settled_at": 2.0}
            assert await rows.settle(tx, row["id"], end)


async def test_a_job_has_so_many_and_keeps_so_many(store: Store, submit: Submit) -> None:
    job = await submit()
    places = await reported(store, job, *range(1, KEPT + 2 * MOST_OPEN + 1))
    for at in range(0, len(places), MOST_OPEN):
        for n in places[at : at + MOST_OPEN]:
            await create(store, job.id, OperationRequest("verify", n), None, "me")
        with pytest.raises(TooManyOperations):
            await create(store, job.id, OperationRequest("export", places[0], "fp32"), None, "me")
        await settle(store, job)
    seen, before, pages = [], None, 0
    while pages == 0 or before is not None:
        page = await checkpoint_operations.page(store, job.id, before=before, limit=50)
        seen, before, pages = [*seen, *page.items], page.next, pages + 1
    assert pages == 3 and KEPT < len(seen) <= KEPT + MOST_OPEN
    assert [one.step for one in seen] == list(range(len(places), len(places) - len(seen), -1))
    assert seen[0].verified == Verified(**FOUND) and seen[0].exported is None
    assert await checkpoint_operations.one(store, job.name, seen[0].id) == seen[0]
    with pytest.raises(OperationNotFound):
        await checkpoint_operations.one(store, job.id, "op-\0")
    with pytest.raises(InvalidCursor):
        await checkpoint_operations.page(store, job.id, before="nonsense")


async def test_one_dispatcher_at_a_time(store: Store, submit: Submit) -> None:
    job = await submit()
    [n] = await reported(store, job, 10)
    asked = await create(store, job.id, OperationRequest("verify", n), None, "me")
    mine, yours = Lease(job.id, "mine", "a"), Lease(job.id, "yours", "b")

    async def take(lease: Lease, seconds: float) -> Any:
        async with store.write() as tx:
            return await rows.take(tx, asked.id, lease, seconds, time.time())

    first = await take(mine, 60.0)
    assert (first["state"], first["tries"], first["device"]) == ("running", 1, None)
    assert await take(yours, 60.0) is None
    async with store.read() as tx:
        assert await rows.free(tx, 5) == [] and await rows.owners(tx) == ["a"]
    async with store.write() as tx:
        assert await rows.renew(tx, ["mine"], -1.0) == {"mine"}  # so long ago
    assert (await take(yours, 60.0))["tries"] == 2
    end: dict[str, Any] = {"state": "done", "result": {}, "error": None, "settled_at": 2.0}
    async with store.write() as tx:
        assert await rows.renew(tx, ["mine", "yours"], 60.0) == {"yours"}
        assert not await rows.settle(tx, "mine", end)
        await rows.put_back(tx, "yours", 0.0, 1)
    assert (await checkpoint_operations.one(store, job.id, asked.id)).state == "pending"
    assert (await take(mine, 60.0))["tries"] == 2
    async with store.write() as tx:
        await rows.release_all_of(tx, ["a"])
    assert (await take(yours, 60.0))["tries"] == 3


async def test_of_2_000_operations_a_renewal_reads_the_open_ones(store: Store, submit: Submit) -> None:
    job = await submit()
    same = {"kind": "verify", "position": 1, "step": 1, "path": "/x", "actor": "a", "asked_at": 0.0, "job_id": job.id}
    ended = [
        {**same, "id": f"op-{at:05}", "state": "done", "settled_at": 1.0, "lease_token": None} for at in range(2000)
    ]
    held = {**same, "id": "op-last", "state": "running", "settled_at": None, "lease_token": "mine"}
    async with store.write() as tx:
        await tx.execute(operations.insert(), [*ended, held])
        if tx.dialect.name == "postgresql":
            await tx.execute(text("ANALYZE"))
        plan = await query_plan(tx, rows.renewal(tx, ["mine"], 60.0, skip_locked=True))
        assert await rows.renew(tx, ["mine", "lost"], 60.0, skip_locked=True) == {"mine"}
    assert "ix_operations_open" in plan, plan
    assert not any(words in plan.lower() for words in ("seq scan on", "pk_operations", "scan operations\n")), plan
