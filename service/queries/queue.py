"""Reads what waits for devices, and what has them."""

from ..errors import InvalidCursor
from ..ids import parse
from ..schemas.queue import Queue, QueuedJob, RunningJob, RunningJobs
from ..store import queue as rows
from ..store.engine import Store
from .jobs import retry_at


async def waiting(store: Store, *, after: str | None = None, limit: int = 100) -> Queue:
    """The waiting jobs after the one with this id, in their order. Raises InvalidCursor."""
    begin = _place(after)
    async with store.read() as tx:
        found = (await tx.execute(rows.waiting(begin, limit + 1))).mappings().all()
        before = await rows.count_waiting(tx, begin) if begin else 0
        total = await rows.count_waiting(tx)
    items = [
        QueuedJob(
            **{name: row[name] for name in ("name", "actor", "since", "attempt", "reason", "message", "spares")},
            position=before + number,
            job=row["id"],
            device=row["wanted_device"],
            ranks=row["world_size"],
            retry_at=retry_at(row),
        )
        for number, row in enumerate(found[:limit], start=1)
    ]
    return Queue(items=items, total=total, next=items[-1].job if len(found) > limit else None)


async def running(store: Store, *, after: str | None = None, limit: int = 100) -> RunningJobs:
    """The jobs that have devices after the one with this id, first submitted first. Raises InvalidCursor."""
    async with store.read() as tx:
        found = (await tx.execute(rows.running(_place(after), limit + 1))).mappings().all()
        nodes = await rows.node_counts(tx, [row["id"] for row in found])
    named = ("name", "actor", "state", "attempt", "device", "devices", "since")
    items = [
        RunningJob(**{name: row[name] for name in named}, job=row["id"], nodes=nodes.get(row["id"], 0))
        for row in found[:limit]
    ]
    return RunningJobs(items=items, next=items[-1].job if len(found) > limit else None)


def _place(after: str | None) -> str:
    if after is not None and parse("job", after) is None:
        remedy = "Use `next` of the page before."
        raise InvalidCursor(f"{after[:80]!r} is not the id of a job.", field="after", remedy=remedy)
    return after or ""
