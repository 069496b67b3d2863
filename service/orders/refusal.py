"""The failure of orders that no gang carries out: of a kind that its dispatcher may not send, or that an earlier version does not know."""

import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Table
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import ExecEvent, FaultEvent, ProfileEvent, TraceFinishedEvent, to_json
from ...workers.messages.exec_request import Exec
from ...workers.messages.fault_request import Fault
from ...workers.messages.profile_request import Profile
from ..cluster.interface import UserOrder
from ..jobs.transitions import Cause
from ..policies.limits import ArtifactLimits
from ..settings import Settings
from ..store import events, jobs, orders
from ..store.engine import Store
from ..store.profile_tables import execs
from ..store.tables import faults
from . import fault_injection, rank_commands, rank_profiles, step_traces

_MESSAGE = "an earlier version of Shardyard started this attempt and does not know it; a later attempt does"

SettleAll = Callable[[AsyncConnection, RowMapping, Cause, str], Awaitable[None]]

#: Settings that are needed for a kind of orders, its table, and the settlement and message of such an order where the setting is off.
_NEEDED: Final[tuple[tuple[str, Table, SettleAll, str], ...]] = (
    (
        "exec",
        execs,
        rank_commands.settle_all,
        "SHARDYARD_EXEC is off for the job's dispatcher, which sends no commands",
    ),
    (
        "fault_injection",
        faults,
        fault_injection.settle_all,
        "SHARDYARD_FAULT_INJECTION is off for the job's dispatcher",
    ),
)


@dataclass(frozen=True)
class Forbidden:
    """The open orders of one kind of a job that the dispatcher with its lease may not send."""

    job_id: str
    token: str
    settle_all: SettleAll
    why: str


async def forbidden(tx: AsyncConnection, settings: Settings, tokens: Collection[str]) -> list[Forbidden]:
    """What a dispatcher with these settings may not send of the open orders of the gangs under these leases."""
    found = []
    for setting, table, settle_all, why in _NEEDED:
        if tokens and not getattr(settings, setting):
            jobs_of = {(row["job_id"], row["lease_token"]) for row in await orders.open_under(tx, table, tokens)}
            found += [Forbidden(job_id, token, settle_all, why) for job_id, token in sorted(jobs_of)]
    return found


async def refuse(store: Store, found: Collection[Forbidden], actor: str) -> None:
    """Settle what the dispatcher `actor` may not send: no later one must carry it out, and its users wait."""
    for one in found:
        async with store.write() as tx:
            job = await jobs.locked(tx, one.job_id, one.token)
            if job is not None:
                await one.settle_all(tx, job, Cause(actor, time.time()), one.why)


async def settle(tx: AsyncConnection, job: RowMapping, order: UserOrder, cause: Cause, limits: ArtifactLimits) -> None:
    """Settle `order` as failed, with its event, unless that was done. Call only with the job's row locked."""
    settled: ExecEvent | FaultEvent | ProfileEvent | TraceFinishedEvent | None
    match order:
        case Fault():
            fault = FaultEvent(id=order.id, fault=order.kind, rank=order.rank, done=False, message=_MESSAGE)
            settled = await fault_injection.settle(tx, job["id"], fault, cause.now)
        case Exec():
            command = ExecEvent(id=order.id, rank=order.rank, message=_MESSAGE)
            settled = await rank_commands.settle(tx, job["id"], command, cause.now)
        case Profile():
            profile = ProfileEvent(id=order.id, profile=order.kind, rank=order.rank, done=False, message=_MESSAGE)
            settled = await rank_profiles.settle(tx, job["id"], profile, cause.now, run=0, limits=limits)
        case _:
            trace = TraceFinishedEvent(id=order.id, done=False, message=_MESSAGE, steps=None)
            settled = await step_traces.settle(tx, job["id"], trace, cause.now)
    if settled is not None:
        event = {"attempt": job["attempt"], "ts": cause.now, "actor": cause.actor, "kind": settled.kind}
        await events.append(tx, job["id"], [event | {"data": to_json(settled)}])
