"""Commands beside ranks on request: stored as orders, delivered to the gang by its job's dispatcher, settled once, by their events.

A command is for the attempt that runs when it is requested. If that attempt ends first, it is killed or never runs. A rank has one
open command at a time, because its output is a stream of the rank's log. Off unless `SHARDYARD_EXEC` allows it.
"""

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import ExecEvent
from ...workers.messages.exec_request import GATE, MOST_BYTES
from ...workers.messages.exec_request import Exec as GangExec
from ..jobs.transitions import Cause
from ..profile_errors import CommandTooLong, ExecDisabled, ExecOpen
from ..schemas.exec import Exec, ExecRequest, Execs
from ..settings import Settings
from ..store import orders
from ..store.engine import Store
from ..store.profile_tables import execs
from . import order_frame
from .order_frame import Delivery, OrderKind
from .rank_profiles import refuse_unknown_rank

#: Records of commands that are kept when they are settled.
KEPT: Final = 1000


async def create(store: Store, settings: Settings, job: str, request: ExecRequest, key: str | None, actor: str) -> Exec:
    """Store the command; the job's dispatcher sees it within `poll_s`. `job` is an id or a name, `key` an idempotency key.

    Raises ExecDisabled, JobNotFound, JobNotRunning, ProfileRankUnknown, CommandTooLong, ExecOpen, IdempotencyConflict; then nothing is
    stored.
    """
    if not settings.exec:
        raise ExecDisabled()
    async with store.write() as tx:
        _, row = await order_frame.create(tx, _KIND, job, request, key, actor)
    return _record(row)


async def _prepare(tx: AsyncConnection, job: RowMapping, request: ExecRequest) -> dict[str, Any]:
    order_frame.refuse_unless_running(job, "commands run beside ranks of running jobs only")
    refuse_unknown_rank(job, request.rank)
    if sum(len(part.encode()) + 1 for part in request.command) > MOST_BYTES:
        remedy = "Put the text into a file that the job's code has."
        raise CommandTooLong(f"The command has more than {MOST_BYTES:,} bytes.", field="command", remedy=remedy)
    for row in await orders.open_of(tx, execs, job["id"]):
        if row["rank"] == request.rank and row["command"][0] != GATE:
            remedy = "Wait for its end, or name another rank."
            raise ExecOpen(f"{row['id']} runs beside rank {request.rank}.", field="rank", remedy=remedy)
    return {"attempt": job["attempt"]}


async def deliveries(tx: AsyncConnection, tokens: Collection[str]) -> list[Delivery]:
    """The open commands of the gangs under these leases, oldest first."""
    return await order_frame.deliveries(tx, execs, tokens, _message)


def _message(row: RowMapping) -> GangExec:
    return GangExec(row["id"], row["rank"], tuple(row["command"]), row["seconds"])


async def settle(tx: AsyncConnection, job_id: str, event: ExecEvent, ts: float) -> ExecEvent | None:
    """The gang's event as it is stored, or None if the command was settled before. Call only with the job's row locked."""
    outcome = {"settled_at": ts, "status": event.status, "message": event.message}
    row = await orders.settle(tx, execs, job_id, event.id, outcome)
    return None if row is None else _event(row)


async def settle_all(
    tx: AsyncConnection, job: RowMapping, cause: Cause, why: str = "the attempt ended before the command"
) -> None:
    """Settle a job's open commands, as those of an ended attempt. Call only with the job's row locked."""
    await order_frame.settle_all(tx, execs, job, cause, {"message": why}, _event)


def _event(row: RowMapping) -> ExecEvent:
    return ExecEvent(
        id=row["id"],
        rank=row["rank"],
        command=tuple(row["command"]),
        status=row["status"],
        message=row["message"],
        asked_by=row["actor"],
        asked_at=row["asked_at"],
    )


async def page(store: Store, job: str, *, before: str | None = None, limit: int = 20) -> Execs:
    """Commands beside ranks of a job (id or name) below the id `before`, newest first. Raises JobNotFound, InvalidCursor."""
    async with store.read() as tx:
        _, rows, after = await order_frame.page(tx, _KIND, job, before, limit)
    return Execs(items=[_record(row) for row in rows], next=after)


def _record(row: RowMapping) -> Exec:
    names = ("id", "attempt", "rank", "command", "seconds", "status", "message", "actor", "asked_at", "settled_at")
    return Exec(job=row["job_id"], **{name: row[name] for name in names})


_KIND: Final = OrderKind("exec", execs, _prepare, keep_settled=KEPT - 1)
