"""Counts incidents against the node of the failed rank, and cordons a node with too many of them.

Both happen in the transaction that stores the incident, so that each counts exactly once and the cordon is an event of the job that
caused it.
"""

import logging
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import CordonEvent, IncidentEvent
from ..nodes import kinds_of
from ..policies.cordon import MEMORY_S, Limits, due, format_causes, is_last
from ..policies.retry import INFRASTRUCTURE, OF_NO_NODE
from ..store import cordons, nodes

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
    causes = await cordons.causes(tx, node, limits.window_s)
    return await _cordon(tx, node, format_causes(causes, limits), limits) if due(limits, len(causes)) else None


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
