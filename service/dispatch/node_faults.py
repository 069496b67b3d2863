"""Counts incidents against the node of the failed rank, and cordons a node with too many of them.

Both happen in the transaction that stores the incident, so that each counts exactly once and the cordon is an event of the job that
caused it. A node that failed only one job, or one sweep, is not cordoned, but avoided by its next attempts.
"""

import logging
from typing import Final

from sqlalchemy import text
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import CordonEvent, IncidentEvent
from ..jobs import queued_job
from ..nodes import fleet, kinds_of, machine_of
from ..policies.cordon import MEMORY_S, Limits, due, format_causes, is_last
from ..policies.queue import Start, Waiting, decide
from ..policies.retry import INFRASTRUCTURE, OF_NO_NODE
from ..settings import Settings
from ..store import cordons, jobs, nodes

log = logging.getLogger(__name__)

#: Advisory lock id, the same in every dispatcher: two of them must not cordon the same node, or both of the last two nodes.
_LOCK: Final = 7_382_945_104


async def attribute_fault(
    tx: AsyncConnection, job_id: str, attempt: int, incident: IncidentEvent, limits: Limits
) -> CordonEvent | None:
    """Count the incident against its node. Returns the cordon if the count reached the limit, else None."""
    node, cause = incident.node, incident.cause
    if not limits.faults or node is None or cause not in INFRASTRUCTURE - OF_NO_NODE:
        return None
    if tx.dialect.name == "postgresql":
        await tx.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    fault = {"node": node, "job_id": job_id, "attempt": attempt, "cause": cause}
    if not await cordons.note(tx, fault, limits.window_s):
        return None
    found = await cordons.causes(tx, node, limits.window_s)
    if not due(limits, [row["of"] for row in found]):
        return None
    return await _cordon(tx, node, format_causes([row["cause"] for row in found], limits), limits)


async def _cordon(tx: AsyncConnection, node: str, message: str, limits: Limits) -> CordonEvent | None:
    held = await cordons.holding(tx)
    if node in held:
        return None
    rows = await nodes.all_nodes(tx)
    mine = {row["cluster"] for row in rows if row["id"] == node}
    alive = {row["id"]: kinds_of(row) for row in rows if row["alive"] and row["cluster"] in mine}
    if is_last(node, alive, held):
        log.warning("node %s had %s; it stays in use, because it is the last of its kind", node, message)
        note = f"{message}; it stays in use, because it is the last of its kind"
        return CordonEvent(node=node, until=None, message=note)
    seconds = limits.lasts_s(await cordons.earlier(tx, node, MEMORY_S))
    values = {"node": node, "by_hand": False, "actor": "faults", "message": message}
    row = await cordons.begin(tx, values, seconds)
    log.warning("node %s is cordoned for %.0f s: %s", node, seconds, message)
    return CordonEvent(node=node, until=row["until"], message=message)


async def avoided(tx: AsyncConnection, settings: Settings, job: RowMapping) -> tuple[str, ...]:
    """The nodes on which the job's gang must not be placed now: those that get no new gangs, and those that broke the job repeatedly.

    The latter only while there is room elsewhere. Otherwise a job whose own code fails would wait for devices although some are free.
    """
    among, limits = await fleet(tx, settings.cluster), settings.rules.cordon
    own = await cordons.broken_for(tx, job["id"], limits.faults, limits.window_s) if limits.faults else set[str]()
    both = own | {*among.avoided}
    if len(both) == len(among.avoided):
        return tuple(among.avoided)
    machines = [machine_of(row, settings, row["id"] in both) for row in among.alive]
    held, device = await jobs.held_ranks(tx, settings.cluster), job["device"]
    spares = job["spec"].get("policy", {}).get("spares", 0)
    again = Waiting(job["id"], job["world_size"], job["tensor"], device, spares, **queued_job.wants(job["spec"]))
    others = {**held, device: held.get(device, 0) - again.devices}
    (decision,) = decide([again], machines, others, None)
    return tuple(sorted(both) if isinstance(decision, Start) else among.avoided)
