"""A running dispatcher, and what becomes of a job under it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from harness.patience import PATIENCE_S

from shardyard.service.dispatch.dispatcher import Dispatcher
from shardyard.service.jobs import submit as submitting
from shardyard.service.queries import jobs, live_tail
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.job import Job
from shardyard.service.schemas.live_tail import Scope
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.states import FINAL, State
from shardyard.service.store.engine import Store

from ...inprocess_cluster import InProcessCluster


@contextlib.asynccontextmanager
async def dispatching(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(Dispatcher(store, settings, cluster).run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def spec(steps: int = 20, data: int = 1, name: str = "try", **policy: int | str) -> JobSpec:
    training = {"steps": steps, "global_batch": 4 * data, "layout": {"data": data}}
    return JobSpec.model_validate({"name": name, "train": training, "policy": policy})


async def submit(store: Store, settings: Settings, **numbers: Any) -> Job:
    job, _ = await submitting.submit(store, settings, spec(**numbers), None, "", "tester")
    return job


async def until(store: Store, job: Job, holds: Callable[[Job], bool], seconds: float = PATIENCE_S) -> Job:
    async with asyncio.timeout(seconds):
        while not holds(now := await jobs.get_job(store, job.id)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return now


async def ended(store: Store, job: Job) -> Job:
    return await until(store, job, lambda now: now.state in FINAL)


def reached(state: State) -> Callable[[Job], bool]:
    return lambda job: job.state == state


async def job_history(store: Store, job: Job) -> list[Any]:
    tail = await live_tail.tail(store, job.id, Cursor(), Scope(logs=True), limit=100_000)
    return tail.items


async def states(store: Store, job: Job) -> list[str]:
    return [item.data["state"] for item in await job_history(store, job) if item.kind == "state"]


async def steps(store: Store, job: Job) -> list[int]:
    return [item.data["step"] for item in await job_history(store, job) if item.kind == "step"]


async def eventually(holds: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
