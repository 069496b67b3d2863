"""Counts incidents against the node of the failed rank, and cordons a node with too many of them.

Both happen in the transaction that stores the incident, so that each counts exactly once and the cordon is an event of the job that
caused it. A job or sweep that fails about as often on another node cordons none by itself: its next attempts avoid those that broke it.
"""

import logging
from typing import Final

from sqlalchemy import text
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import CordonEvent, IncidentEvent
from ..jobs import queued_job
from ..nodes import Fleet, fleet, kinds_of, machine_of
from ..policies.cordon import MEMORY_S, Limits, due, format_causes, is_last
from ..policies.queue import Start, Waiting, awaited_cores, decide
from ..policies.retry import INFRASTRUCTURE, OF_NO_NODE
from ..settings import Settings
from ..store import cordons, jobs, nodes

log = logging.getLogger(__name__)

#: Advisory lock id, the same in every dispatcher: two of them must not cordon the same node, or both of the last two nodes.
_LOCK: Final = 7_382_945_104

#: Each bundle of a gang's placement group has all nodes that it avoids in its label selector, for as long as the gang lives.
_MOST_AWAITED: Final = 64


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
    owners = [row["of"] for row in found]
    elsewhere = await cordons.owners_elsewhere(tx, node, {*owners}, limits.window_s, limits.of_one_owner)
    if not due(limits, owners, elsewhere):
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
    """The nodes on which the job's gang must not be placed now.

    Those that get no new gangs; and, while there is room elsewhere, those that broke the job repeatedly, and for a job on CPUs those for
    whose cores a job on GPUs may wait. A job whose own code fails does not wait for devices although some are free.
    """
    among, limits = await fleet(tx, settings.cluster), settings.rules.cordon
    cordoned = {*among.avoided}
    broken = await cordons.broken_for(tx, job["id"], limits.faults, limits.window_s) if limits.faults else set[str]()
    awaited = await _awaited(tx, settings, job, among) if job["device"] == "cpu" else set[str]()
    choices = [cordoned | more for more in (broken | awaited, broken, awaited) if more - cordoned]
    if not choices:
        return tuple(among.avoided)
    others = await _held(tx, settings, job)
    spares = job["spec"].get("policy", {}).get("spares", 0)
    again = Waiting(job["id"], job["world_size"], job["tensor"], job["device"], spares, **queued_job.wants(job["spec"]))
    for choice in choices:
        machines = [machine_of(row, settings, row["id"] in choice) for row in among.alive]
        if isinstance(decide([again], machines, others, None)[0], Start):
            return tuple(sorted(choice))
    return tuple(among.avoided)


async def _held(tx: AsyncConnection, settings: Settings, job: RowMapping) -> dict[str, int]:
    """Device → ranks of the other jobs."""
    return await jobs.held_ranks(tx, settings.cluster, settings.cpu_ranks_per_core, but=job["id"])


async def _awaited(tx: AsyncConnection, settings: Settings, job: RowMapping, among: Fleet) -> set[str]:
    """The nodes that `Pool` leaves to queued jobs that take cores beside their GPUs, and lack nothing else. Of many, the first ones."""
    shapes = [shape for shape in await jobs.shapes(tx) if Waiting.of(shape).cpus]
    if not shapes or not await jobs.any_wants_devices(tx, shapes, settings.cluster):
        return set()
    machines = [machine_of(row, settings, row["id"] in among.avoided) for row in among.alive]
    ids = sorted(
        among.alive[number]["id"] for number in awaited_cores(shapes, machines, await _held(tx, settings, job))
    )
    return {*ids[:_MOST_AWAITED]}
