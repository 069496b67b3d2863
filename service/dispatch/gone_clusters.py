"""Ends cancelled jobs whose cluster is gone for good: its dispatchers, which would end their gangs, are gone, too.

If the cluster comes back, its dispatcher removes the gang as one that no job uses.
"""

import logging
import time
from typing import Final
from uuid import uuid4

from ..jobs.transitions import Cause
from ..nodes import living_clusters
from ..settings import Settings
from ..states import State
from ..store import attempts, clusters, jobs, leases
from ..store.engine import Store
from ..store.leases import Lease
from .retry import lose_attempt

log = logging.getLogger(__name__)

#: Jobs that end in one pass.
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


async def _end(store: Store, settings: Settings, lease: Lease, away_s: float) -> None:
    """Its attempt has held devices until the cluster went."""
    now = time.time()
    async with store.write() as tx:
        if not await leases.take(tx, lease, settings.lease_s, {State.CANCELLING}):
            return
        job = await jobs.locked(tx, lease.job_id, lease.token)
        assert job is not None
        attempt = await attempts.get(tx, job["id"], job["attempt"])
        if attempt is not None:
            last = max(attempt["started_at"], now - away_s)
            await attempts.end(tx, job["id"], job["attempt"], "cluster_lost", last)
        await lose_attempt(tx, job, Cause(_ACTOR, now, "cluster_lost"), settings.rules.backoff)
        await leases.release(tx, [lease.token])
    log.info("%s has ended: its cluster %s is gone", lease.job_id, job["cluster"])
