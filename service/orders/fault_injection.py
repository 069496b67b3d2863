"""Faults on request: stored as orders, delivered to the gang by its job's dispatcher, settled once, by the event that reports them.

A fault is for the attempt that runs when it is requested. If that attempt ends first, the fault is missed.
"""

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import FaultEvent
from ...workers.messages.fault_request import OF_A_RANK
from ...workers.messages.fault_request import Fault as GangFault
from ..errors import FaultsDisabled, InvalidFault
from ..jobs.transitions import Cause
from ..schemas.fault import Fault, FaultRequest
from ..settings import Settings
from ..store import orders
from ..store.engine import Store
from ..store.tables import faults
from . import order_frame
from .order_frame import Delivery, OrderKind

#: Defaults of `slow-rank`.
DELAY_MS: Final = 50.0
DURATION_S: Final = 20.0


async def create(
    store: Store, settings: Settings, job: str, request: FaultRequest, key: str | None, actor: str
) -> Fault:
    """Store the fault; the job's dispatcher sees it within `poll_s`. `job` is an id or a name, `key` an idempotency key.

    Raises FaultsDisabled, JobNotFound, JobNotRunning, InvalidFault, IdempotencyConflict; then nothing is stored.
    """
    if not settings.fault_injection:
        raise FaultsDisabled()
    async with store.write() as tx:
        _, row = await order_frame.create(tx, _KIND, job, _with_defaults(request), key, actor)
    return _record(row)


def _with_defaults(request: FaultRequest) -> FaultRequest:
    if request.kind != "slow-rank":
        return request
    delay_ms = DELAY_MS if request.delay_ms is None else request.delay_ms
    return request.model_copy(
        update={"delay_ms": delay_ms, "duration_s": DURATION_S if request.duration_s is None else request.duration_s}
    )


async def _prepare(_tx: AsyncConnection, job: RowMapping, request: FaultRequest) -> dict[str, Any]:
    order_frame.refuse_unless_running(job, "faults can be injected only into running jobs")
    _check_rank(request, job["world_size"])
    for name in ("delay_ms", "duration_s"):
        if getattr(request, name) is not None and request.kind != "slow-rank":
            raise InvalidFault(f"{request.kind} has no {name}.", field=name, remedy="Leave it out, or use slow-rank.")
    if request.kind == "slow-rank" and "command" in job["spec"]:
        remedy = "Use hang-rank or kill-rank."
        raise InvalidFault(f"{job['id']} runs a program, whose steps cannot be slowed.", field="kind", remedy=remedy)
    if request.kind == "corrupt-checkpoint" and job["checkpoint"] is None:
        saves = "shardyard.checkpoint in the program" if "command" in job["spec"] else "train.checkpoint.every"
        remedy = f"Wait for the job's first checkpoint: see {saves}."
        raise InvalidFault(f"{job['id']} has no checkpoint yet.", field="kind", remedy=remedy)
    return {"attempt": job["attempt"]}


def _check_rank(request: FaultRequest, world_size: int) -> None:
    ranks = f"0 to {world_size - 1}" if world_size > 1 else "0"
    if request.kind not in OF_A_RANK:
        if request.rank is not None:
            raise InvalidFault(f"{request.kind} does not apply to a single rank.", field="rank", remedy="Leave it out.")
    elif request.rank is None:
        raise InvalidFault(f"{request.kind} needs a rank.", field="rank", remedy=f"Name one: {ranks}.")
    elif not 0 <= request.rank < world_size:
        raise InvalidFault(f"There is no rank {request.rank}.", field="rank", remedy=f"The job's ranks: {ranks}.")


async def deliveries(tx: AsyncConnection, tokens: Collection[str]) -> list[Delivery]:
    """The open faults of the gangs under these leases, oldest first."""
    return await order_frame.deliveries(tx, faults, tokens, _message)


def _message(row: RowMapping) -> GangFault:
    return GangFault(row["id"], row["kind"], row["rank"], row["delay_ms"], row["duration_s"])


async def settle(tx: AsyncConnection, job_id: str, event: FaultEvent, ts: float) -> FaultEvent | None:
    """The gang's event as it is stored, or None if the fault was settled before. Call only with the job's row locked."""
    row = await orders.settle(tx, faults, job_id, event.id, {"settled_at": ts})
    return None if row is None else _event(row, event.done, event.message, event.step)


async def settle_all(
    tx: AsyncConnection,
    job: RowMapping,
    cause: Cause,
    why: str = "the attempt ended before the gang reported this fault",
) -> None:
    """Settle a job's open faults as missed, as those of an ended attempt. Call only with the job's row locked."""
    await order_frame.settle_all(tx, faults, job, cause, {}, lambda row: _event(row, False, why, None))


def _event(row: RowMapping, done: bool, message: str, step: int | None) -> FaultEvent:
    return FaultEvent(
        id=row["id"],
        fault=row["kind"],
        rank=row["rank"],
        delay_ms=row["delay_ms"],
        duration_s=row["duration_s"],
        done=done,
        message=message,
        step=step,
        asked_by=row["actor"],
        asked_at=row["asked_at"],
    )


def _record(row: RowMapping) -> Fault:
    return Fault(
        id=row["id"],
        job=row["job_id"],
        attempt=row["attempt"],
        kind=row["kind"],
        rank=row["rank"],
        delay_ms=row["delay_ms"],
        duration_s=row["duration_s"],
        actor=row["actor"],
        asked_at=row["asked_at"],
        settled_at=row["settled_at"],
    )


_KIND: Final = OrderKind("fault", faults, _prepare)
