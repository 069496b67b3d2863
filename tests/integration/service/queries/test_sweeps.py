"""Sweeps as they are read: the best trial, the trials by state, and the ledger of device-seconds."""

from typing import Any

import pytest

from shardyard.service.queries.sweeps import get_sweep, list_sweeps, trials
from shardyard.service.settings import Settings
from shardyard.service.store import attempts
from shardyard.service.store import sweeps as rows
from shardyard.service.store.engine import Store

from ..conftest import Submit
from ..sweeps.learning import counted, submit_sweep

GRID = {"parameters": {"train.seed": [1, 2, 3, 4]}, "search": "grid"}


async def change(store: Store, sweep: str, number: int, **values: Any) -> None:
    async with store.write() as tx:
        await rows.change(tx, sweep, number, values)


@pytest.mark.parametrize(("goal", "best"), [("minimize", 3), ("maximize", 2)])
async def test_the_best_ran_to_its_end_or_came_to_the_highest_rung(
    store: Store, settings: Settings, goal: str, best: int
) -> None:
    sweep = (await submit_sweep(store, settings, {**GRID, "goal": goal})).id
    assert (await get_sweep(store, sweep)).best is None
    await change(store, sweep, 0, standing="paused", rungs=[1.0], value=1.0)
    await change(store, sweep, 1, standing="paused", rungs=[5.0, 5.0], value=5.0)
    found = await get_sweep(store, sweep)
    assert found.best is not None and found.best.number == 1
    await change(store, sweep, 2, standing="done", outcome="succeeded", rungs=[9.0, 9.0], value=9.0)
    # It ended by itself before the second rung.
    await change(store, sweep, 3, standing="done", outcome="succeeded", rungs=[9.0], value=8.0)
    found = await get_sweep(store, sweep)
    assert found.best is not None and found.best.number == best
    assert found.counts == {"paused": 2, "succeeded": 2}


async def test_the_ledger_counts_devices_and_seconds_of_every_attempt(
    store: Store, settings: Settings, submit: Submit
) -> None:
    job = await submit()
    sweeps = [(await submit_sweep(store, settings, GRID)).id for _ in range(2)]
    await change(store, sweeps[0], 2, job_id=job.id, standing="active")
    async with store.write() as tx:
        for number, devices, spent in ((1, 4, 10.0), (2, None, 5.0)):
            row = {"job_id": job.id, "number": number, "gang": "g", "device": "cpu", "nodes": [], "devices": devices}
            await attempts.insert(tx, {**row, "started_at": 100.0})
            await attempts.end(tx, job.id, number, "completed", 100.0 + spent)
    assert [one.device_s for one in (await trials(store, sweeps[0])).items] == [0, 0, 45.0, 0]
    found = {one.id: one.device_s for one in (await list_sweeps(store)).items}
    assert found == {sweeps[0]: 45.0, sweeps[1]: 0.0}


async def test_a_page_of_sweeps_takes_as_many_statements_whatever_its_length(store: Store, settings: Settings) -> None:
    sweeps = [(await submit_sweep(store, settings, {**GRID, "goal": goal})).id for goal in ("minimize", "maximize")]
    for sweep in sweeps:
        for number, value in enumerate([3.0, 1.0, 5.0]):
            await change(store, sweep, number, standing="done", outcome="succeeded", value=value)
    with counted() as one:
        assert [found.best and found.best.number for found in (await list_sweeps(store, limit=1)).items] == [2]
    with counted() as both:
        assert [found.best and found.best.number for found in (await list_sweeps(store)).items] == [2, 1]
    assert len(both) == len(one)


async def test_only_trials_that_changed_are_read_again(store: Store, settings: Settings, submit: Submit) -> None:
    sweep = (await submit_sweep(store, settings, GRID)).id
    jobs = [(await submit()).id for _ in range(3)]
    await change(store, sweep, 0, job_id=jobs[0], standing="active")
    await change(store, sweep, 1, job_id=jobs[1], standing="over", outcome="stopped")
    await change(store, sweep, 2, job_id=jobs[2], standing="done", outcome="succeeded")
    row = {"number": 1, "gang": "g", "device": "cpu", "nodes": [], "devices": 1, "started_at": 100.0}
    async with store.write() as tx:
        for job in jobs[1:]:
            await attempts.insert(tx, {**row, "job_id": job})
        await attempts.end(tx, jobs[2], 1, "completed", 110.0)
    first = await trials(store, sweep)
    assert [one.number for one in first.items] == [0, 1, 2, 3]
    later = first.as_of + 3600.0  # past the changes above, whose times overlap with a later read
    again = await trials(store, sweep, later)
    assert [(one.number, one.state) for one in again.items] == [(0, "active"), (1, "stopped")]
    assert again.items[1].device_s > 0 and again.as_of >= first.as_of
    assert [one.number for one in (await trials(store, sweep, first.as_of)).items] == [0, 1, 2]
    await change(store, sweep, 3, standing="over", outcome="refused", message="no")
    assert [one.number for one in (await trials(store, sweep, first.as_of)).items] == [0, 1, 2, 3]
