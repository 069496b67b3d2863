"""SQL of the most frequent query of live readers: the last positions of jobs."""

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
    ranks: int


async def positions(store: Store, job_ids: Collection[str]) -> Mapping[str, Positions]:
    """The last positions of those of the jobs that exist. Every change that is new to a reader raises one of them."""
    counters = (jobs.c.event_pos, jobs.c.step_pos, jobs.c.log_pos, jobs.c.rank_pos)
    async with store.read() as tx:
        rows = await tx.execute(select(jobs.c.id, jobs.c.state, *counters).where(jobs.c.id.in_(job_ids)))
        return {job_id: Positions(State(state), *last) for job_id, state, *last in rows}
