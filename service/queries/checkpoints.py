"""The checkpoints that a job reported, newest first, each with its state (`checkpoint_catalogue.py`)."""

from sqlalchemy.engine import RowMapping

from ..schemas.checkpoint import Checkpoint, Checkpoints
from ..store import checkpoint_pins, models
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
        steps = [int(row["data"]["step"]) for row in rows]
        states = await checkpoint_catalogue.states(tx, job_id, steps)
        pinned, named = await checkpoint_pins.digests(tx, job_id, steps), await models.of_steps(tx, job_id, steps)
    items = [
        _checkpoint(row, states[step], pinned=step in pinned, models=named.get(step, []))
        for row, step in zip(rows[:limit], steps, strict=False)
    ]
    return Checkpoints(items=items, next=items[-1].position if len(rows) > limit else None)


def _checkpoint(row: RowMapping, state: CheckpointState, *, pinned: bool, models: list[str]) -> Checkpoint:
    data = row["data"]
    return Checkpoint(
        position=row["position"],
        ts=row["ts"],
        attempt=row["attempt"],
        step=int(data["step"]),
        state=state,
        pinned=pinned,
        models=models,
        path=str(data["path"]),
        bytes=data.get("bytes"),
        seconds=data.get("seconds"),
        held_s=data.get("held_s"),
    )
