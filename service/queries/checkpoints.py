"""The checkpoints that a job reported, newest first, each with its state (`checkpoint_catalogue.py`)."""

from sqlalchemy.engine import RowMapping

from ..schemas.checkpoint import Checkpoint, Checkpoints
from ..store import events as event_rows
from ..store.engine import Store
from . import checkpoint_catalogue
from .checkpoint_catalogue import CheckpointState
from .jobs import existing


async def checkpoints(store: Store, job: str, *, before: int | None = None, limit: int = 100) -> Checkpoints:
    """Checkpoints of a job (id or name) before position `before`, newest first. Raises JobNotFound."""
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        rows = await event_rows.of_kind_before(tx, job_id, "checkpoint", before, limit + 1)
        states = await checkpoint_catalogue.states(tx, job_id, [int(row["data"]["step"]) for row in rows])
    items = [_checkpoint(row, states[int(row["data"]["step"])]) for row in rows[:limit]]
    return Checkpoints(items=items, next=items[-1].position if len(rows) > limit else None)


def _checkpoint(row: RowMapping, state: CheckpointState) -> Checkpoint:
    data = row["data"]
    return Checkpoint(
        position=row["position"],
        ts=row["ts"],
        attempt=row["attempt"],
        step=int(data["step"]),
        state=state,
        path=str(data["path"]),
        bytes=data.get("bytes"),
        seconds=data.get("seconds"),
        held_s=data.get("held_s"),
    )
