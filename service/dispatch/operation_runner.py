"""Runs operations: a dispatcher takes pending ones, each under a lease, and gives each to the cluster as one task.

At most `operations_at_once` run. No transaction is open while the cluster works. The outcome is stored only under the lease. If the
dispatcher dies, its lease expires and another one starts the operation again: that costs one try.
"""

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from typing import Any, Final
from uuid import uuid4

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.tasks.checkpoint_task import Outcome, failed
from ..cancellation import check_cancelled
from ..cluster.interface import Cluster
from ..database_errors import DatabaseError
from ..errors import ClusterError
from ..nodes import fleet, kinds_of
from ..orders import checkpoint_operations
from ..queries import checkpoint_catalogue
from ..settings import Settings
from ..store import jobs
from ..store import operations as rows
from ..store.engine import Store
from ..store.leases import Lease
from .lease_renewal import renew

log = logging.getLogger(__name__)

#: Maximum tries of an operation: a worker may run out of memory, a dispatcher or node may die.
TRIES: Final = 5
#: Seconds before the next try after an error of the cluster or the database.
BACKOFF_S: Final = 5.0


class OperationRunner:
    """The operations that one dispatcher runs. The dispatcher's loops call its methods in turn."""

    def __init__(self, store: Store, settings: Settings, cluster: Cluster, owner: str) -> None:
        self.store, self.settings, self.cluster, self.owner = store, settings, cluster, owner
        self._running: dict[str, asyncio.Task[None]] = {}  # by lease token

    @property
    def room(self) -> int:
        """The number of further operations that may start."""
        return max(0, self.settings.operations_at_once - len(self._running))

    async def begin(self, pending: Sequence[RowMapping]) -> None:
        """Start these pending operations, at most as many as there is room for.

        One that runs here is pending if its lease ran out, as while the database was away: then its lease is renewed.
        """
        own = {task.get_name() for task in self._running.values()}
        for row in pending:
            if row["id"] not in own:
                await self._take(row["job_id"], row["id"])

    async def _take(self, job_id: str, operation_id: str) -> None:
        lease = Lease(job_id, uuid4().hex, self.owner)
        async with self.store.write() as tx:
            row = await rows.take(tx, operation_id, lease, self.settings.lease_s, time.time())
            node = None if row is None else await _node(tx, row["device"], self.settings.cluster)
        if row is None:
            return
        self._running[lease.token] = asyncio.create_task(self._run(row, node), name=operation_id)
        self._running[lease.token].add_done_callback(lambda done: self._ended(lease.token, done))

    def _ended(self, token: str, task: "asyncio.Task[None]") -> None:
        self._running.pop(token, None)
        if not task.cancelled() and (error := task.exception()):  # its lease runs out, and it is tried again
            log.error("%s failed", task.get_name(), exc_info=error)

    async def _run(self, row: RowMapping, node: str | None) -> None:
        token, tries = row["lease_token"], row["tries"]
        try:
            outcome = await self._perform(row, node)
        except ClusterError as error:
            log.warning("%s: %s", row["id"], error)
            if tries < TRIES:
                await self._put_back(token, tries, BACKOFF_S)
                return
            outcome = failed("operation_lost", error.message)
        except asyncio.CancelledError:
            await self._put_back(token, tries - 1, 0.0)
            raise
        await self._settle(row, outcome)

    async def _perform(self, row: RowMapping, node: str | None) -> Outcome:
        if row["tries"] > TRIES:  # each try's dispatcher died
            return failed("operation_lost", f"The operation was started {TRIES} times, and no try finished.")
        try:
            async with asyncio.timeout(self.settings.operation_s):
                return await self.cluster.perform(checkpoint_operations.task_of(row), node)
        except TimeoutError:
            return failed(
                "operation_timeout", f"The operation did not finish within {self.settings.operation_s:,.0f} s."
            )

    async def _settle(self, row: RowMapping, outcome: Outcome) -> None:
        """Store the outcome, with retries, until the database has it or the lease is lost."""
        state = "failed" if outcome.error else "done"
        end: dict[str, Any] = {"state": state, "result": outcome.result, "error": outcome.error}
        while True:
            try:
                async with self.store.write() as tx:
                    await jobs.lock(tx, row["job_id"])  # a save of the same step is stored before this, or after it
                    if await rows.settle(tx, row["lease_token"], end | {"settled_at": time.time()}):
                        at = row["step"], row["position"]
                        await checkpoint_catalogue.seen(tx, row["job_id"], at, outcome.result, outcome.error)
                return
            except DatabaseError:  # the store has logged it
                check_cancelled()
                await asyncio.sleep(BACKOFF_S)

    async def _put_back(self, token: str, tries: int, seconds: float) -> None:
        """Give the operation back for another try after `seconds`. If the database does not answer, the lease expires."""
        try:
            async with asyncio.timeout(BACKOFF_S), self.store.write() as tx:
                await rows.put_back(tx, token, seconds, tries)
        except (TimeoutError, DatabaseError) as error:
            log.warning("an operation could not be given back: %s", error)

    async def renew(self) -> None:
        await renew(self.store, rows.renew, self._running, self.settings.lease_s)

    async def stop(self) -> None:
        """Give all operations back: the cluster is gone, or this dispatcher ends."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _node(tx: AsyncConnection, device: str | None, cluster: str) -> str | None:
    """A node on which gangs of this device run. Such nodes reach the storage; a cluster's head may not."""
    among = await fleet(tx, cluster)
    able = [row["id"] for row in among.alive if (device or "cpu") in kinds_of(row)]
    chosen = [node for node in able if node not in among.avoided] or able
    return random.choice(chosen) if chosen else None
