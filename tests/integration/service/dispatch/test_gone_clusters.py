"""A job that is cancelled on a cluster that never comes back ends by another cluster's dispatcher."""

import time

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from sqlalchemy import update

from shardyard.service.dispatch import cluster_history
from shardyard.service.dispatch.admission import admit
from shardyard.service.jobs import submit as submitting
from shardyard.service.orders import checkpoint_operations
from shardyard.service.queries import jobs
from shardyard.service.settings import Settings
from shardyard.service.states import State
from shardyard.service.store import clusters, leases, nodes
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.cluster_tables import cluster_samples
from shardyard.service.store.engine import Store
from shardyard.service.store.tables import attempts, operations

from ..conftest import Submit
from ..gang_events import NODE
from ..job_records import fill

DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("days", "leased", "state"),
    [
        (0.9, False, State.CANCELLING),
        (1.1, False, State.CANCELLED),
        (9.0, False, State.CANCELLED),
        (1.1, True, State.CANCELLING),
    ],
)
@POSTGRESQL_IN_FULL
async def test_it_ends_when_the_cluster_is_gone_for_a_day(
    store: Store, settings: Settings, submit: Submit, days: float, leased: bool, state: State
) -> None:
    """Its devices count until the cluster went. A dispatcher that has a lease still sees to its jobs."""
    west, east = (settings.model_copy(update={"cluster": name}) for name in ("west", "east"))
    job, running = await submit(), await submit()
    async with store.write() as tx:
        for one in (west, east):
            row = {**NODE, "cluster": one.cluster, "id": one.cluster, "memory_bytes": 1, "seen_at": time.time()}
            await nodes.replace(tx, [row], one.cluster)
    placed = (await admit(store, west, "a", None)).leases
    await submitting.cancel(store, job.id, "tester")
    async with store.write() as tx:
        await tx.execute(update(attempts).values(started_at=time.time() - 10 * DAY_S))
        await clusters.put(tx, "west", "a", -days * DAY_S)
        if not leased:
            await leases.release(tx, [lease.token for lease in placed])
    for _ in range(2):
        await cluster_history.record(store, east)  # it also forgets the nodes of a cluster that went 8 days ago
        async with store.write() as tx:
            await tx.execute(cluster_samples.delete())
    found = await jobs.get_job(store, job.id)
    assert (found.state, (await jobs.get_job(store, running.id)).state) == (state, State.PLACING)
    if state == State.CANCELLED:
        assert found.reason == "cancelled_by_user" and found.finished_at is not None
        assert found.finished_at.timestamp() == pytest.approx(time.time(), abs=60)
        assert found.device_s == pytest.approx((10 - days) * DAY_S, abs=60)


@pytest.mark.parametrize(("days", "state"), [(0.9, "pending"), (1.1, "failed"), (9.0, "failed")])
@POSTGRESQL_IN_FULL
async def test_an_operation_on_its_checkpoints_fails_then(
    store: Store, settings: Settings, submit: Submit, days: float, state: str
) -> None:
    jobs_of = [await submit(), await submit()]
    for job in jobs_of:
        await fill(store, job.id, 1, [operations])
    async with store.write() as tx:
        await tx.execute(operations.update().values(state="pending", settled_at=None, free_at=0.0))
        for job, name in zip(jobs_of, ("west", "east"), strict=True):
            await job_rows.set_columns(tx, job.id, {"cluster": name})
        row = {**NODE, "cluster": "east", "memory_bytes": 1, "seen_at": time.time()}
        await nodes.replace(tx, [row], "east")
        await clusters.put(tx, "west", "a", -days * DAY_S)
    await cluster_history.record(store, settings.model_copy(update={"cluster": "east"}))
    west, east = [(await checkpoint_operations.page(store, job.id)).items[0] for job in jobs_of]
    assert (west.state, east.state) == (state, "pending")
    if state == "failed":
        assert west.error is not None and west.error.code == "cluster_lost" and "'west'" in west.error.message
        assert west.settled_at is not None
