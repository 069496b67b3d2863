"""Ends cancelled jobs, and operations, whose cluster is gone for good: its dispatchers, which would end and run them, are gone, too.

If the cluster comes back, its dispatcher removes the gang as one that no job uses.
"""

import logging
import time
from typing import Final
from uuid import uuid4

from ...workers.tasks.checkpoint_task import failed
from ..jobs.transitions import Cause
from ..nodes import living_clusters
from ..settings import Settings
from ..states import State
from ..store import attempts, clusters, jobs, leases, operations
from ..store.engine import Store
from ..store.leases import Lease
from .retry import lose_attempt

log = logging.getLogger(__name__)

#: Jobs, and operations, that end in one pass.
_AT_ONCE: Final = 100
#: Who ends them, in their history.
_ACTOR: Final = "clusters"


async def end_cancelled(store: Store, settings: Settings, forgotten_s: float) -> None:
    """End such jobs. `forgotten_s`: seconds for which a cluster that is not known any more has been away at least."""
    async with store.read() as tx:
        living, ages = await living_clusters(tx) | {settings.cluster}, await clusters.ages(tx)
        found = await leases.cancelled_elsewhere(tx, living, _AT_ONCE)
    for job_id, cluster in found.items():
        await _end(store, settings, Lease(job_id, uuid4().hex, _ACTOR), ages.get(cluster, forgotten_s))


async def end_operations(store: Store, settings: Settings) -> None:
    """End the operations on checkpoints that only such a cluster reaches."""
    async with store.read() as tx:
        living = await living_clusters(tx) | {settings.cluster}
        found = await operations.elsewhere(tx, living, _AT_ONCE)
    for row in found:
        why = f"No dispatcher of the cluster {row['cluster']!r}, which has the job's checkpoints, has been there for a day."
        end = {"state": "failed", "result": None, "error": failed("cluster_lost", why).error, "settled_at": time.time()}
        lease = Lease(row["job_id"], uuid4().hex, _ACTOR)
        async with store.write() as tx:
            await jobs.lock(tx, row["job_id"])
            if await operations.take(tx, row["id"], lease, settings.lease_s, time.time()):
                await operations.settle(tx, lease.token, end)
        log.info("%s of %s has ended: its cluster %s is gone", row["id"], row["job_id"], row["cluster"])


async def _end(store: Store, settings: Settings, lease: Lease, away_s: float) -> None:
    """Its attempt has held devices until the cluster went."""
    now = time.time()
    async with store.write() as tx:
        if not await leases.take(tx, lease, settings.lease_s, {State.CANCELLING}):
            return
        job = await jobs.locked(tx, lease.job_id, lease.token)
        assert job is not None
        attempt = await attempts.get(tx, job["id"], job["attempt"])
        ended_at = None if attempt is None else max(attempt["started_at"], now - away_s)
        cause = Cause(_ACTOR, now, "cluster_lost")
        await lose_attempt(tx, job, cause, settings.rules.backoff, ended_at=ended_at)
        await leases.release(tx, [lease.token])
    log.info("%s has ended: its cluster %s is gone", lease.job_id, job["cluster"])
