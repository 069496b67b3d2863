"""The queue's policy carried out: who may start is leased and moved to `placing`, the others are told why they wait.

All in one short transaction that one dispatcher at a time may have, so that two of them never give the same devices away.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from sqlalchemy import text
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from . import capacity, forms
from .identity import gang_name
from .lifecycle import Word, move
from .nodes import Fleet, fleet, machine_of
from .queue import Decision, Start, Wait, Waiting, decide
from .settings import Settings
from .states import State
from .store import attempts, events, jobs, leases
from .store.engine import Store
from .store.leases import Lease

#: So many of the queue's front are looked at; as each waiting one holds up those behind it, more would change little.
FRONT = 200

#: Any number, the same in every dispatcher.
_LOCK = 7_382_945_103


@dataclass(frozen=True)
class Admission:
    """What one look at the queue led to: the leases of the jobs to start, and whether others wait."""

    leases: list[Lease]
    waiting: bool


async def admit(store: Store, settings: Settings, owner: str, unreachable: str | None) -> Admission:
    """Decide on the queue's front, where jobs wait. `unreachable`: why nothing can be started now, None when the cluster answers."""
    async with store.write() as tx:
        if tx.dialect.name == "postgresql":
            await tx.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        front = {row["id"]: row for row in await jobs.queued(tx, FRONT)}
        machines = await fleet(tx)
        decisions = await _decisions(tx, settings, list(front.values()), machines, unreachable)
        known = [row["id"] for row in machines.alive]
        started = [await _carry_out(tx, settings, owner, front[each.id], each, known) for each in decisions]
    taken = [lease for lease in started if lease is not None]
    return Admission(taken, len(taken) < len(decisions))


async def _decisions(
    tx: AsyncConnection,
    settings: Settings,
    front: Sequence[RowMapping],
    among: Fleet,
    unreachable: str | None,
) -> list[Decision]:
    if unreachable is not None:
        return [Wait(row["id"], "cluster_unreachable", unreachable) for row in front]
    waiting = [_waiting(row) for row in front]
    machines = [machine_of(row, settings, row["id"] in among.avoided) for row in among.alive]
    whole = await capacity.whole(tx, settings)
    return decide(waiting, machines, await jobs.held_ranks(tx), settings.max_ranks, whole)


def _waiting(row: RowMapping) -> Waiting:
    first, *others = forms.sizes(row)
    least = forms.smallest(row)
    return Waiting(row["id"], first, row["tensor"], row["wanted_device"], row["spares"], tuple(others), least)


async def _carry_out(
    tx: AsyncConnection, settings: Settings, owner: str, job: RowMapping, decision: Decision, known: list[str]
) -> Lease | None:
    if isinstance(decision, Start):
        return await _start(tx, settings, owner, job, decision, known)
    if (job["reason"], job["message"]) != (decision.reason, decision.message):
        await jobs.explain(tx, job["id"], decision.reason, decision.message)
        await events.append(tx, job["id"], [_waits(job, owner, decision)])
    return None


def _waits(job: RowMapping, owner: str, wait: Wait) -> Mapping[str, object]:
    data = {"state": State.QUEUED, "reason": wait.reason, "message": wait.message, "attempt": job["attempt"]}
    return {"attempt": job["attempt"], "kind": "state", "ts": time.time(), "actor": owner, "data": data}


async def _start(
    tx: AsyncConnection, settings: Settings, owner: str, job: RowMapping, start: Start, known: list[str]
) -> Lease | None:
    lease = Lease(job["id"], uuid4().hex, owner)
    if not await leases.take(tx, lease, settings.lease_s):
        return None
    now, number = time.time(), job["attempt"] + 1
    also = {"attempt": number, "device": start.device, "repairs": 0, "retry_at": 0.0}
    if start.world_size is not None:
        also |= await forms.begin(tx, job["id"], start.world_size, owner)
    await move(tx, job["id"], State.QUEUED, State.PLACING, Word(owner, now), token=lease.token, also=also)
    attempt = {"job_id": job["id"], "number": number, "gang": gang_name(job["id"], number), "device": start.device}
    await attempts.insert(tx, {**attempt, "nodes": known, "started_at": now})
    return lease
