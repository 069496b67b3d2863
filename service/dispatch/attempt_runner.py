"""Runs one attempt of one leased job, from its order to the removal of its gang: load, act on the cluster, apply; never two at once.

It may die at any line: the next dispatcher finds the state in the database and the gang by its name, and continues. It holds
no transaction while it waits for the cluster, and stores what it received there only under its lease.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from pydantic import ValidationError
from sqlalchemy.engine import RowMapping

from ...workers.clock_offset import ClockOffset
from ...workers.messages.event import READABLE, VERSION
from .. import capacity, secrets
from ..cancellation import check_cancelled
from ..cluster.interface import Cluster, Pull, UserOrder
from ..database_errors import DatabaseError
from ..errors import (
    CheckpointCorrupt,
    CheckpointDeleted,
    ClusterError,
    GangLost,
    InvalidSpec,
    LeaseLost,
    OtherVersion,
    SecretsKeyUnusable,
    UnknownSecret,
)
from ..ids import gang_name
from ..jobs.transitions import Cause
from ..orders import refusal
from ..policies.retry import SECRET_UNAVAILABLE, SPEC_UNREADABLE
from ..queries import checkpoint_catalogue
from ..settings import Settings
from ..states import HOLDING, State
from ..store import attempts, jobs, leases
from ..store.engine import Store
from ..store.leases import Lease
from . import final_save, time_limit
from .event_ingest import IngestResult, ingest
from .gang_spec import gang_spec
from .last_sign import last_sign
from .node_faults import avoided
from .preflight import needs_preflight
from .retry import lose_attempt

log = logging.getLogger(__name__)

#: Maximum tries to start or remove a gang on a cluster that does not respond.
_TRIES = 3
#: Seconds between two tries: the first pause, and the longest; doubled in between.
_FIRST_BACKOFF_S, _LAST_BACKOFF_S = 0.25, 5.0
#: Seconds that removing a gang may take before its job becomes `cancelled`.
_CLEAR_S = 1.0
#: Seconds for storing events that a gang emitted before it had to end. Events that are not stored by then are lost.
_CATCH_UP_S = 300.0
#: Seconds beyond its wait that a pull in progress may take to respond.
_ANSWER_S = 5.0

T = TypeVar("T")


class Attempt:
    """Manages one job under one lease until its attempt has ended. `end()` may be called at any time."""

    def __init__(self, store: Store, settings: Settings, cluster: Cluster, lease: Lease) -> None:
        self.store, self.settings, self.cluster, self.lease = store, settings, cluster, lease
        self._to_end, self._cancelled = asyncio.Event(), asyncio.Event()
        self._caught_up = asyncio.Event()  # whether all events that the gang is known to have emitted are stored
        self._caught_up.set()
        self._answered = asyncio.Event()  # whether the gang was started, or has answered, under this lease
        self._delivering: dict[str, asyncio.Task[None]] = {}  # by the order's id
        self._clock = ClockOffset()  # of the supervisor's node

    def deliver(self, gang: str, order: UserOrder) -> None:
        """Start to deliver the order. Does nothing if the delivery was started before."""
        if order.id not in self._delivering:
            self._delivering[order.id] = asyncio.create_task(self._deliver(gang, order), name=order.id)

    async def _deliver(self, gang: str, order: UserOrder) -> None:
        """Deliver the order, with retries, until the gang has it or is lost. One that it does not know fails."""
        with contextlib.suppress(GangLost):
            if not await self._retry(partial(self.cluster.deliver, gang, order)):
                await self._retry(partial(self._refuse, order))

    async def _refuse(self, order: UserOrder) -> None:
        async with self.store.write() as tx:
            job = await jobs.locked(tx, self.lease.job_id, self.lease.token)
            if job is not None:
                await refusal.settle(tx, job, order, self._cause("", ""), self.settings.rules.artifacts)

    def end(self, state: State) -> None:
        """End the gang: `cancelling`, or `resharding`, `pausing` and `stopping`, which save a checkpoint first."""
        if state == State.CANCELLING:
            self._cancelled.set()
        if state in (State.CANCELLING, State.RESHARDING, State.PAUSING, State.STOPPING):
            self._to_end.set()

    async def run(self) -> None:
        """Manage the attempt until its gang is removed and the lease released. Raises LeaseLost."""
        job, attempt = await self._load()
        self.end(State(job["state"]))
        in_time = asyncio.create_task(self._end_in_time(job), name=f"time limit of {job['id']}")
        try:
            await self._endable(self._work(job, attempt), attempt["gang"])
        except OtherVersion as other:
            await self._lose(self._cause(other.code, f"{other.message} {other.remedy}"))
        except GangLost as lost:
            await self._lose(await self._verdict(attempt, lost))
        except (UnknownSecret, InvalidSpec) as missing:
            await self._lose(self._cause(SECRET_UNAVAILABLE, f"{missing.message} {missing.remedy}"))
        except SecretsKeyUnusable as unusable:
            await self._lose(self._cause(unusable.code, f"{unusable.message} {unusable.remedy}"))
        except (CheckpointDeleted, CheckpointCorrupt) as gone:
            await self._lose(self._cause(gone.code, f"{gone.message} {gone.remedy}"))
        except _UnreadableError as error:
            await self._lose(self._cause(SPEC_UNREADABLE, f"{error} Submit the job again."))
        except ClusterError as error:
            await self._lose(self._cause("cluster_unreachable", error.message))
        finally:
            await _end_tasks(in_time, *self._delivering.values())
        await self._clear(attempt["gang"])
        async with self.store.write() as tx:
            await leases.release(tx, [self.lease.token])

    async def _end_in_time(self, job: RowMapping) -> None:
        """Stop the job once it has held devices for its `policy.max_duration`. Those of a gang that is gone are no longer held."""
        await self._answered.wait()
        while (left_s := await self._retry(partial(time_limit.left_s, self.store, job))) is not None:
            if left_s <= 0:
                with contextlib.suppress(LeaseLost):  # then another dispatcher stops it
                    self.end(await self._retry(partial(time_limit.stop, self.store, self.lease)))
                return
            await asyncio.sleep(left_s)

    async def _load(self) -> tuple[RowMapping, RowMapping]:
        async with self.store.read() as tx:
            job = await jobs.by_id(tx, self.lease.job_id)
            attempt = None if job is None else await attempts.get(tx, job["id"], job["attempt"])
        if job is None or attempt is None or job["lease_token"] != self.lease.token:
            raise LeaseLost(f"{self.lease.job_id}: another dispatcher manages it now.")
        return job, attempt

    async def _work(self, job: RowMapping, attempt: RowMapping) -> None:
        """Start the gang unless it was started, and store its events until the last. Raises GangLost, ClusterError."""
        cursor = int(attempt["cursor"])
        # A cursor proves that the gang existed: a second one of its name would number its events from the start.
        if job["state"] == State.PLACING and cursor == 0:
            await self._start(job, attempt)
            self._answered.set()
        ended = False
        while not ended:
            pull = await self._retry(partial(self.cluster.pull, attempt["gang"], cursor, self.settings.pull_s))
            self._answered.set()
            if pull.version not in READABLE:
                message = (
                    f"{attempt['gang']} sends events of version {pull.version}; this service reads version {VERSION}."
                )
                raise OtherVersion(message)
            caught_up = self._caught_up
            self._clock.add(pull.behind_s)
            if pull.events:
                caught_up.clear()
                taken = await self._retry(partial(self._ingest, job["attempt"], pull))
                cursor, ended = taken.cursor, taken.ended
                self.end(taken.state)
            if cursor >= pull.last or not pull.events:
                caught_up.set()
            if pull.misses_secrets and not ended:
                await self._provide_secrets(job, attempt["gang"])

    async def _provide_secrets(self, job: RowMapping, gang: str) -> None:
        values = await self._retry(partial(secrets.of_job, self.store, self.settings, job["spec"]))
        await self._retry(partial(self.cluster.provide_secrets, gang, values))

    async def _ingest(self, attempt: int, pull: Pull) -> IngestResult:
        return await ingest(self.store, self.lease, attempt, pull.events, self.settings.rules, self._clock.seconds)

    async def _start(self, job: RowMapping, attempt: RowMapping) -> None:
        if attempt["number"] > 1:  # ranks of a lost gang may live on for a while, and write into the job's checkpoints
            await self._retry(lambda: self.cluster.close_gang(gang_name(job["id"], attempt["number"] - 1)), _TRIES)
        async with self.store.read() as tx:
            avoids = await avoided(tx, self.settings, job)
            preflight = await needs_preflight(tx, job, avoids)
            images = await capacity.images(tx, self.settings)
        if job["resume"] and job["checkpoint"] is None:
            try:  # a gang that a dispatcher started before it died may have read the checkpoint already
                await self._retry(partial(self.cluster.pull, attempt["gang"], 0, 0.0), _TRIES)
            except GangLost:
                await _refuse_removed(self.store, job)
        try:
            spec = gang_spec(job, attempt, self.settings, avoids, preflight, images)
        except (ValueError, TypeError, KeyError) as error:
            raise _UnreadableError(f"This version cannot read the job's stored spec: {_short(error)}.") from error
        await self._retry(lambda: self.cluster.start_gang(spec), _TRIES)

    async def _endable(self, work: Awaitable[None], gang: str) -> None:
        """Do the work. Once the job must end, stop its gang, with or without a save, and remove it if that takes too long."""
        working = asyncio.ensure_future(work)
        cancelled = asyncio.create_task(self._cancelled.wait())
        to_end = asyncio.create_task(self._to_end.wait())
        asking: list[asyncio.Task[Any]] = []
        try:
            await asyncio.wait({working, to_end}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done() and not self._cancelled.is_set():
                asking.append(asyncio.create_task(self._request_end(gang, "preempt")))
                patience_s = await self._retry(
                    partial(final_save.patience_s, self.store, self.settings, self.lease.job_id)
                )
                await asyncio.wait({working, cancelled}, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
                if not working.done() and not self._cancelled.is_set():
                    stored = asyncio.create_task(
                        self._caught_up.wait()
                    )  # its save may be among events that are not stored yet
                    asking.append(stored)
                    either = {working, cancelled, stored}
                    await asyncio.wait(either, timeout=_CATCH_UP_S, return_when=asyncio.FIRST_COMPLETED)
                if not working.done() and not self._cancelled.is_set():
                    await self._retry(partial(final_save.report_cut_off, self.store, self.lease, patience_s))
            if not working.done():
                await _end_tasks(*asking)
                asking.append(asyncio.create_task(self._request_end(gang, "cancel")))
                await asyncio.wait({working}, timeout=self.settings.cancel_s)
            if not working.done():
                asking.append(asyncio.create_task(self._catch_up()))
                await asyncio.wait({working, asking[-1]}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
        finally:
            await _end_tasks(working, cancelled, to_end, *asking)
        with contextlib.suppress(ClusterError, TimeoutError):
            await asyncio.wait_for(self.cluster.close_gang(gang), _CLEAR_S)
        raise GangLost(f"{gang} did not end within {self.settings.cancel_s} s.")

    async def _catch_up(self) -> None:
        """Wait until a later pull is stored. The gang may have ended with its last events in a pull that is not stored yet."""
        patience_s = self.settings.pull_s + _ANSWER_S if self._caught_up.is_set() else _CATCH_UP_S
        self._caught_up = asyncio.Event()  # a pull answered before this sets the old one
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._caught_up.wait(), patience_s)

    async def _request_end(self, gang: str, reason: str) -> None:
        """Repeat the request until the gang received it: the gang may just be starting."""
        while True:
            try:
                return await self.cluster.stop(gang, reason)
            except (GangLost, ClusterError):
                await asyncio.sleep(_FIRST_BACKOFF_S)

    async def _verdict(self, attempt: RowMapping, lost: GangLost) -> Cause:
        """Whether the gang alone is lost, or the whole cluster on which it was placed. Of a job that is to end, both mean the same."""
        asking = asyncio.create_task(self._retry(self.cluster.nodes))
        to_end = asyncio.create_task(self._to_end.wait())
        try:
            await asyncio.wait({asking, to_end}, return_when=asyncio.FIRST_COMPLETED)
            alive = None if to_end.done() else {node.id for node in asking.result() if node.alive}
        finally:
            await _end_tasks(asking, to_end)
        async with self.store.read() as tx:
            before = await attempts.nodes(tx, attempt["job_id"], attempt["number"])
        if alive is not None and before and alive.isdisjoint(before):
            return self._cause("cluster_lost", "The Ray cluster that ran this attempt is gone.")
        return self._cause("gang_lost", lost.message)

    def _cause(self, reason: str, message: str) -> Cause:
        return Cause(self.lease.owner, time.time(), reason, message)

    async def _lose(self, cause: Cause) -> None:
        """End the attempt without its gang's word. Does nothing if its end is stored: an answer of the database may have been lost.

        A gang that never answered under this lease may have been gone for long: it ended with its last sign of life.
        """
        async with self.store.write() as tx:
            job = await jobs.locked(tx, self.lease.job_id, self.lease.token)
            if job is None:
                raise LeaseLost(f"{self.lease.job_id}: another dispatcher manages it now.")
            if job["state"] in HOLDING:
                ended_at = cause.now if self._answered.is_set() else await last_sign(tx, job, cause.now)
                await lose_attempt(tx, job, cause, self.settings.rules.backoff, ended_at=ended_at)

    async def _clear(self, gang: str) -> None:
        """Remove the gang. If that fails, the dispatcher's sweep removes it later."""
        with contextlib.suppress(ClusterError):
            await self._retry(lambda: self.cluster.close_gang(gang), _TRIES)

    async def _retry(self, request: Callable[[], Awaitable[T]], tries: int | None = None) -> T:
        """Retry while the cluster or the database does not respond. The gang may still be alive, and requests are idempotent.

        Raises the last error after `tries` tries, and CancelledError also where the request has lost it.
        """
        backoff_s = _FIRST_BACKOFF_S
        while True:
            try:
                return await request()
            except (ClusterError, DatabaseError) as error:
                tries = None if tries is None else tries - 1
                if tries == 0:
                    raise
                if isinstance(error, ClusterError):  # the store logs database errors
                    log.warning("%s: the cluster does not respond: %s", self.lease.job_id, error)
            finally:
                check_cancelled()
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _LAST_BACKOFF_S)


async def _refuse_removed(store: Store, job: RowMapping) -> None:
    """Raise CheckpointDeleted or CheckpointCorrupt if the checkpoint to begin with was removed or damaged while the job waited."""
    field = "train.resume_from" if "train" in job["spec"] else "resume_from"
    async with store.read() as tx:
        await checkpoint_catalogue.refuse_unusable_path(tx, job["resume"], field)


class _UnreadableError(Exception):
    """A spec that an earlier version stored, and that this one does not understand."""


def _short(error: Exception) -> str:
    """What is wrong, in one line: of a spec its first field."""
    if not isinstance(error, ValidationError):
        return f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".rstrip(".")


async def _end_tasks(*tasks: asyncio.Future[Any] | None) -> None:
    running = [task for task in tasks if task is not None and not task.done()]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
