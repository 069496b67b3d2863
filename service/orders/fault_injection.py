"""Faults that users ask for: stored as orders, carried to the gang by its dispatcher, and settled once, by the event that tells it.

A fault is meant for the attempt that runs when it is asked for; when that ends before, the fault is missed.
"""

import time
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import FaultEvent, to_json
from ...workers.messages.fault_request import OF_A_RANK, Kind
from ...workers.messages.fault_request import Fault as GangFault
from ..errors import FaultsDisabled, IdempotencyConflict, InvalidFault, JobNotRunning
from ..ids import new_fault_id
from ..queries.jobs import existing
from ..schemas.fault import Fault
from ..settings import Settings
from ..states import State
from ..store import events
from ..store import faults as rows
from ..store import jobs as job_rows
from ..store.engine import Store

#: What `slow-rank` does when it is not said.
BY_MS: Final = 50.0
FOR_S: Final = 20.0


@dataclass(frozen=True)
class Wanted:
    """A fault as it was asked for."""

    kind: Kind
    rank: int | None = None
    by_ms: float | None = None
    for_s: float | None = None


async def ask(
    store: Store, settings: Settings, job: str, wanted: Wanted, idempotency_key: str | None, actor: str
) -> Fault:
    """Store the order; the job's dispatcher sees it within `poll_s`. `job` is an id or a name.

    Raises FaultsDisabled, JobNotFound, JobNotRunning, InvalidFault, IdempotencyConflict; then nothing is stored.
    """
    if not settings.fault_injection:
        raise FaultsDisabled()
    async with store.write() as tx:
        found = await job_rows.lock(tx, (await existing(tx, job))["id"])
        assert found is not None
        known = await rows.by_key(tx, found["id"], idempotency_key) if idempotency_key else None
        if known is not None:
            return _replayed(known, _with_defaults(wanted))
        _check(found, wanted)
        return _record(await rows.insert(tx, _row(found, _with_defaults(wanted), idempotency_key, actor)))


def _row(job: RowMapping, wanted: Wanted, idempotency_key: str | None, actor: str) -> dict[str, Any]:
    now = time.time()
    mine = {"id": new_fault_id(now), "job_id": job["id"], "attempt": job["attempt"], "asked_at": now}
    return {**mine, **vars(wanted), "actor": actor, "idempotency_key": idempotency_key}


def _with_defaults(wanted: Wanted) -> Wanted:
    if wanted.kind != "slow-rank":
        return wanted
    by_ms = BY_MS if wanted.by_ms is None else wanted.by_ms
    return Wanted(wanted.kind, wanted.rank, by_ms, FOR_S if wanted.for_s is None else wanted.for_s)


def _replayed(row: RowMapping, wanted: Wanted) -> Fault:
    if Wanted(row["kind"], row["rank"], row["by_ms"], row["for_s"]) == wanted:
        return _record(row)
    raise IdempotencyConflict(
        f"This idempotency key belongs to {row['id']}, which is another fault.",
        field="Idempotency-Key",
        remedy="Use a new key for a new fault.",
    )


def _check(job: RowMapping, wanted: Wanted) -> None:
    if job["state"] != State.RUNNING:
        remedy = "Wait until it runs: shardyard watch JOB" if job["finished_at"] is None else "Submit it again."
        raise JobNotRunning(f"{job['id']} is {job['state']}; a fault strikes running jobs.", remedy=remedy)
    _check_rank(wanted, job["world_size"])
    for name in ("by_ms", "for_s"):
        if getattr(wanted, name) is not None and wanted.kind != "slow-rank":
            raise InvalidFault(f"{wanted.kind} has no {name}.", field=name, remedy="Leave it out, or use slow-rank.")
    if wanted.kind == "corrupt-checkpoint" and job["checkpoint"] is None:
        remedy = "Wait for its first: see train.checkpoint.every."
        raise InvalidFault(f"{job['id']} has no checkpoint yet.", field="kind", remedy=remedy)


def _check_rank(wanted: Wanted, world_size: int) -> None:
    ranks = f"0 to {world_size - 1}" if world_size > 1 else "0"
    if wanted.kind not in OF_A_RANK:
        if wanted.rank is not None:
            raise InvalidFault(f"{wanted.kind} is not of one rank.", field="rank", remedy="Leave it out.")
    elif wanted.rank is None:
        raise InvalidFault(f"{wanted.kind} needs a rank.", field="rank", remedy=f"Name one: {ranks}.")
    elif not 0 <= wanted.rank < world_size:
        raise InvalidFault(f"There is no rank {wanted.rank}.", field="rank", remedy=f"The job's ranks: {ranks}.")


def order_of(row: RowMapping) -> GangFault:
    """What the gang is told."""
    return GangFault(row["id"], row["kind"], row["rank"], row["by_ms"], row["for_s"])


async def settle(tx: AsyncConnection, job_id: str, event: FaultEvent, ts: float) -> FaultEvent | None:
    """The gang's event as it is stored, or None if the fault was settled before. Call only with the job's row locked."""
    row = await rows.settle(tx, job_id, event.id, ts)
    return None if row is None else _event(row, True, event.message, event.step)


async def miss_all(tx: AsyncConnection, job_id: str, attempt: int, actor: str, now: float) -> None:
    """The attempt ends: what was to strike it does not any more. Call only with the job's row locked."""
    message = "the attempt ended before it was told to be done"
    missed = [_event(row, False, message, None) for row in await rows.settle_all(tx, job_id, now)]
    same = {"attempt": attempt, "kind": FaultEvent.kind, "ts": now, "actor": actor}
    await events.append(tx, job_id, [{**same, "data": to_json(event)} for event in missed])


def _event(row: RowMapping, done: bool, message: str, step: int | None) -> FaultEvent:
    return FaultEvent(
        id=row["id"],
        fault=row["kind"],
        rank=row["rank"],
        by_ms=row["by_ms"],
        for_s=row["for_s"],
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
        by_ms=row["by_ms"],
        for_s=row["for_s"],
        actor=row["actor"],
        asked_at=row["asked_at"],
        settled_at=row["settled_at"],
    )
