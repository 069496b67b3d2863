"""Which checkpoints a job has told of, newest first. Whether one still lies in its storage is for those to see who can read that."""

from sqlalchemy.engine import RowMapping

from .jobs import existing
from .records import Checkpoint, CheckpointPage
from .store import events as event_rows
from .store.engine import Store


async def checkpoints(store: Store, job: str, *, before: int | None = None, limit: int = 100) -> CheckpointPage:
    """Checkpoints of a job (id or name) that were told before place `before`, newest first. Raises JobNotFound."""
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        told = await event_rows.of_kind_before(tx, job_id, "checkpoint", before, limit + 1)
    items = [_checkpoint(row) for row in told[:limit]]
    return CheckpointPage(items, items[-1].n if len(told) > limit else None)


def _checkpoint(row: RowMapping) -> Checkpoint:
    data = row["data"]
    return Checkpoint(
        n=row["position"],
        ts=row["ts"],
        attempt=row["attempt"],
        step=int(data["step"]),
        path=str(data["path"]),
        bytes=data.get("bytes"),
        seconds=data.get("seconds"),
        held_s=data.get("held_s"),
    )
