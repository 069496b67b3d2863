"""Carries out the queue's policy: leases the jobs that may start and moves them to `placing`, stores for the others why they wait.

All happens in one short transaction that one dispatcher at a time may have, so that two never assign the same devices. Users may still
cancel, pause and reshard jobs that it has read: such a job is left for the next pass.
"""

import re
import time
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from sqlalchemy import text
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import StateEvent, to_json
from .. import capacity
from ..ids import gang_name
from ..jobs import elastic
from ..jobs.transitions import Cause, move
from ..nodes import fleet
from ..policies.queue import (
    Decision,
    Device,
    Inventory,
    Machine,
    Start,
    Wait,
    Waiting,
    decide,
    places,
    queues,
    reserving,
    turn,
)
from ..settings import Settings
from ..states import State
from ..store import attempts, clusters, events, jobs, leases
from ..store.engine import Store
from ..store.leases import Lease

#: Jobs at the front of each queue that are examined. As each waiting job blocks those behind it, more would change little.
FRONT = 200
#: Jobs behind the fronts that are explained in one transaction.
PAGE = 100

#: Advisory lock id, the same in every dispatcher.
_LOCK = 7_382_945_103


@dataclass
class Walk:
    """A dispatcher's position in explaining the jobs behind the fronts: among the new ones, and in the round over all."""

    newest: str = ""
    place: str = ""


@dataclass(frozen=True)
class Admission:
    """The result of one pass: the leases of the jobs to start, whether others wait, and whether some still lack an explanation."""

    leases: list[Lease]
    waiting: bool
    unexplained: bool = False


async def admit(
    store: Store, settings: Settings, owner: str, unreachable: str | None, walk: Walk | None = None
) -> Admission:
    """Decide on the front of each kind's queue. `unreachable`: why nothing can be started now; None if the cluster responds.

    A dispatcher that does not reach the cluster leaves the explanations to one that does.
    """
    walk = walk or Walk()
    async with store.write() as tx:
        await lock(tx)
        if unreachable is not None and (await clusters.fresh(tx)).get(settings.cluster, owner) != owner:
            return Admission([], waiting=True)
        others, unexplained = await _others(
            tx, walk, settings.cluster
        )  # first: a job submitted meanwhile is at a front, or explained next time
        cluster = await capacity.inventory(tx, settings, settings.cluster)
        shapes = await jobs.shapes(tx)
        stand = _stand(shapes, cluster, unreachable)
        front = await _front(tx, stand, cluster.machines, settings.cluster)
        held = await reserved(tx, settings, cluster.machines)
        decisions = _decisions(list(front.values()), cluster, held)
        known = [row["id"] for row in (await fleet(tx, settings.cluster)).alive]
        starts = [each for each in decisions if isinstance(each, Start)]
        started = [await _start(tx, settings, owner, front[each.id], each, known) for each in starts]
        behind = {row["id"]: row for row in others if row["id"] not in front}
        waits = [each for each in decisions if isinstance(each, Wait)]
        waits += [_wait(row, stand) for row in behind.values() if row["shape"] in stand]
        ours = await _ours(tx, settings, stand)
        rows = front | behind
        await _explain(
            tx, owner, rows, [each for each in waits if rows[each.id]["cluster"] or rows[each.id]["shape"] in ours]
        )
    return Admission([lease for lease in started if lease is not None], bool(waits), unexplained)


async def lock(tx: AsyncConnection) -> None:
    """Until the transaction's end, no other dispatcher gives devices to a job. Call it before a job's row is locked."""
    if tx.dialect.name == "postgresql":
        await tx.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})


async def reserved(tx: AsyncConnection, settings: Settings, machines: Sequence[Machine]) -> Mapping[str, int]:
    """Device → ranks of the gangs that may hold devices now, and those that jobs which save are to have in addition."""
    held = await jobs.held_ranks(tx, settings.cluster, settings.cpu_ranks_per_core)
    promised = await jobs.promised_ranks(tx, settings.cluster, settings.cpu_ranks_per_core)
    return reserving(machines, held, promised)


#: Shape → the device in whose queue its jobs are, or why they are in none.
_Stand = Mapping[str, Device | Wait]


def _stand(shapes: Collection[str], cluster: Inventory, unreachable: str | None) -> _Stand:
    if unreachable is not None:
        return dict.fromkeys(shapes, Wait("", "cluster_unreachable", unreachable))
    return queues(shapes, cluster)


async def _ours(tx: AsyncConnection, settings: Settings, stand: _Stand) -> Set[str]:
    """Shapes that this cluster's dispatchers explain: those that run best here. Of equal clusters, the first by name explains."""
    ours = set(stand)
    for name in await clusters.fresh(tx):
        if name != settings.cluster:
            there = queues(stand, await capacity.inventory(tx, settings, name))
            ours -= {one for one in stand if (_rank(there[one]), name) < (_rank(stand[one]), settings.cluster)}
    return ours


def _rank(place: Device | Wait) -> int:
    if not isinstance(place, Wait):
        return 0
    return {"waiting_for_nodes": 1, "too_many_ranks": 2}.get(place.reason, 3)


async def _front(
    tx: AsyncConnection, stand: _Stand, machines: Sequence[Machine], cluster: str
) -> dict[str, RowMapping]:
    """The jobs at the front of each queue, all in order of submission: jobs for other nodes of a kind are in another one.

    One whose last gang is still being removed keeps its place, though it cannot start yet: a job that has just saved to take more devices
    loses them to none that came later.
    """
    parts: dict[Any, list[str]] = {}
    for shape, nodes in places(
        {shape: at for shape, at in stand.items() if not isinstance(at, Wait)}, machines
    ).items():
        wants = Waiting.of(shape)
        parts.setdefault((stand[shape], nodes, wants.gpu, wants.within, wants.image), []).append(shape)
    found: list[RowMapping] = []
    for shapes in parts.values():
        found += await jobs.queued(tx, FRONT, shapes, cluster=cluster, closing=True)
    return {row["id"]: row for row in sorted(found, key=lambda row: str(row["id"]))}


def _decisions(front: Sequence[RowMapping], cluster: Inventory, held: Mapping[str, int]) -> list[Decision]:
    waiting = [_waiting(row) for row in front]
    return decide(waiting, cluster.machines, held, cluster.max_ranks, cluster.whole)


def _waiting(row: RowMapping) -> Waiting:
    first, *others = elastic.sizes(row)
    least = elastic.smallest(row)
    found = Waiting(row["id"], first, row["tensor"], row["wanted_device"], row["spares"], tuple(others), least)
    return replace(found, gpu=row["gpu"], within=row["within"] or None, cpus=row["cpus"], image=row["image"])


async def _others(tx: AsyncConnection, walk: Walk, cluster: str) -> tuple[list[RowMapping], bool]:
    """Jobs anywhere in the queue, new ones and a part of all, and whether there are more new ones."""
    new = await jobs.queued(tx, PAGE, after=walk.newest, cluster=cluster)
    again = await jobs.queued(tx, PAGE, after=walk.place, cluster=cluster)
    walk.newest = new[-1]["id"] if new else walk.newest
    walk.place = again[-1]["id"] if len(again) == PAGE else ""
    return [*new, *again], len(new) == PAGE


def _wait(row: RowMapping, stand: _Stand) -> Wait:
    """The explanation of a job that is not at the front of its queue."""
    place = stand[row["shape"]]
    return replace(place, id=row["id"]) if isinstance(place, Wait) else turn(row["id"])


async def _explain(tx: AsyncConnection, owner: str, rows: Mapping[str, RowMapping], waits: Sequence[Wait]) -> None:
    """Store why the jobs wait, for those whose explanation changed. It is an event if more than numbers changed: those may each second."""
    by_reason: dict[tuple[str, str, bool], list[str]] = {}
    for wait in waits:
        reason, message = rows[wait.id]["reason"], rows[wait.id]["message"]
        if (reason, message) != (wait.reason, wait.message):
            is_event = (reason, _without_numbers(message or "")) != (wait.reason, _without_numbers(wait.message))
            by_reason.setdefault((wait.reason, wait.message, is_event), []).append(wait.id)
    for (reason, message, is_event), ids in by_reason.items():
        changed = await jobs.explain(tx, ids, reason, message, events=int(is_event))
        if is_event:
            await events.insert_all(tx, [_explained(row, owner, reason, message) for row in changed])


def _without_numbers(message: str) -> str:
    return re.sub(r"\d+", "", message)


def _explained(row: RowMapping, owner: str, reason: str, message: str) -> dict[str, object]:
    event = StateEvent(state=State.QUEUED, reason=reason, message=message, attempt=row["attempt"])
    where = {"job_id": row["id"], "position": row["event_pos"], "attempt": row["attempt"]}
    return {**where, "kind": event.kind, "ts": time.time(), "actor": owner, "data": to_json(event)}


async def _start(
    tx: AsyncConnection, settings: Settings, owner: str, job: RowMapping, start: Start, known: list[str]
) -> Lease | None:
    """The lease of the job, which is placed now. None if it is no longer as it was when it was read."""
    lease = Lease(job["id"], uuid4().hex, owner)
    if not await leases.take(tx, lease, settings.lease_s, {State.QUEUED}, job["event_pos"]):
        return None
    now, number = time.time(), job["attempt"] + 1
    also = {"attempt": number, "device": start.device, "repairs": 0, "retry_at": 0.0, "cluster": settings.cluster}
    if start.world_size is not None:
        also |= await elastic.begin(tx, job["id"], start.world_size, owner)
    await move(tx, job["id"], State.QUEUED, State.PLACING, Cause(owner, now), token=lease.token, also=also)
    attempt = {"job_id": job["id"], "number": number, "gang": gang_name(job["id"], number), "device": start.device}
    attempt["cluster"] = settings.cluster
    devices = (start.world_size or job["world_size"]) + job["spares"]
    await attempts.insert(tx, {**attempt, "nodes": known, "devices": devices, "started_at": now})
    return lease
