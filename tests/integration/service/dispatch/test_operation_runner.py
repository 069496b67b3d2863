"""Operations under a dispatcher's lease, on a cluster without Ray."""

import asyncio

from shardyard.service.dispatch.operation_runner import OperationRunner
from shardyard.service.orders import checkpoint_operations
from shardyard.service.orders.checkpoint_operations import OperationRequest, create
from shardyard.service.settings import Settings
from shardyard.service.store import events
from shardyard.service.store import operations as rows
from shardyard.service.store.engine import Store
from shardyard.service.store.tables import operations
from shardyard.workers.tasks.checkpoint_task import Operation, Outcome, failed

from ...inprocess_cluster import InProcessCluster
from ..conftest import Submit
from .dispatching import eventually


class Slow(InProcessCluster):
    """An operation ends once `done` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.performed, self.done = 0, asyncio.Event()

    async def perform(self, operation: Operation, node: str | None) -> Outcome:
        self.performed += 1
        await self.done.wait()
        return failed("storage_unreachable", "no answer")


async def test_an_operation_whose_lease_has_run_out_is_not_started_beside_itself(
    store: Store, settings: Settings, submit: Submit
) -> None:
    """The database was away for longer than a lease lasts. No other dispatcher has taken the operation meanwhile."""
    job, cluster = await submit(), Slow()
    saved = {"attempt": 1, "kind": "checkpoint", "ts": 1.0, "actor": "test", "data": {"step": 10, "path": "/c/10"}}
    async with store.write() as tx:
        await events.append(tx, job.id, [saved])
    asked = await create(store, job.id, OperationRequest("verify", 2), None, "me")
    runner = OperationRunner(store, settings, cluster, "a")

    async def begin() -> None:
        async with store.read() as tx:
            pending = await rows.free(tx, runner.room)
        assert [row["id"] for row in pending] == [asked.id]
        await runner.begin(pending)

    await begin()
    await eventually(lambda: cluster.performed == 1)
    async with store.write() as tx:
        await tx.execute(operations.update().values(free_at=0.0))
    await begin()
    await runner.renew()
    async with store.read() as tx:
        assert await rows.free(tx, 5) == []
        (row,) = (await tx.execute(operations.select())).mappings().all()
    assert (cluster.performed, row["tries"], list(runner._running)) == (1, 1, [row["lease_token"]])
    cluster.done.set()
    await eventually(lambda: not runner._running)
    assert (await checkpoint_operations.one(store, job.id, asked.id)).state == "failed"
