"""Sweeps under a dispatcher, whose gangs take real steps in this process."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from harness.patience import PATIENCE_S

from shardyard.service.dispatch.sweep_runner import SweepRunner
from shardyard.service.errors import FilesTooSlow
from shardyard.service.jobs import pause as pausing
from shardyard.service.jobs import submit as submitting
from shardyard.service.queries import jobs
from shardyard.service.schemas.sweep import SweepDetail
from shardyard.service.settings import Settings
from shardyard.service.states import State
from shardyard.service.store import sweeps as rows
from shardyard.service.store.engine import Store
from shardyard.service.sweeps.submit import cancel

from ...inprocess_cluster import Gang, InProcessCluster, run_until_stopped
from ..sweeps.learning import (
    STEPS,
    Learning,
    counted,
    submit_sweep,
    sweep_ended,
    sweep_until,
    trial_with_job,
    trials_of,
)
from .dispatching import dispatching, ended, eventually, reached, submit, until

RANGE = {"parameters": {"train.optimizer.lr": {"min": 0.01, "max": 1.0}}, "parallel": 4}
ASHA = {"min_steps": 3, "reduction": 3}


@POSTGRESQL_IN_FULL
async def test_a_grid_runs_every_combination_as_an_ordinary_job(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = Learning()
    sweep = await submit_sweep(
        store, settings, {"parameters": {"train.optimizer.lr": [0.1, 0.4], "train.seed": [1, 2]}, "search": "grid"}
    )
    assert (sweep.state, sweep.trials, sweep.counts) == ("running", 4, {"waiting": 4})
    async with dispatching(store, settings, cluster):
        sweep = await sweep_ended(store, sweep)
    assert (sweep.state, sweep.counts) == ("succeeded", {"succeeded": 4})
    found = await trials_of(store, sweep)
    assert [one.parameters for one in found] == [
        {"train.optimizer.lr": lr, "train.seed": seed} for lr in (0.1, 0.4) for seed in (1, 2)
    ]
    assert [one.value for one in found] == pytest.approx(
        [Learning.loss(one.parameters["train.optimizer.lr"], STEPS) for one in found if one.parameters]
    )
    assert sweep.best is not None and sweep.best.number == 2
    job = await jobs.get_job(store, found[3].job or "")
    assert (job.name, job.spec["train"]["optimizer"]["lr"], job.spec["train"]["seed"]) == ("tune-3", 0.4, 2)
    assert job.labels == {"shardyard/sweep": sweep.id, "shardyard/trial": "3"}
    assert sweep.device_s == pytest.approx(sum(one.device_s for one in found)) and all(
        one.device_s > 0 for one in found
    )


async def test_no_more_trials_than_parallel_have_a_job_at_once(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = run_until_stopped
    sweep = await submit_sweep(store, settings, {**RANGE, "parallel": 2, "trials": 5})
    async with dispatching(store, settings, cluster):
        await sweep_until(store, sweep, lambda now: now.counts == {"active": 2, "waiting": 3})
        first = await trial_with_job(store, sweep)
        await submitting.cancel(store, first.job or "", "tester")
        now = await sweep_until(store, sweep, lambda now: now.counts.get("cancelled") == 1)
        now = await sweep_until(store, sweep, lambda now: now.counts.get("active") == 2)
        assert now.counts == {"active": 2, "cancelled": 1, "waiting": 2}
        assert (await cancel(store, sweep.id)).state == "cancelling"
        ended = await sweep_ended(store, sweep)
        assert (ended.state, ended.counts) == ("cancelled", {"cancelled": 5})
        await eventually(lambda: not cluster.living)
        assert (await cancel(store, sweep.id)).state == "cancelled"


@pytest.mark.full
async def test_asha_finds_what_random_search_finds_for_a_fraction_of_its_steps(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = random_search = Learning(store)
    async with dispatching(store, settings, cluster):
        whole = await submit_sweep(store, settings, {**RANGE, "trials": 27})
        whole = await sweep_ended(store, whole, 4 * PATIENCE_S)
        cluster.script = halving = Learning(store)
        sweep = await submit_sweep(store, settings, {**RANGE, "trials": 27, "asha": ASHA})
        sweep = await sweep_ended(store, sweep, 4 * PATIENCE_S)
    assert (
        whole.best is not None
        and sweep.best is not None
        and whole.best.value is not None
        and sweep.best.value is not None
    )
    assert random_search.steps == 27 * STEPS
    assert sweep.best.value <= 1.05 * whole.best.value
    assert halving.steps <= 0.4 * random_search.steps
    assert sweep.counts["succeeded"] + sweep.counts["stopped"] == 27
    found = await trials_of(store, sweep)
    for one in found:
        assert len(one.rungs) == sum(rung <= (one.step or 0) for rung in sweep.rungs)
    promoted = [one for one in found if (await jobs.get_job(store, one.job or "")).attempt > 1]
    assert promoted, "no trial was paused and continued"
    # A stopped trial was not among the best third of those that reached its last rung.
    for one in found:
        if one.state == "stopped":
            rivals = sorted(
                other.rungs[len(one.rungs) - 1] or 0.0 for other in found if len(other.rungs) >= len(one.rungs)
            )
            assert (one.rungs[-1] or 0.0) > rivals[len(rivals) // 3 - 1 if len(rivals) >= 3 else 0]


@pytest.mark.parametrize(
    ("losers", "trials", "deaths"),
    [
        ("pause", 6, 5),
        pytest.param("pause", 12, 12, marks=pytest.mark.full),
        pytest.param("cancel", 12, 12, marks=pytest.mark.full),
    ],
)
async def test_dispatchers_that_die_at_any_moment_leave_no_trial_out_and_run_none_twice(
    store: Store, settings: Settings, cluster: InProcessCluster, losers: str, trials: int, deaths: int
) -> None:
    cluster.script = Learning(step_s=0.005)
    settings = settings.model_copy(update={"lease_s": 0.3})
    sweep = await submit_sweep(store, settings, {**RANGE, "trials": trials, "asha": {**ASHA, "losers": losers}})
    draw = random.Random(0)
    for _ in range(deaths):
        async with dispatching(store, settings, cluster):
            await asyncio.sleep(draw.uniform(0.02, 0.3))  # dies here, wherever it is
    async with dispatching(store, settings, cluster):
        sweep = await sweep_ended(store, sweep)
        # The sweep does not wait for the gangs of trials that were given up last.
        listed = [await ended(store, job) for job in (await jobs.list_jobs(store, limit=100)).items]
    assert sweep.state == "succeeded" and sweep.counts["succeeded"] >= 1
    found = await trials_of(store, sweep)
    assert {one.state for one in found} <= {"succeeded", "stopped"}
    assert Counter(job.labels["shardyard/trial"] for job in listed) == Counter(str(number) for number in range(trials))
    assert {one.job for one in found} == {job.id for job in listed}
    assert all(job.state in (State.SUCCEEDED, State.CANCELLED) for job in listed)


async def test_two_dispatchers_advance_a_sweep_one_at_a_time(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = Learning()
    async with dispatching(store, settings, cluster), dispatching(store, settings, cluster):
        sweep = await sweep_ended(store, await submit_sweep(store, settings, {**RANGE, "trials": 4, "asha": ASHA}))
    listed = (await jobs.list_jobs(store, limit=100)).items
    assert (sweep.state, len(listed)) == ("succeeded", 4)


@POSTGRESQL_IN_FULL
async def test_a_dispatcher_that_gets_a_sweep_back_decides_on_what_another_one_has_stored_meanwhile(
    store: Store, settings: Settings
) -> None:
    """It did not reach the database for longer than a lease, so it has not seen that the sweep was not its own meanwhile."""
    sweep = await submit_sweep(store, settings, {**RANGE, "parallel": 1, "trials": 2})
    runner = SweepRunner(store, settings)
    assert await runner.run_once()
    assert (await trials_of(store, sweep))[0].job
    async with store.write() as tx:
        assert await rows.take(tx, sweep.id, runner._token, 0.0)
        assert await rows.take(tx, sweep.id, "other", settings.lease_s)
        await rows.change(tx, sweep.id, 0, {"standing": "over", "outcome": "refused", "due": None})
        await rows.release(tx, "other")
    assert await runner.run_once()
    assert (await trials_of(store, sweep))[1].job


async def _fail(gang: Gang) -> None:
    await gang.state("starting")
    await gang.state("running")
    await gang.emit("incident", cause="exception", message="rank 0: KeyError", rank=0)
    await gang.state("failed", "exception", "rank 0: KeyError")


@POSTGRESQL_IN_FULL
async def test_a_sweep_whose_trials_all_fail_has_failed(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = _fail
    async with dispatching(store, settings, cluster):
        sweep = await sweep_ended(store, await submit_sweep(store, settings, {**RANGE, "trials": 3}))
    assert (sweep.state, sweep.counts, sweep.best) == ("failed", {"failed": 3}, None)
    assert sweep.message


@POSTGRESQL_IN_FULL
async def test_a_trial_whose_spec_is_refused_says_why_and_the_others_run(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = Learning()
    grid = {"parameters": {"train.layout.data": [1, 3], "train.optimizer.lr": [0.1]}, "search": "grid"}
    async with dispatching(store, settings, cluster):
        sweep = await sweep_ended(store, await submit_sweep(store, settings, grid))
    assert (sweep.state, sweep.counts) == ("succeeded", {"succeeded": 1, "refused": 1})
    assert "global_batch" in ((await trials_of(store, sweep))[1].message or "")


@POSTGRESQL_IN_FULL
async def test_a_trial_that_a_user_pauses_keeps_its_place_and_the_queue_goes_on(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = run_until_stopped
    sweep = await submit_sweep(store, settings, {**RANGE, "parallel": 1, "trials": 1})
    async with dispatching(store, settings, cluster):
        await sweep_until(store, sweep, lambda now: now.counts == {"active": 1})
        one = await trial_with_job(store, sweep)
        job = await until(store, await jobs.get_job(store, one.job or ""), reached(State.RUNNING))
        await pausing.pause(store, job.id, "tester")
        await until(store, job, reached(State.PAUSED))
        other = await submit(store, settings, steps=2, name="other")
        cluster.script = Learning()
        assert (await ended(store, other)).state == State.SUCCEEDED
        assert (await trials_of(store, sweep))[0].state == "active"
        await pausing.resume(store, job.id, "tester")
        assert (await sweep_ended(store, sweep)).state == "succeeded"


@pytest.mark.full
async def test_optuna_learns_from_the_trials_before(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = Learning(step_s=0.001)
    sweep = await submit_sweep(store, settings, {**RANGE, "trials": 24, "search": "optuna", "parallel": 2})
    async with dispatching(store, settings, cluster):
        sweep = await sweep_ended(store, sweep)
    lrs = [float(one.parameters["train.optimizer.lr"]) for one in await trials_of(store, sweep) if one.parameters]
    assert len(set(lrs)) == 24 and all(0.01 <= lr <= 1.0 for lr in lrs)
    early, late = lrs[:10], lrs[-8:]
    assert sum(abs(lr - 0.3) for lr in late) / 8 < sum(abs(lr - 0.3) for lr in early) / 10


async def test_a_pass_over_sweeps_without_news_takes_as_many_statements_whatever_their_number(
    store: Store, settings: Settings
) -> None:
    runner, passes = SweepRunner(store, settings), []
    for number in (1, 2):
        for _ in range(number):
            await submit_sweep(store, settings, {**RANGE, "trials": 1})
        assert await runner.run_once()
        with counted() as statements:
            assert not await runner.run_once()
        passes.append(len(statements))
    assert passes[0] == passes[1]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_pass_looks_up_no_jobs_of_ended_trials(store: Store, settings: Settings) -> None:
    """SQLite takes as many steps as if these trials had none. (PostgreSQL infers by itself that it need not join them.)"""
    sweep = await submit_sweep(store, settings, {**RANGE, "trials": 50})
    taken: list[int] = []
    for job in ("job", None):
        taken.append(0)

        def count() -> None:
            taken[-1] += 1

        async with store.write() as tx:
            await rows.change_all(tx, sweep.id, {number: {"standing": "over", "job_id": job} for number in range(50)})
            sqlite = (await tx.get_raw_connection()).driver_connection
            assert sqlite is not None
            await sqlite.set_progress_handler(count, 1)
            assert not await rows.busy(tx, [sweep.id])
            await sqlite.set_progress_handler(None, 1)
    assert taken[0] == taken[1] > 0


async def test_the_same_key_gives_the_same_sweep(store: Store, settings: Settings) -> None:
    first: list[SweepDetail] = [
        await submit_sweep(store, settings, {**RANGE, "trials": 2}, key="once") for _ in range(2)
    ]
    assert first[0].id == first[1].id


@POSTGRESQL_IN_FULL
async def test_a_sweep_that_cannot_be_advanced_says_so_and_stops_no_other(
    store: Store, settings: Settings, cluster: InProcessCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.script = Learning()
    broken = await submit_sweep(store, settings, {**RANGE, "trials": 1})
    async with store.write() as tx:
        await rows.change(tx, broken.id, 0, {"parameters": "none"})
    sweep = await submit_sweep(store, settings, {**RANGE, "trials": 1})
    async with dispatching(store, settings, cluster):
        assert (await sweep_ended(store, sweep)).state == "succeeded"
        found = await sweep_until(store, broken, lambda now: now.message is not None)
        assert found.message is not None and "AttributeError" in found.message and found.state == "running"
        assert f"{broken.id} could not be advanced" in caplog.text
        async with store.write() as tx:
            await rows.change(tx, broken.id, 0, {"parameters": {"train.optimizer.lr": 0.3}})
        found = await sweep_ended(store, broken)
    assert (found.state, found.message) == ("succeeded", None)


@POSTGRESQL_IN_FULL
async def test_a_sweep_whose_submissions_are_slow_keeps_no_other_from_its_trials(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, requested = settings.model_copy(update={"lease_s": 0.5}), submitting.requested
    slow, other = [await submit_sweep(store, settings, {**RANGE, "trials": 4}) for _ in range(2)]
    tried: list[str] = []

    async def submitted(store: Store, settings: Settings, spec: Any, *more: Any) -> Any:
        if spec.labels["shardyard/sweep"] != slow.id:
            return await requested(store, settings, spec, *more)
        tried.append(spec.labels["shardyard/trial"])
        await asyncio.sleep(0.6)
        raise FilesTooSlow("The files could not be checked.")

    monkeypatch.setattr(submitting, "requested", submitted)
    runner = SweepRunner(store, settings)
    for passes in range(1, 5):
        await runner.run_once()
        assert len(tried) == passes, "one in each pass"
    assert [bool(one.job) for one in await trials_of(store, other)] == [True] * 4
    assert not any(one.job for one in await trials_of(store, slow))
    assert sorted(tried) == ["0", "1", "2", "3"], "each trial has its turn"
