"""The controller: it leases jobs, carries out the queue's decisions, and manages every gang.

Any number of dispatchers may run. If one dies, its leases expire and another takes over its jobs. One that shuts down
releases them at once. A dispatcher keeps no state that a successor needs.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from uuid import uuid4

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .. import capacity
from ..cancellation import check_cancelled
from ..cluster.interface import Cluster
from ..database_errors import DatabaseError
from ..errors import ClusterError, LeaseLost
from ..failure_log import FailureLog
from ..ids import job_of
from ..jobs import code_archives
from ..nodes import fleet
from ..orders import fault_injection, rank_commands, rank_profiles, refusal, step_traces
from ..orders.order_frame import Delivery
from ..schemas.node import ClusterNode
from ..settings import Settings
from ..states import HOLDING, State
from ..store import clusters, jobs, leases, nodes
from ..store import operations as operation_rows
from ..store.engine import Store
from ..store.leases import Lease
from . import cluster_history, lost_nodes, retention
from .admission import Admission, Walk, admit
from .attempt_runner import Attempt
from .dispatcher_identity import Owner
from .elastic_growth import Growth
from .heartbeat import Heartbeat
from .lease_renewal import renew, renewal_interval_s
from .operation_runner import OperationRunner
from .sweep_runner import SweepRunner
from .warm_corpora import WarmCorpora

log = logging.getLogger(__name__)

#: Maximum number of abandoned jobs taken over at a time.
_ADOPTIONS = 100
#: Seconds that releasing the leases may take at shutdown.
_RELEASE_S = 5.0
#: Seconds for which a cluster keeps its name after its nodes were last read.
_NAME_S = 15.0
#: Seconds between two searches for archives of code that no job uses.
_UNUSED_CODE_S = 3600.0
#: Seconds between two looks whether a minute's use of the cluster is stored.
_RECORD_S = 15.0
#: Seconds between two searches for a waiting job's devices.
_BUSY_NODES_S = 1.0


@dataclass(frozen=True)
class _Running:
    attempt: Attempt
    task: "asyncio.Task[None]"


@dataclass(frozen=True)
class _PendingWork:
    """A snapshot of the work that the database has for the dispatcher."""

    ending: Mapping[str, State]  # lease token → the state of a job whose gang is to end
    deliveries: Sequence[Delivery]
    forbidden: Sequence[refusal.Forbidden]  # orders that this dispatcher may not send
    abandoned: Sequence[str]
    operations: Sequence[RowMapping]
    queued: bool


class Dispatcher:
    """`run()` dispatches until it is cancelled. A submission or cancellation in this process sets `wake`, which saves a poll."""

    def __init__(self, store: Store, settings: Settings, cluster: Cluster, wake: asyncio.Event | None = None) -> None:
        self.store, self.settings, self.cluster = store, settings, cluster
        self.owner = str(Owner.of_this_process())
        self._growth = Growth()
        self._operations = OperationRunner(store, settings, cluster, self.owner)
        self._corpora = WarmCorpora(store, settings, cluster)
        self._sweeps = SweepRunner(store, settings)
        self._wake = wake or asyncio.Event()
        self._nodes_changed = asyncio.Event()  # set when the nodes changed
        self._running: dict[str, _Running] = {}  # by lease token
        self._connected = False
        self._unreachable: str | None = None  # why the cluster cannot be reached, as of the last read of the nodes
        self._spared: Collection[str] = ()  # cordoned nodes that stay in use
        self._seen = False  # whether the queue may be examined: the nodes are stored, or known to be unreachable
        self._looked = False  # whether the cluster was ever reached: its nodes are stored, or another one has its name
        self._reaped = False  # whether this machine's dead dispatchers have been looked for
        self._walk = Walk()
        self._other_owner: str | None = None  # of another cluster that has our cluster's name
        self._waiting = False  # whether jobs wait in the queue
        self._unknown: Set[str] = frozenset()  # gangs of jobs that the database does not know

    async def run(self) -> None:
        """Dispatch until cancelled. Then the leases are released, and the gangs keep running."""
        code_storage, removing = code_archives.CodeStorage(self.settings), retention.Removals()
        heartbeat = Heartbeat(self.settings.heartbeat_path)

        async def schedule() -> None:
            try:
                await self._schedule()
            finally:  # also after an error: a restart would not bring the database back
                heartbeat.note(looked=self._looked)

        async def remove_unused_code() -> None:
            await code_archives.remove_unused(self.store, code_storage)

        async def advance_sweeps() -> None:
            if await self._sweeps.run_once():
                self._wake.set()

        async def remove_old() -> None:
            if self._other_owner is None:
                await retention.sweep(self.store, self.settings, removing)

        async def record_use() -> None:
            if self._other_owner is None and self._connected:
                await cluster_history.record(self.store, self.settings)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_forever(self._watch_nodes, self._nodes_s, self._nodes_changed), name="nodes")
                group.create_task(_forever(schedule, lambda: self.settings.poll_s, self._wake), name="schedule")
                group.create_task(
                    _forever(self._renew, lambda: renewal_interval_s(self.settings.lease_s)), name="leases"
                )
                group.create_task(_forever(self._grow, lambda: self.settings.nodes_s), name="growth")
                group.create_task(_forever(self._prepare_corpora, lambda: self.settings.nodes_s), name="corpora")
                group.create_task(_forever(self._remove_strays, lambda: self.settings.stray_gangs_s), name="strays")
                group.create_task(_forever(advance_sweeps, lambda: self.settings.poll_s), name="sweeps")
                group.create_task(_forever(remove_unused_code, lambda: _UNUSED_CODE_S), name="code")
                group.create_task(_forever(record_use, lambda: _RECORD_S), name="use")
                group.create_task(_forever(remove_old, lambda: self.settings.retention_s), name="retention")
        finally:
            heartbeat.note(looked=False)
            await self._leave()

    def _nodes_s(self) -> float:
        return min(_BUSY_NODES_S, self.settings.nodes_s) if self._waiting else self.settings.nodes_s

    async def _watch_nodes(self) -> None:
        """Store the cluster's nodes, and examine the queue again if they changed."""
        try:
            if not self._connected:
                await self.cluster.connect()
                self._connected = True
            asked = time.monotonic()
            found = sorted(await self.cluster.nodes(), key=lambda node: node.id)
        except ClusterError as error:
            self._connected, self._seen, self._unreachable = False, True, error.message
            log.warning("the cluster does not answer: %s", error)
            await self._operations.stop()
            return
        now, name = time.time(), self.settings.cluster
        async with self.store.write() as tx:
            await clusters.enter(tx, name, self.owner)
            entry = await clusters.locked(tx, name)  # of two dispatchers one waits here, and finds the other's list
            before = await nodes.all_nodes(tx, name)
            listed = [node.model_dump() | {"seen_at": now, "cluster": name} for node in found]
            rows = lost_nodes.kept(listed, before)
            if self._refuse(await self._other(tx, entry, found, before)):
                return
            if await clusters.polled_by_another(tx, name, self.owner, time.monotonic() - asked, _NAME_S):
                return  # its list may be newer than ours
            limits = self.settings.model_dump(include={"max_ranks", "cpu_ranks_per_core"})
            await clusters.put(tx, name, self.owner, _NAME_S, limits)
            await nodes.replace(tx, rows, name, before)
            await cluster_history.note_changes(tx, name, before, listed, now)
            await capacity.remember(tx, self.settings, found)
            spared = (await fleet(tx, name)).spared
        if not self._seen or self._unreachable or lost_nodes.differ(before, rows):
            self._wake.set()
        if spared and spared != self._spared:
            log.warning("every node of a kind is cordoned; %s stays in use", ", ".join(spared))
        self._seen = self._looked = True
        self._unreachable, self._spared = None, spared

    async def _other(
        self,
        tx: AsyncConnection,
        entry: RowMapping | None,
        found: Sequence[ClusterNode],
        before: Sequence[RowMapping],
    ) -> str | None:
        """The dispatcher of another cluster under our cluster's name, if any: it reported recently, and none of its nodes is ours."""
        if (
            entry is None
            or entry["owner"] == self.owner
            or not before
            or {node.id for node in found} & {row["id"] for row in before}
        ):
            return None
        if self.settings.cluster not in await clusters.fresh(tx):
            return None
        owner = Owner.parse(entry["owner"])
        return None if owner is not None and owner.is_dead else str(entry["owner"])

    def _refuse(self, other: str | None) -> bool:
        """Whether another cluster uses this cluster's name. While it does, nothing of this cluster is stored."""
        if other is not None:
            self._seen, self._looked = False, True
            if self._other_owner is None:
                log.error(
                    "%s serves another cluster under the name %r in this database; this dispatcher does nothing until that one has ended: "
                    "give each cluster a name of its own in SHARDYARD_CLUSTER",
                    other,
                    self.settings.cluster,
                )
        self._other_owner = other
        return other is not None

    async def _schedule(self) -> None:
        if not self._seen:
            return
        if self._unreachable is None:
            await self._reap()
        async with (
            self.store.read() as tx
        ):  # one transaction for all: this runs twice a second, beside gangs that train
            pending = await self._pending_work(tx)
        self._carry_to_gangs(pending)
        await refusal.refuse(self.store, pending.forbidden, self.owner)
        await self._adopt(pending.abandoned)
        await self._operations.begin(pending.operations)
        admission = Admission([], False)
        if pending.queued:
            admission = await admit(self.store, self.settings, self.owner, self._unreachable, self._walk)
        self._waiting = admission.waiting
        if admission.unexplained:
            self._wake.set()
        for lease in admission.leases:
            self._run_attempt(lease)

    async def _pending_work(self, tx: AsyncConnection) -> _PendingWork:
        tokens, reachable = self._running.keys(), self._unreachable is None
        faults = tokens and self.settings.fault_injection
        return _PendingWork(
            ending=await leases.ending(tx) if tokens else {},
            deliveries=[
                *(await fault_injection.deliveries(tx, tokens) if faults else ()),
                *(await step_traces.deliveries(tx, tokens) if tokens else ()),
                *(await rank_commands.deliveries(tx, tokens) if tokens and self.settings.exec else ()),
                *(await rank_profiles.deliveries(tx, self.settings, tokens) if tokens else ()),
            ],
            forbidden=await refusal.forbidden(tx, self.settings, tokens),
            abandoned=await leases.abandoned(tx, _ADOPTIONS, self.settings.cluster) if reachable else (),
            operations=await operation_rows.free(tx, self._operations.room, self.settings.cluster)
            if reachable and self._operations.room
            else (),
            queued=await jobs.any_queued(tx),
        )

    def _carry_to_gangs(self, pending: _PendingWork) -> None:
        """End the gangs that must end, for a cancellation or to make room. Deliver users' orders to the others."""
        for token in pending.ending.keys() & self._running.keys():
            self._running[token].attempt.end(pending.ending[token])
        for delivery in pending.deliveries:
            if running := self._running.get(delivery.token):
                running.attempt.deliver(delivery.gang, delivery.order)

    async def _reap(self) -> None:
        """Expire the leases of this machine's dead dispatchers. Runs once."""
        if self._reaped:
            return
        async with self.store.read() as tx:
            owners = {*await leases.owners(tx), *await operation_rows.owners(tx)}
        dead = [text for text in owners if (owner := Owner.parse(text)) is not None and owner.is_dead]
        if dead:
            async with self.store.write() as tx:
                await leases.release_all_of(tx, dead)
                await operation_rows.release_all_of(tx, dead)
        self._reaped = True

    async def _adopt(self, abandoned: Sequence[str]) -> None:
        """Take over the jobs of dispatchers that have ended, if they still hold devices. Their gangs are found by name."""
        own = {each.attempt.lease.job_id for each in self._running.values()}  # a lease that ran out here is renewed
        for job_id in (one for one in abandoned if one not in own):
            lease = Lease(job_id, uuid4().hex, self.owner)
            async with self.store.write() as tx:
                taken = await leases.take(tx, lease, self.settings.lease_s, HOLDING)
            if taken:
                log.info("this dispatcher takes over %s", job_id)
                self._run_attempt(lease)

    def _run_attempt(self, lease: Lease) -> None:
        attempt = Attempt(self.store, self.settings, self.cluster, lease)
        task = asyncio.create_task(attempt.run(), name=f"attempt of {lease.job_id}")
        self._running[lease.token] = _Running(attempt, task)
        task.add_done_callback(lambda done: self._ended(lease, done))

    def _ended(self, lease: Lease, task: "asyncio.Task[None]") -> None:
        self._running.pop(lease.token, None)
        self._nodes_changed.set()
        self._wake.set()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, LeaseLost):
            log.info("%s", error)
        elif isinstance(error, DatabaseError):
            log.warning("stopped managing %s: %s", lease.job_id, error)
        elif error is not None:  # the lease expires, and the job is taken over in its stored state
            log.error("managing %s failed", lease.job_id, exc_info=error)

    async def _renew(self) -> None:
        """Renew the leases of the jobs and operations that run here."""
        await self._operations.renew()
        tasks = {token: running.task for token, running in self._running.items()}
        await renew(self.store, leases.renew, tasks, self.settings.lease_s)

    async def _grow(self) -> None:
        """Let elastic jobs grow onto devices that no other job waits for."""
        if self._running and self._seen and self._unreachable is None:
            await self._growth.grow(self.store, self.settings, self._running.keys(), self.owner)

    async def _prepare_corpora(self) -> None:
        """Tokenise the corpora of waiting jobs."""
        if self._waiting and self._seen and self._unreachable is None:
            await self._corpora.prepare_next()

    async def _remove_strays(self) -> None:
        """Remove gangs without a job: of ended jobs, of earlier attempts and, on a cluster of our own, of unknown jobs."""
        if not self._connected or self._other_owner is not None:
            return
        try:
            gangs = {name: job for name in await self.cluster.gangs() if (job := job_of(name)) is not None}
            async with self.store.read() as tx:  # read after the gangs: a gang is created only after its row
                placed = await jobs.placements(tx, sorted({job_id for job_id, _ in gangs.values()}))
            unknown = {name for name, (job_id, _) in gangs.items() if job_id not in placed and not self._owns_cluster}
            self._report_unknown(unknown)
            for name, (job_id, number) in gangs.items():
                if name in unknown:
                    continue
                state, attempt = placed.get(job_id, (None, None))
                if state not in HOLDING or attempt != number:
                    log.warning("removing gang %s, which no job uses", name)
                    try:
                        await self.cluster.close_gang(name)
                    except ClusterError as error:  # which may be of this gang alone
                        log.warning("%s could not be removed: %s", name, error)
        except ClusterError as error:
            log.warning("gangs without a job could not be removed: %s", error)

    @property
    def _owns_cluster(self) -> bool:
        """Whether only this control plane has gangs there. A cluster at an address may serve control planes with other databases."""
        return self.settings.ray_address is None

    def _report_unknown(self, unknown: Set[str]) -> None:
        for name in sorted(unknown - self._unknown):
            log.warning("gang %s is of a job that this database does not have; it is not removed", name)
        self._unknown = unknown

    async def _leave(self) -> None:
        tokens = list(self._running)
        running = [each.task for each in self._running.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(self._operations.stop(), self._sweeps.leave(), *running, return_exceptions=True)
        if not tokens and not self._seen:
            return
        try:
            async with asyncio.timeout(_RELEASE_S), self.store.write() as tx:
                # By owner: a lease whose transaction was cancelled while it committed is in no list of this dispatcher.
                await leases.release_all_of(tx, [self.owner])
                await operation_rows.release_all_of(tx, [self.owner])
                await clusters.leave(tx, self.owner)
        except (TimeoutError, DatabaseError) as error:  # then the leases expire
            log.warning("the leases could not be released: %s", error)


async def _forever(
    work: Callable[[], Awaitable[None]], every_s: Callable[[], float], bell: asyncio.Event | None = None
) -> None:
    """Repeat the work after the given seconds, or as soon as `bell` is set."""
    bell, failures = bell or asyncio.Event(), FailureLog(log)
    while True:
        bell.clear()
        try:
            await work()
        except DatabaseError:  # the store logged it; work continues once the database responds
            pass
        except Exception as error:  # noqa: BLE001  # an outermost loop
            failures.failed(type(error).__name__, f"the dispatcher's {work.__name__} failed; it is repeated", error)
        else:
            for cause in failures.failing:
                failures.works(cause, f"The dispatcher's {work.__name__} works again [{cause}].")
        check_cancelled()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(every_s()):
                await bell.wait()
