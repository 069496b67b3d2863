"""SQL of what a live reader asks most often: how far jobs' stories have got."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sqlalchemy import select

from ..states import State
from .engine import Store
from .tables import jobs


class Positions(NamedTuple):
    state: State
    event: int
    step: int
    log: int


async def positions(store: Store, job_ids: Collection[str]) -> Mapping[str, Positions]:
    """The last positions of those of the jobs that exist; whatever is new to a reader changes them."""
    columns = (jobs.c.id, jobs.c.state, jobs.c.event_pos, jobs.c.step_pos, jobs.c.log_pos)
    async with store.read() as tx:
        rows = await tx.execute(select(*columns).where(jobs.c.id.in_(job_ids)))
        return {row.id: Positions(State(row.state), row.event_pos, row.step_pos, row.log_pos) for row in rows}
