"""Sweeps for tests: a job whose loss follows from one parameter, and what becomes of its trials."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from harness.patience import PATIENCE_S
from sqlalchemy import event
from sqlalchemy.engine import Engine, RowMapping

from shardyard.service.jobs.submit import Request
from shardyard.service.queries import jobs
from shardyard.service.queries import sweeps as queries
from shardyard.service.schemas.sweep import SweepDetail, SweepTrial
from shardyard.service.settings import Settings
from shardyard.service.spec import kind_of
from shardyard.service.store import sweeps as rows
from shardyard.service.store.engine import Store
from shardyard.service.sweep_spec import Sweep
from shardyard.service.sweeps import submit as submitting
from shardyard.service.sweeps.advance import Advance
from shardyard.service.sweeps.request import read_request

from ...inprocess_cluster import Gang

STEPS = 27


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements that are sent to databases meanwhile."""
    found: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


async def submit_sweep(
    store: Store,
    settings: Settings,
    sweep: dict[str, Any],
    key: str | None = None,
    command: list[str] | None = None,
    **train: Any,
) -> SweepDetail:
    """Of a training, or of a program if there is a `command`. `train`: other keys of its part, or of the program's spec."""
    training = {"train": {"steps": STEPS, "global_batch": 4, "layout": {"data": 1}, **train}}
    document = {"name": "tune", **(training if command is None else {"command": command, **train})}
    request = read_request({**document, "sweep": sweep}, Sweep.model_validate(sweep))
    first = kind_of(request.first).model_validate(request.first, strict=True)
    found, _ = await submitting.submit(store, settings, request, first, Request(key, "digest", "tester"))
    return found


async def sweep_ended(store: Store, sweep: SweepDetail, seconds: float = PATIENCE_S) -> SweepDetail:
    return await sweep_until(store, sweep, lambda now: now.finished_at is not None, seconds)


async def sweep_until(
    store: Store, sweep: SweepDetail, holds: Callable[[SweepDetail], bool], seconds: float = PATIENCE_S
) -> SweepDetail:
    async with asyncio.timeout(seconds):
        while not holds(now := await queries.get_sweep(store, sweep.id)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return now


async def trials_of(store: Store, sweep: SweepDetail) -> list[SweepTrial]:
    return (await queries.trials(store, sweep.id)).items


async def trial_with_job(store: Store, sweep: SweepDetail, number: int = 0) -> SweepTrial:
    """A trial once it has a job."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := (await trials_of(store, sweep))[number]).job:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found


class Learning:
    """Gangs whose loss at a step is |lr - 0.3| + 1 / step. A job that was paused continues with its next step.

    With a store they wait after each step until the sweep has seen it, as steps that are much longer than a dispatcher's polls would.
    """

    def __init__(self, store: Store | None = None, step_s: float = 0.002) -> None:
        self._store, self.step_s = store, step_s
        self.reached: dict[str, int] = {}  # job → its last step
        self.steps = 0  # of all gangs

    @staticmethod
    def loss(lr: float, step: int) -> float:
        return abs(lr - 0.3) + 1 / step

    async def __call__(self, gang: Gang) -> None:
        job = gang.spec.name.removeprefix("shardyard-").rpartition("-")[0]
        await gang.state("starting")
        await gang.state("running")
        lr = gang.spec.run["train"]["optimizer"]["lr"]
        for step in range(self.reached.get(job, 0) + 1, STEPS + 1):
            await asyncio.sleep(self.step_s)
            self.reached[job] = step
            self.steps += 1
            await gang.step(step, self.loss(lr, step))
            if self._store is not None:
                await self._seen(self._store, job, step)
        await gang.emit("summary", first_loss=1.0, last_loss=self.loss(lr, STEPS), steps=STEPS)
        await gang.state("succeeded", "completed")

    async def _seen(self, store: Store, job: str, step: int) -> None:
        """Return when the rung at this step, if there is one, is stored and the trial continues. A stop cancels this."""
        labels = (await jobs.get_job(store, job)).labels
        sweep = await queries.get_sweep(store, labels["shardyard/sweep"])
        while step in sweep.rungs:
            trial = (await queries.trials(store, sweep.id)).items[int(labels["shardyard/trial"])]
            if len(trial.rungs) > sweep.rungs.index(step) and trial.state == "active":
                return
            await asyncio.sleep(0.02)


async def advance(store: Store, settings: Settings, sweep: SweepDetail, token: str = "t") -> bool:
    """A step of a dispatcher that remembers nothing."""
    async with store.write() as tx:
        assert await rows.take(tx, sweep.id, token, 600.0)
        row = await rows.by_id(tx, sweep.id)
    assert row is not None
    return await step(store, settings, row, token)


async def step(store: Store, settings: Settings, row: RowMapping, token: str) -> bool:
    async with store.read() as tx:
        busy = await rows.busy(tx, [row["id"]])
    return await Advance(store, settings, token).advance(row, busy)


async def change(store: Store, sweep: SweepDetail, number: int, values: Mapping[str, Any]) -> None:
    async with store.write() as tx:
        await rows.change(tx, sweep.id, number, values)
