"""Checkpoint operations on request: stored as orders, run by a dispatcher (`operation_runner.py`), settled once.

The state of the job does not matter: ended jobs keep their checkpoints. A request for what an open operation does returns that operation,
so that no two tasks write one folder. Operations append no events, because an ended job receives no further events.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.storage.uri import below
from ...workers.tasks.checkpoint_task import Dtype, Kind
from ...workers.tasks.checkpoint_task import Operation as GangOperation
from ..errors import CheckpointNotFound, ExportUnderway, ExportUnsupported, OperationNotFound, TooManyOperations
from ..model_errors import CheckpointInModels, PinUnderway
from ..queries import checkpoint_catalogue
from ..queries.orders import find
from ..schemas.operation import Operation, Operations
from ..states import FINAL, State
from ..store import events, models, orders
from ..store.engine import Store
from ..store.tables import operations
from . import order_frame
from .order_frame import OrderKind

#: The most operations of a job that may be open, and that are kept when they are settled.
MOST_OPEN: Final = 20
KEPT: Final = 100
_PINS: Final = ("pin", "unpin")

#: The default type of an export's weights.
DTYPE: Final = "fp32"


@dataclass(frozen=True)
class OperationRequest:
    """The operation on the checkpoint at `position` in the job's history; `dtype` is the type of an export's weights."""

    kind: Kind
    position: int
    dtype: Dtype | None = None


async def create(store: Store, job: str, request: OperationRequest, key: str | None, actor: str) -> Operation:
    """Store the operation; a dispatcher sees it within `poll_s`. `job` is an id or a name, `key` an idempotency key.

    Raises JobNotFound, CheckpointNotFound, CheckpointDeleted, CheckpointCorrupt, ExportUnsupported, ExportUnderway, PinUnderway,
    CheckpointInModels, TooManyOperations, IdempotencyConflict; then nothing is stored.
    """
    async with store.write() as tx:
        return await create_in(tx, job, request, key, actor)


async def create_in(tx: AsyncConnection, job: str, request: OperationRequest, key: str | None, actor: str) -> Operation:
    """As `create`, in a transaction that does more."""
    _, row = await order_frame.create(tx, _KIND, job, request, key, actor)
    return _record(row)


async def _prepare(tx: AsyncConnection, job: RowMapping, request: OperationRequest) -> dict[str, Any] | RowMapping:
    """The columns of a new operation, or the open one that does the same."""
    columns = await _columns(tx, job, request)
    same = (request.kind, columns["path"], request.dtype)
    open_ones = await orders.open_of(tx, operations, job["id"])
    for row in open_ones:
        if (row["kind"], row["path"], row["dtype"]) == same:
            return row
    if request.kind in _PINS:
        _refuse_other_pin(open_ones, request.kind, str(columns["path"]), "position")
    if len(open_ones) >= MOST_OPEN:
        message = f"{len(open_ones)} operations of {job['id']} are pending or running."
        raise TooManyOperations(message, field="job", remedy="Repeat the request when some of them have ended.")
    return columns


async def _columns(tx: AsyncConnection, job: RowMapping, request: OperationRequest) -> dict[str, Any]:
    event = await events.at(tx, job["id"], request.position)
    if event is None or event["kind"] != "checkpoint":
        remedy = f"List the checkpoints, each with its position: GET /v1/jobs/{job['id']}/checkpoints"
        raise CheckpointNotFound(
            f"{job['id']} reported no checkpoint {request.position}.", field="position", remedy=remedy
        )
    step, path = int(event["data"]["step"]), str(event["data"]["path"])
    if request.kind == "unpin":  # also of a corrupt one, which only then makes room
        await _refuse_named(tx, job["id"], step)
    else:
        await checkpoint_catalogue.refuse_unusable(tx, job["id"], step, "position", again=request.kind == "verify")
    if request.kind == "export" and "command" in job["spec"]:
        message = f"{job['id']} runs a command, and its checkpoints hold the program's own files."
        remedy = f"Read them in {path}; only a training job's checkpoints are exported."
        raise ExportUnsupported(message, field="position", remedy=remedy)
    if request.kind == "export" and request.dtype == DTYPE:
        _refuse_underway(job, step)
    out = _out(path, step, str(request.dtype)) if request.kind == "export" else None
    return {"step": step, "path": path, "out": out, "state": "pending"}


def _out(path: str, step: int, dtype: str) -> str:
    """The export's folder beside the checkpoint, as of `checkpoint.export`. Each further dtype has its own folder."""
    suffix = "" if dtype == DTYPE else f"-{dtype}"
    return below(path.rpartition("/")[0], f"export-{step:08d}{suffix}")


def _refuse_underway(job: RowMapping, step: int) -> None:
    """Raise ExportUnderway if the job itself writes this folder: two writers of one folder in a bucket would mix."""
    exports = (job["spec"]["train"].get("checkpoint") or {}).get("export", False)
    if exports and step == job["steps"] and State(job["state"]) not in FINAL:
        message = f"{job['id']} exports step {step} itself (checkpoint.export), before it ends."
        raise ExportUnderway(message, field="position", remedy="Wait for the job's end.")


async def refuse_other_pin(tx: AsyncConnection, job_id: str, path: str, kind: Kind, field: str) -> None:
    """Raise PinUnderway if an open operation does the opposite of `kind`, pin or unpin, to this checkpoint."""
    _refuse_other_pin(await orders.open_of(tx, operations, job_id), kind, path, field)


def _refuse_other_pin(open_ones: Sequence[RowMapping], kind: Kind, path: str, field: str) -> None:
    """Two tasks that write and remove one file would end in any order."""
    if any(row["path"] == path and row["kind"] in _PINS and row["kind"] != kind for row in open_ones):
        message = f"The checkpoint {path} is being {'un' if kind == 'pin' else ''}pinned."
        raise PinUnderway(message, field=field, remedy="Repeat the request when that has ended.")


async def _refuse_named(tx: AsyncConnection, job_id: str, step: int) -> None:
    named = (await models.of_steps(tx, job_id, [step])).get(step)
    if named:
        model, _, number = named[0].partition("@")
        remedy = f"Delete the version first: shardyard models {model} --delete {number}"
        raise CheckpointInModels(f"The checkpoint is {', '.join(named)}.", field="position", remedy=remedy)


def task_of(row: RowMapping) -> GangOperation:
    """The operation as the cluster's task."""
    return GangOperation(row["id"], row["kind"], row["path"], row["out"], row["dtype"])


async def page(store: Store, job: str, *, before: str | None = None, limit: int = 20) -> Operations:
    """Operations of a job (id or name) below the id `before`, newest first. Raises JobNotFound, InvalidCursor."""
    async with store.read() as tx:
        _, rows, after = await order_frame.page(tx, _KIND, job, before, limit)
    return Operations(items=[_record(row) for row in rows], next=after)


async def one(store: Store, job: str, operation: str) -> Operation:
    """An operation of a job (id or name). Raises JobNotFound, OperationNotFound."""
    async with store.read() as tx:
        found, row = await find(tx, "operation", operations, job, operation)
    if row is None:
        remedy = f"A job keeps its newest {KEPT}: GET /v1/jobs/{found['id']}/operations"
        message = f"{found['id']} has no operation {operation[:80]!r}."
        raise OperationNotFound(message, field="operation", remedy=remedy)
    return _record(row)


def _record(row: RowMapping) -> Operation:
    return Operation(
        id=row["id"],
        job=row["job_id"],
        kind=row["kind"],
        position=row["position"],
        step=row["step"],
        path=row["path"],
        dtype=row["dtype"],
        state=row["state"],
        verified=row["result"] if row["kind"] == "verify" else None,
        exported=row["result"] if row["kind"] == "export" else None,
        pinned=row["result"]["pinned"] if row["kind"] in _PINS and row["result"] else None,
        error=row["error"],
        actor=row["actor"],
        asked_at=row["asked_at"],
        started_at=row["started_at"],
        settled_at=row["settled_at"],
    )


_KIND: Final = OrderKind("operation", operations, _prepare, keep_settled=KEPT)
