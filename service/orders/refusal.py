"""The failure of an order that a gang does not know, because an earlier version of Shardyard started it."""

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import ExecEvent, FaultEvent, ProfileEvent, TraceFinishedEvent, to_json
from ...workers.messages.exec_request import Exec
from ...workers.messages.fault_request import Fault
from ...workers.messages.profile_request import Profile
from ..cluster.interface import UserOrder
from ..jobs.transitions import Cause
from ..policies.limits import ArtifactLimits
from ..store import events
from . import fault_injection, rank_commands, rank_profiles, step_traces

_MESSAGE = "an earlier version of Shardyard started this attempt and does not know it; a later attempt does"


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
