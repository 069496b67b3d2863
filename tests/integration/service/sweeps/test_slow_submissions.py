"""Trials whose submission takes long: their threads, and what is left of them when the sweep is cancelled."""

import asyncio
import threading
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.service.errors import FilesTooSlow
from shardyard.service.jobs import pause as pausing
from shardyard.service.jobs import submit as job_submitting
from shardyard.service.jobs import validation
from shardyard.service.queries import jobs
from shardyard.service.queries import sweeps as queries
from shardyard.service.settings import Settings
from shardyard.service.spec_files import AT_ONCE, SpecFiles
from shardyard.service.states import State
from shardyard.service.store import sweeps as rows
from shardyard.service.store.engine import Store
from shardyard.service.sweeps.advance import Advance
from shardyard.service.sweeps.lease import SweepLeaseLost
from shardyard.service.sweeps.submit import cancel

from .learning import advance, change, submit_sweep, trials_of

SWEEP = {"parameters": {"train.optimizer.lr": [0.1, 0.2]}, "search": "grid"}


async def test_a_sweep_is_cancelled_while_its_trials_cannot_be_submitted(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(*_: Any) -> None:
        raise FilesTooSlow("The files could not be checked.")

    sweep = await submit_sweep(store, settings, SWEEP)
    await advance(store, settings, sweep)
    await change(store, sweep, 1, {"due": "submit", "job_id": None})  # its job is not noted
    other = await submit_sweep(store, settings, SWEEP)
    monkeypatch.setattr(job_submitting, "requested", slow)
    await advance(store, settings, other)
    for one in (sweep, other):
        await cancel(store, one.id)
        for _ in range(3):
            if (await queries.get_sweep(store, one.id)).finished_at is None:
                await advance(store, settings, one)
        found = await queries.get_sweep(store, one.id)
        assert (found.state, found.counts) == ("cancelled", {"cancelled": 2})
    listed = (await jobs.list_jobs(store)).items
    assert [(job.labels["shardyard/sweep"], job.state) for job in listed] == [(sweep.id, State.CANCELLED)] * 2


async def test_a_dispatcher_that_lost_the_lease_within_a_submission_leaves_no_job(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, row_of = await submit_sweep(store, settings, SWEEP), job_submitting.row_of

    async def overtaken(*given: Any) -> Any:
        """Its successor takes the lease during the check, and cancels the sweep."""
        made = await row_of(*given)
        await cancel(store, sweep.id)
        async with store.write() as tx:
            await rows.release(tx, "t")
        while (await queries.get_sweep(store, sweep.id)).finished_at is None:
            await advance(store, settings, sweep, "successor")
        return made

    monkeypatch.setattr(job_submitting, "row_of", overtaken)
    with pytest.raises(SweepLeaseLost):
        await advance(store, settings, sweep)
    assert (await queries.get_sweep(store, sweep.id)).state == "cancelled"
    assert (await jobs.list_jobs(store)).items == []


async def test_a_sweep_that_is_cancelled_within_a_submission_leaves_no_job_of_it_or_of_later_trials(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {"parameters": {"train.seed": {"min": 1, "max": 8}}, "search": "grid", "parallel": 8}
    sweep, row_of, checked = await submit_sweep(store, settings, part), job_submitting.row_of, []

    async def cancelled(*given: Any) -> Any:
        checked.append(await row_of(*given))
        if len(checked) == 2:
            assert (await cancel(store, sweep.id)).state == "cancelling"
        return checked[-1]

    monkeypatch.setattr(job_submitting, "row_of", cancelled)
    assert await advance(store, settings, sweep)
    while (found := await queries.get_sweep(store, sweep.id)).finished_at is None:
        await advance(store, settings, sweep)
    assert (found.state, found.counts) == ("cancelled", {"cancelled": 8})
    (job,) = (await jobs.list_jobs(store)).items
    assert (job.name, job.state, len(checked)) == ("tune-0", State.CANCELLED, 2)


async def test_a_sweep_that_is_cancelled_within_a_step_resumes_no_trial(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, pause = await submit_sweep(store, settings, SWEEP), pausing.pause
    await advance(store, settings, sweep)
    first, second = [one.job or "" for one in await trials_of(store, sweep)]
    await pause(store, second, "tester")
    await change(store, sweep, 0, {"standing": "paused", "due": "pause"})
    await change(store, sweep, 1, {"standing": "active", "due": "resume"})

    async def cancelled(*given: Any) -> None:
        await pause(*given)
        await cancel(store, sweep.id)

    monkeypatch.setattr(pausing, "pause", cancelled)
    await advance(store, settings, sweep)
    assert [(await jobs.get_job(store, one)).state for one in (first, second)] == [State.PAUSED] * 2
    while (await queries.get_sweep(store, sweep.id)).finished_at is None:
        await advance(store, settings, sweep)
    assert [(await jobs.get_job(store, one)).state for one in (first, second)] == [State.CANCELLED] * 2


async def test_a_lease_lasts_as_long_as_the_checks_of_a_submission(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a second dispatcher would take the sweep, and each would throw away what the other has checked."""
    sweep, row_of = await submit_sweep(store, settings, SWEEP), job_submitting.row_of
    settings = settings.model_copy(update={"lease_s": 0.5})

    async def slow(*given: Any) -> dict[str, Any]:
        await asyncio.sleep(3 * settings.lease_s)
        async with store.write() as tx:
            assert not await rows.take(tx, sweep.id, "other", 600.0)
        return await row_of(*given)

    monkeypatch.setattr(job_submitting, "row_of", slow)
    async with store.write() as tx:
        assert await rows.take(tx, sweep.id, "t", settings.lease_s)
        row = await rows.by_id(tx, sweep.id)
    assert row is not None
    async with store.read() as tx:
        busy = await rows.busy(tx, [sweep.id])
    await Advance(store, settings, "t").advance(row, busy)
    assert len((await jobs.list_jobs(store)).items) == 2


async def test_a_sweep_whose_checks_do_not_end_has_few_threads(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings.model_copy(update={"local_files": True})
    sweep = await submit_sweep(store, settings, {"parameters": {"train.seed": {"min": 1, "max": 4}}, "search": "grid"})
    async with store.write() as tx:
        assert await rows.take(tx, sweep.id, "t", 600.0)
        row = await rows.by_id(tx, sweep.id)
    assert row is not None
    gate, running = threading.Event(), [0]

    def blocks(*_: Any) -> None:
        running[0] += 1
        gate.wait(PATIENCE_S)

    monkeypatch.setattr(validation, "_check_files", blocks)
    monkeypatch.setattr(SpecFiles.__init__, "__defaults__", (0.1, PATIENCE_S))
    dispatcher = Advance(store, settings, "t")
    try:
        for _ in range(2 * AT_ONCE):
            async with store.read() as tx:
                busy = await rows.busy(tx, [sweep.id])
            await dispatcher.advance(row, busy)
        assert 1 <= running[0] <= AT_ONCE
    finally:
        gate.set()
