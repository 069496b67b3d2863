"""SQL of the table `checkpoints`: the state of a job's checkpoint of each step."""

from collections.abc import Collection

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from .dialect import insert
from .tables import checkpoints


async def put(tx: AsyncConnection, job_id: str, step: int, state: str) -> None:
    statement = insert(tx, checkpoints).values(job_id=job_id, step=step, state=state)
    await tx.execute(statement.on_conflict_do_update(index_elements=["job_id", "step"], set_={"state": state}))


async def remove_all_but(tx: AsyncConnection, job_id: str, kept: Collection[int]) -> None:
    """Mark all checkpoints of a job except those of the steps `kept` as `deleted`."""
    others = update(checkpoints).where(checkpoints.c.job_id == job_id, checkpoints.c.state != "deleted")
    await tx.execute(others.where(checkpoints.c.step.not_in(kept)).values(state="deleted"))


async def states(tx: AsyncConnection, job_id: str, steps: Collection[int]) -> dict[int, str]:
    """State by step, for the steps that are known."""
    statement = select(checkpoints.c.step, checkpoints.c.state).where(checkpoints.c.job_id == job_id)
    return {row.step: row.state for row in await tx.execute(statement.where(checkpoints.c.step.in_(steps)))}


async def newest(tx: AsyncConnection, job_id: str, state: str) -> int | None:
    """The highest step whose checkpoint has this state."""
    statement = select(checkpoints.c.step).where(checkpoints.c.job_id == job_id, checkpoints.c.state == state)
    return (await tx.execute(statement.order_by(checkpoints.c.step.desc()).limit(1))).scalar_one_or_none()
