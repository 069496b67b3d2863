"""The one controller that acts: it leases jobs, carries the queue's decisions out, and looks after every gang.

Any number of dispatchers may run. When one dies, its leases expire and another goes on with its jobs; one that ends in
order gives them back at once. Nothing that it knows is needed after its death.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .. import capacity
from ..cluster.interface import Cluster
from ..errors import ClusterError, DatabaseError, LeaseLost
from ..failure_log import FailureLog
from ..ids import job_of
from ..nodes import fleet
from ..orders import fault_injection, step_traces
from ..orders.order_frame import Delivery
from ..schemas.node import ClusterNode
from ..settings import Settings
from ..states import HOLDING, State
from ..store import clusters, jobs, leases, nodes
from ..store import operations as operation_rows
from ..store.engine import Store
from ..store.leases import Lease
from .admission import Admission, Walk, admit
from .attempt_runner import Attempt
from .elastic_growth import Growth
from .lease_owner import Owner
from .operation_runner import OperationRunner
from .warm_corpora import WarmCorpora

log = logging.getLogger(__name__)

#: So many abandoned jobs are taken over at a time.
_ADOPTIONS = 100
#: Seconds that giving the leases back may take at the end.
_RELEASE_S = 5.0
#: A cluster's name stays its own for so long after a look at its nodes.
_NAME_S = 15.0
#: A waiting job's devices are looked for this often, in seconds.
_BUSY_NODES_S = 1.0


@dataclass(frozen=True)
class _Running:
    attempt: Attempt
    task: "asyncio.Task[None]"


@dataclass(frozen=True)
class _Asked:
    """What the database asks of the dispatcher, of one moment."""

    ending: Mapping[str, State]  # lease token → the state of a job whose gang is to end
    deliveries: Sequence[Delivery]
    abandoned: Sequence[str]
    operations: Sequence[RowMapping]
    queued: bool


class Dispatcher:
    """`run()` until it is cancelled. `wake`, set by whoever submits or cancels in this process, spares a poll."""

    def __init__(self, store: Store, settings: Settings, cluster: Cluster, wake: asyncio.Event | None = None) -> None:
        self.store, self.settings, self.cluster = store, settings, cluster
        self.owner = str(Owner.of_this_process())
        self._growth = Growth()
        self._operations = OperationRunner(store, settings, cluster, self.owner)
        self._corpora = WarmCorpora(store, settings, cluster)
        self._wake = wake or asyncio.Event()
        self._look = asyncio.Event()  # at the nodes: something changed there
        self._running: dict[str, _Running] = {}  # by lease token
        self._connected = False
        self._unreachable: str | None = None  # why, since the last look at the nodes
        self._spared: Collection[str] = ()  # cordoned nodes that stay in use
        self._seen = False  # whether there was such a look
        self._buried = False  # whether this machine's dead dispatchers have been looked for
        self._walk = Walk()
        self._other_owner: str | None = None  # of another cluster that has our cluster's name
        self._waiting = False  # whether jobs wait in the queue
        self._strangers: Set[str] = frozenset()  # gangs of jobs that the database does not know

    async def run(self) -> None:
        """Dispatch until cancelled; then the leases are released, and the gangs live on."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_forever(self._watch_nodes, self._nodes_s, self._look), name="nodes")
                group.create_task(_forever(self._schedule, lambda: self.settings.poll_s, self._wake), name="schedule")
                group.create_task(_forever(self._renew, lambda: self.settings.lease_s / 3), name="leases")
                group.create_task(_forever(self._grow, lambda: self.settings.nodes_s), name="growth")
                group.create_task(_forever(self._look_ahead, lambda: self.settings.nodes_s), name="corpora")
                group.create_task(_forever(self._sweep, lambda: self.settings.sweep_s), name="sweep")
        finally:
            await self._leave()

    def _nodes_s(self) -> float:
        return min(_BUSY_NODES_S, self.settings.nodes_s) if self._waiting else self.settings.nodes_s

    async def _watch_nodes(self) -> None:
        """Write down the cluster's nodes, and look at the queue again when they differ."""
        try:
            if not self._connected:
                await self.cluster.connect()
                self._connected = True
            found = sorted(await self.cluster.nodes(), key=lambda node: node.id)
        except ClusterError as error:
            self._connected, self._seen, self._unreachable = False, True, error.message
            log.warning("the cluster does not answer: %s", error)
            await self._operations.stop()
            return
        now, name = time.time(), self.settings.cluster
        async with self.store.write() as tx:
            before = [dict(row, seen_at=now) for row in await nodes.all_nodes(tx, name)]
            rows = [node.model_dump() | {"seen_at": now, "cluster": name} for node in found]
            if self._refuse(await self._other(tx, found, before)):
                return
            await clusters.put(tx, name, self.owner, _NAME_S)
            await nodes.replace(tx, rows, name)
            await capacity.remember(tx, self.settings, found)
            spared = (await fleet(tx, name)).spared
        if not self._seen or self._unreachable or sorted(before, key=lambda row: str(row["id"])) != rows:
            self._wake.set()
        if spared and spared != self._spared:
            log.warning("every node of a kind is cordoned; %s stays in use", ", ".join(spared))
        self._seen, self._unreachable, self._spared = True, None, spared

    async def _other(
        self, tx: AsyncConnection, found: Sequence[ClusterNode], before: Sequence[Mapping[str, Any]]
    ) -> str | None:
        """The dispatcher of another cluster under our cluster's name, if there is one: it looked lately, and knows none of our nodes."""
        row = await clusters.locked(tx, self.settings.cluster)
        if (
            row is None
            or row["owner"] == self.owner
            or not before
            or {node.id for node in found} & {row["id"] for row in before}
        ):
            return None
        if self.settings.cluster not in await clusters.fresh(tx):
            return None
        owner = Owner.parse(row["owner"])
        return None if owner is not None and owner.certainly_dead else str(row["owner"])

    def _refuse(self, other: str | None) -> bool:
        """Nothing of this cluster is written down while another has its name."""
        if other is not None:
            self._seen = False
            if self._other_owner is None:
                log.error(
                    "%s serves another cluster under the name %r in this database; this dispatcher does nothing until that has gone: "
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
            await self._bury()
        async with self.store.read() as tx:  # one for all: this is done twice a second, beside gangs that train
            asked = await self._asked(tx)
        self._carry_to_gangs(asked)
        await self._adopt(asked.abandoned)
        await self._operations.begin(asked.operations)
        admission = Admission([], False)
        if asked.queued:
            admission = await admit(self.store, self.settings, self.owner, self._unreachable, self._walk)
        self._waiting = admission.waiting
        if admission.untold:
            self._wake.set()
        for lease in admission.leases:
            self._look_after(lease)

    async def _asked(self, tx: AsyncConnection) -> _Asked:
        tokens, reachable = self._running.keys(), self._unreachable is None
        faults = tokens and self.settings.fault_injection
        return _Asked(
            ending=await leases.ending(tx) if tokens else {},
            deliveries=[
                *(await fault_injection.deliveries(tx, tokens) if faults else ()),
                *(await step_traces.deliveries(tx, tokens) if tokens else ()),
            ],
            abandoned=await leases.abandoned(tx, _ADOPTIONS, self.settings.cluster) if reachable else (),
            operations=await operation_rows.free(tx, self._operations.room, self.settings.cluster)
            if reachable and self._operations.room
            else (),
            queued=await jobs.any_queued(tx),
        )

    def _carry_to_gangs(self, asked: _Asked) -> None:
        """End the gangs that are to end, for a cancellation or to make room; deliver what users ordered of the others."""
        for token in asked.ending.keys() & self._running.keys():
            self._running[token].attempt.end(asked.ending[token])
        for delivery in asked.deliveries:
            if running := self._running.get(delivery.token):
                running.attempt.deliver(delivery.gang, delivery.order)

    async def _bury(self) -> None:
        """Once: what this machine's dead dispatchers held need not wait until their leases expire."""
        if self._buried:
            return
        async with self.store.read() as tx:
            owners = {*await leases.owners(tx), *await operation_rows.owners(tx)}
        dead = [text for text in owners if (owner := Owner.parse(text)) is not None and owner.certainly_dead]
        if dead:
            async with self.store.write() as tx:
                await leases.release_all_of(tx, dead)
                await operation_rows.release_all_of(tx, dead)
        self._buried = True

    async def _adopt(self, abandoned: Sequence[str]) -> None:
        """Take over the jobs of dispatchers that are gone; their gangs are found by name."""
        for job_id in abandoned:
            lease = Lease(job_id, uuid4().hex, self.owner)
            async with self.store.write() as tx:
                taken = await leases.take(tx, lease, self.settings.lease_s)
            if taken:
                log.info("%s goes on under this dispatcher", job_id)
                self._look_after(lease)

    def _look_after(self, lease: Lease) -> None:
        attempt = Attempt(self.store, self.settings, self.cluster, lease)
        task = asyncio.create_task(attempt.run(), name=f"attempt of {lease.job_id}")
        self._running[lease.token] = _Running(attempt, task)
        task.add_done_callback(lambda done: self._ended(lease, done))

    def _ended(self, lease: Lease, task: "asyncio.Task[None]") -> None:
        self._running.pop(lease.token, None)
        self._look.set()
        self._wake.set()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, LeaseLost):
            log.info("%s", error)
        elif isinstance(error, DatabaseError):
            log.warning("looking after %s ends: %s", lease.job_id, error)
        elif error is not None:  # its lease runs out, and the job is taken up again where the database says it is
            log.error("looking after %s failed", lease.job_id, exc_info=error)

    async def _renew(self) -> None:
        await self._operations.renew()
        tokens = set(self._running)
        if not tokens:
            return
        async with self.store.write() as tx:
            held = await leases.renew(tx, tokens, self.settings.lease_s)
        for token in (tokens - held) & self._running.keys():
            self._running[token].task.cancel()

    async def _grow(self) -> None:
        """Let elastic jobs take devices that nobody else wants."""
        if self._running and self._seen and self._unreachable is None:
            await self._growth.look(self.store, self.settings, self._running.keys(), self.owner)

    async def _look_ahead(self) -> None:
        """Have the text of jobs that wait tokenised."""
        if self._waiting and self._seen and self._unreachable is None:
            await self._corpora.prepare_next()

    async def _sweep(self) -> None:
        """Clear away gangs that nobody waits for: of jobs that ended or went on to another attempt, and on our own head of unknown ones."""
        if not self._connected or self._other_owner is not None:
            return
        try:
            gangs = {name: job for name in await self.cluster.gangs() if (job := job_of(name)) is not None}
            async with self.store.read() as tx:  # after the gangs: a gang is made only after its row
                placed = await jobs.placements(tx, sorted({job_id for job_id, _ in gangs.values()}))
            strangers = {name for name, (job_id, _) in gangs.items() if job_id not in placed and not self._owns_cluster}
            self._tell_of(strangers)
            for name, (job_id, number) in gangs.items():
                if name in strangers:
                    continue
                state, attempt = placed.get(job_id, (None, None))
                if state not in HOLDING or attempt != number:
                    log.warning("sweeping %s, which no job waits for", name)
                    await self.cluster.close_gang(name)
        except ClusterError as error:
            log.warning("gangs without a job could not be swept: %s", error)

    @property
    def _owns_cluster(self) -> bool:
        """Whether nobody else can have gangs there; a cluster at an address may serve a control plane with another database."""
        return self.settings.ray_address is None

    def _tell_of(self, strangers: Set[str]) -> None:
        for name in sorted(strangers - self._strangers):
            log.warning("%s is of a job that this database does not know; it is left alone", name)
        self._strangers = strangers

    async def _leave(self) -> None:
        tokens = list(self._running)
        running = [each.task for each in self._running.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(self._operations.stop(), *running, return_exceptions=True)
        if not tokens and not self._seen:
            return
        try:
            async with asyncio.timeout(_RELEASE_S), self.store.write() as tx:
                await leases.release(tx, tokens)
                await clusters.leave(tx, self.owner)
        except (TimeoutError, DatabaseError) as error:  # then the leases expire
            log.warning("the leases could not be given back: %s", error)


async def _forever(
    work: Callable[[], Awaitable[None]], every_s: Callable[[], float], bell: asyncio.Event | None = None
) -> None:
    """Work again after so many seconds, or as soon as the bell rings."""
    bell, failures = bell or asyncio.Event(), FailureLog(log)
    while True:
        bell.clear()
        try:
            await work()
        except DatabaseError:  # logged by the store; whatever it is, work goes on once it has passed
            pass
        except Exception as error:  # noqa: BLE001  (top of the dispatcher's loops)
            failures.failed(type(error).__name__, f"the dispatcher's {work.__name__} failed; it goes on", error)
        else:
            for cause in failures.failing:
                failures.works(cause, f"The dispatcher's {work.__name__} works again [{cause}].")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(every_s()):
                await bell.wait()
