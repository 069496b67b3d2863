"""SQL of the table `checkpoint_pins`: the pinned checkpoints, each with its manifest's checksum as of the step's last save."""

from collections.abc import Collection

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from .dialect import insert
from .model_tables import checkpoint_pins as pins


async def put(tx: AsyncConnection, job_id: str, step: int, digest: str) -> None:
    statement = insert(tx, pins).values(job_id=job_id, step=step, digest=digest)
    await tx.execute(statement.on_conflict_do_update(index_elements=["job_id", "step"], set_={"digest": digest}))


async def replaced(tx: AsyncConnection, job_id: str, step: int, digest: str) -> None:
    """The step was saved again: a pin of it keeps other files now. Does nothing without a pin."""
    mine = (pins.c.job_id == job_id, pins.c.step == step, pins.c.digest != digest)
    await tx.execute(update(pins).where(*mine).values(digest=digest))


async def remove(tx: AsyncConnection, job_id: str, step: int) -> None:
    await tx.execute(delete(pins).where(pins.c.job_id == job_id, pins.c.step == step))


async def remove_all_but(tx: AsyncConnection, job_id: str, kept: Collection[int]) -> None:
    """Remove the pins of all checkpoints of a job except those of the steps `kept`."""
    await tx.execute(delete(pins).where(pins.c.job_id == job_id, pins.c.step.not_in(kept)))


async def digests(tx: AsyncConnection, job_id: str, steps: Collection[int]) -> dict[int, str]:
    """Step → checksum, of those of these steps that are pinned."""
    statement = select(pins.c.step, pins.c.digest).where(pins.c.job_id == job_id, pins.c.step.in_(steps))
    return {row.step: row.digest for row in await tx.execute(statement)}
