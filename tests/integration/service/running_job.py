"""A stored job whose attempt runs, as far as the store knows."""

import time
from itertools import pairwise
from typing import Any

from shardyard.service.jobs.transitions import Cause, move
from shardyard.service.schemas.job import Job
from shardyard.service.states import State
from shardyard.service.store.engine import Store

from .conftest import Submit


async def running(store: Store, submit: Submit, **fields: Any) -> Job:
    """A job of two ranks."""
    return await started(store, await submit(ranks=2, **fields))


async def started(store: Store, job: Job) -> Job:
    """Move a queued job to `running`."""
    steps = (State.QUEUED, State.PLACING, State.STARTING, State.RUNNING)
    async with store.write() as tx:
        for before, to in pairwise(steps):
            await move(tx, job.id, before, to, Cause("test", time.time()))
    return job
