"""Checkpoint operations: stored when a user asks, run by a dispatcher (`operation_runner.py`), settled once.

A job's state does not matter: ended ones keep their checkpoints. What is asked while the same waits or runs already is that same
operation, so that no two write one folder. Nothing of it is told as an event, since the story of a job that has ended is over.
"""

import re
import time
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.spec import TrainSpec
from ...workers.storage.uri import below
from ...workers.tasks.checkpoint_task import Dtype, Kind
from ...workers.tasks.checkpoint_task import Operation as GangOperation
from ..errors import (
    CheckpointNotFound,
    ExportUnderway,
    IdempotencyConflict,
    InvalidCursor,
    OperationNotFound,
    TooManyOperations,
)
from ..ids import new_operation_id
from ..queries import checkpoint_catalogue
from ..queries.jobs import existing
from ..schemas.operation import Operation, Operations
from ..states import FINAL, State
from ..store import events
from ..store import jobs as job_rows
from ..store import operations as rows
from ..store.engine import Store

#: Operations of a job that may wait or run, and that are kept when they are settled.
MOST_OPEN: Final = 20
KEPT: Final = 100

#: What an export has that was not asked for another type.
DTYPE: Final = "fp32"

_ID = re.compile(r"op-[0-9a-z]{26}")


@dataclass(frozen=True)
class Wanted:
    """What to do with the checkpoint at place `n` of the job's story; `dtype` of an export's weights."""

    kind: Kind
    n: int
    dtype: Dtype | None = None


async def ask(store: Store, job: str, wanted: Wanted, idempotency_key: str | None, actor: str) -> Operation:
    """Store the operation; a dispatcher sees it within `poll_s`. `job` is an id or a name.

    Raises JobNotFound, CheckpointNotFound, CheckpointGone, CheckpointDamaged, ExportUnderway, TooManyOperations, IdempotencyConflict; then
    nothing is stored.
    """
    async with store.write() as tx:
        found = await job_rows.lock(tx, (await existing(tx, job))["id"])
        assert found is not None
        known = await rows.by_key(tx, found["id"], idempotency_key) if idempotency_key else None
        if known is not None:
            return _replayed(known, wanted)
        row = await _row(tx, found, wanted)
        waiting = await rows.open_of(tx, found["id"])
        same = next((one for one in waiting if _what(one) == _what(row)), None)
        if same is not None:
            return _record(same)
        if len(waiting) >= MOST_OPEN:
            message = f"{len(waiting)} operations of {found['id']} wait or run already."
            raise TooManyOperations(message, field="job", remedy="Ask again when some of them have ended.")
        return _record(await rows.insert(tx, row | {"actor": actor, "idempotency_key": idempotency_key}, KEPT))


async def _row(tx: AsyncConnection, job: RowMapping, wanted: Wanted) -> dict[str, Any]:
    told = await events.at(tx, job["id"], wanted.n)
    if told is None or told["kind"] != "checkpoint":
        remedy = f"See which there are, each with its n: GET /v1/jobs/{job['id']}/checkpoints"
        raise CheckpointNotFound(f"{job['id']} has told of no checkpoint {wanted.n}.", field="n", remedy=remedy)
    await checkpoint_catalogue.refuse_unusable(tx, job["id"], int(told["data"]["step"]), "n")
    now, step, path = time.time(), int(told["data"]["step"]), str(told["data"]["path"])
    if wanted.kind == "export" and wanted.dtype == DTYPE:
        _refuse_underway(job, step)
    out = _out(path, step, str(wanted.dtype)) if wanted.kind == "export" else None
    what = {"kind": wanted.kind, "n": wanted.n, "step": step, "path": path, "out": out, "dtype": wanted.dtype}
    return {"job_id": job["id"], "id": new_operation_id(now), **what, "state": "waiting", "asked_at": now}


def _out(path: str, step: int, dtype: str) -> str:
    """Beside the checkpoint, where a job that has `checkpoint.export` writes its own; of another type, in a folder of its own."""
    suffix = "" if dtype == DTYPE else f"-{dtype}"
    return below(path.rpartition("/")[0], f"export-{step:08d}{suffix}")


def _refuse_underway(job: RowMapping, step: int) -> None:
    """Two writers of one folder in a bucket would mix."""
    train = TrainSpec.model_validate(job["spec"]["train"])
    if train.checkpoint.export and step == train.steps and State(job["state"]) not in FINAL:
        message = f"{job['id']} exports step {step} itself (checkpoint.export), before it ends."
        raise ExportUnderway(message, field="n", remedy="Wait for the job's end.")


def _what(row: Any) -> tuple[Any, ...]:
    return row["kind"], row["path"], row["dtype"]


def _replayed(row: RowMapping, wanted: Wanted) -> Operation:
    if Wanted(row["kind"], row["n"], row["dtype"]) == wanted:
        return _record(row)
    raise IdempotencyConflict(
        f"This idempotency key belongs to {row['id']}, which is another operation.",
        field="Idempotency-Key",
        remedy="Use a new key for a new operation.",
    )


def order_of(row: RowMapping) -> GangOperation:
    """What the cluster is told."""
    return GangOperation(row["id"], row["kind"], row["path"], row["out"], row["dtype"])


async def operations(store: Store, job: str, *, before: str | None = None, limit: int = 20) -> Operations:
    """Of a job (id or name), those that were asked for before the operation `before`, newest first. Raises JobNotFound, InvalidCursor."""
    if before is not None and _ID.fullmatch(before) is None:
        remedy = "Use `next` of the page before."
        raise InvalidCursor(f"{before[:80]!r} is not an operation.", field="before", remedy=remedy)
    async with store.read() as tx:
        found = await existing(tx, job)
        page = await rows.before(tx, found["id"], before, limit + 1)
    items = [_record(row) for row in page[:limit]]
    return Operations(items=items, next=items[-1].id if len(page) > limit else None)


async def operation(store: Store, job: str, operation_id: str) -> Operation:
    """One of a job (id or name). Raises JobNotFound, OperationNotFound."""
    async with store.read() as tx:
        found = await existing(tx, job)
        row = await rows.get(tx, found["id"], operation_id) if _ID.fullmatch(operation_id) else None
    if row is None:
        remedy = f"A job keeps its newest {KEPT}: GET /v1/jobs/{found['id']}/operations"
        message = f"{found['id']} has no operation {operation_id[:80]!r}."
        raise OperationNotFound(message, field="operation", remedy=remedy)
    return _record(row)


def _record(row: RowMapping) -> Operation:
    return Operation(
        id=row["id"],
        job=row["job_id"],
        kind=row["kind"],
        n=row["n"],
        step=row["step"],
        path=row["path"],
        dtype=row["dtype"],
        state=row["state"],
        verified=row["result"] if row["kind"] == "verify" else None,
        exported=row["result"] if row["kind"] == "export" else None,
        error=row["error"],
        actor=row["actor"],
        asked_at=row["asked_at"],
        started_at=row["started_at"],
        settled_at=row["settled_at"],
    )
