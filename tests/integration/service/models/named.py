"""Jobs with checkpoints whose pins are made, as a dispatcher makes them, and versions of them."""

from pathlib import Path
from typing import Any

from harness.stored_checkpoints import save_checkpoint

from shardyard.service.models.versions import Submission, create
from shardyard.service.queries import checkpoint_catalogue
from shardyard.service.schemas.job import Job
from shardyard.service.schemas.model import ModelVersion, VersionRequest
from shardyard.service.settings import Settings
from shardyard.service.store import checkpoints, events, orders
from shardyard.service.store import operations as leases
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.store.tables import operations
from shardyard.workers.tasks.checkpoint_task import Operation, Outcome, perform


async def saved(store: Store, settings: Settings, job: Job, *steps: int) -> None:
    """Checkpoints in storage, and in the job's history."""
    async with store.write() as tx:
        for step in steps:
            data = save_checkpoint(Path(settings.storage) / job.id, step)
            row = {"attempt": 1, "kind": "checkpoint", "ts": 1.0, "actor": "test", "data": data}
            await events.append(tx, job.id, [row])
            await checkpoints.put(tx, job.id, step, "present")


async def named(store: Store, model: str, job: Job, key: str | None = None, **wanted: Any) -> ModelVersion:
    made, _ = await create(store, model, VersionRequest(job=job.id, **wanted), Submission(key, repr(wanted), "ada"))
    return made


async def perform_open(store: Store, job: Job) -> list[Outcome]:
    """Do what is open, as a dispatcher does."""
    async with store.read() as tx:
        rows = await orders.open_of(tx, operations, job.id)
    done = []
    for row in rows:
        outcome = perform(Operation(row["id"], row["kind"], row["path"]))
        async with store.write() as tx:
            taken = await leases.take(tx, row["id"], Lease(job.id, row["id"], "me"), 60.0, 1.0)
            assert taken is not None
            end = {"state": "done", "result": outcome.result, "error": outcome.error, "settled_at": 2.0}
            assert await leases.settle(tx, row["id"], end)
            await checkpoint_catalogue.seen(tx, job.id, (row["step"], row["position"]), outcome.result, outcome.error)
        done.append(outcome)
    return done
