"""The metric of a trial at its rungs, from the steps, validations and logged metrics that a gang reported."""

import math
from array import array
from typing import Any

import pytest

from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.schemas.job import Job
from shardyard.service.store import sweeps as rows
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.store.sweep_tables import sweeps
from shardyard.service.sweeps import metric_values
from shardyard.service.sweeps.metric_values import Metric, Passed
from shardyard.workers.messages.event import MetricsEvent, to_json
from shardyard.workers.messages.metric_block import MetricBlock, packed

from ..gang_events import event_batch, state, step
from ..traced_gang import TracedGang


def logged(name: str, *points: tuple[int, float], rank: int = 0) -> tuple[str, Any]:
    values = packed(array("d", [value for _, value in points]))
    block = MetricBlock((name,), tuple(at for at, _ in points), values)
    return "metrics", to_json(MetricsEvent(rank=rank, generation=1, blocks=(block,)))


async def at_rungs(
    store: Store, job: Job, metric: str, *rungs: int, logged: bool = False
) -> list[float | None] | Passed:
    """The values of a sweep whose only trial is this job."""
    sweep = {"id": "sweep-1", "name": "tune", "state": "running", "spec": {}, "sweep": {}, "trials": 1, "actor": "a"}
    async with store.write() as tx:
        if await rows.by_id(tx, "sweep-1") is None:
            trial = {"number": 0, "standing": "active", "parameters": {}, "job_id": job.id}
            assert await rows.create(tx, {**sweep, "created_at": 0.0}, [trial])
        await tx.execute(sweeps.update().values(sweep={"metric": metric}))
    async with store.read() as tx:
        (trial,) = await rows.busy(tx, ["sweep-1"])
        return await metric_values.at_rungs(tx, trial, Metric(metric, logged or metric == "acc"), rungs)


async def test_the_loss_at_a_rung_is_the_mean_of_the_last_tenth_before_it(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    await ingest(store, lease, 1, event_batch(state("starting"), state("running")))
    assert await at_rungs(store, job, "loss", 5, 40) == []
    await ingest(store, lease, 1, event_batch(*(step(at, float(at)) for at in range(1, 40)), first=3))
    assert await at_rungs(store, job, "loss", 5, 40) == [5.0]
    await ingest(store, lease, 1, event_batch(step(40, 40.0), step(41, 1e9), first=42))
    assert await at_rungs(store, job, "loss", 5, 40, 60) == [5.0, pytest.approx((37 + 38 + 39 + 40) / 4)]


async def test_a_trial_that_continues_a_checkpoint_after_a_rung_has_no_loss_there(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    await ingest(store, lease, 1, event_batch(state("starting"), state("running"), step(41, math.nan), step(42)))
    assert await at_rungs(store, job, "loss", 10, 42) == Passed(10)
    assert await at_rungs(store, job, "loss", 41, 60) == [None]


async def test_what_a_job_logs_counts_from_the_first_step_at_the_rung(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    points = [(1, 9.0), (4, 3.0), (7, 2.0), (8, math.nan)]
    await ingest(store, lease, 1, event_batch(state("starting"), state("running"), logged("acc", *points)))
    assert await at_rungs(store, job, "acc", 2, 7, 9) == [3.0, 2.0]
    assert await at_rungs(store, job, "acc", 8) == [None]
    assert await at_rungs(store, job, "other", 1, logged=True) == []


async def test_what_several_ranks_log_counts_once_all_have_sent_it(gang: TracedGang) -> None:
    store, job = gang.store, gang.job
    await gang.emit(logged("acc", (4, 1.0)))
    assert await at_rungs(store, job, "acc", 4) == []
    await gang.emit(logged("acc", (4, 2.0), rank=1))
    assert await at_rungs(store, job, "acc", 4) == [], "how many ranks log it shows with a later step"
    await gang.emit(logged("acc", (8, 5.0), rank=1))
    assert await at_rungs(store, job, "acc", 4, 8) == [1.5]
    await gang.emit(logged("acc", (8, 6.0)))
    assert await at_rungs(store, job, "acc", 4, 8) == [1.5, 5.5]


async def test_what_one_of_several_ranks_logs_counts_at_once_or_at_the_end(gang: TracedGang) -> None:
    store, job = gang.store, gang.job
    await gang.emit(logged("acc", (2, 1.0), (4, 2.0)), logged("once", (4, 3.0)))
    assert await at_rungs(store, job, "acc", 4) == [2.0]
    assert await at_rungs(store, job, "once", 4, logged=True) == []
    await gang.emit(state("succeeded"))
    assert await at_rungs(store, job, "once", 4, logged=True) == [3.0]


async def test_a_loss_that_a_program_logs_counts_as_any_metric_that_it_logs(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    await ingest(store, lease, 1, event_batch(state("starting"), state("running"), logged("loss", (1, 9.0), (4, 3.0))))
    assert await at_rungs(store, job, "loss", 2, 5, logged=True) == [3.0]


async def test_the_validation_loss_counts_once_the_model_was_validated_at_the_rung(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    await ingest(store, lease, 1, event_batch(state("starting"), state("running"), step(6), _eval(5, 2.5)))
    assert await at_rungs(store, job, "validation_loss", 5, 6) == [2.5]
    await ingest(store, lease, 1, event_batch(_eval(10, None), first=5))
    assert await at_rungs(store, job, "validation_loss", 6) == [None]
    # A dispatcher that was away finds several, and after a repair a later one of the same step.
    later = (step(30), _eval(20, 1.75), _eval(30, 1.0), _eval(20, 1.5))
    await ingest(store, lease, 1, event_batch(*later, first=6))
    assert await at_rungs(store, job, "validation_loss", 5, 15, 30, 31) == [2.5, 1.5, 1.0]


def _eval(at: int, loss: float | None) -> tuple[str, dict[str, Any]]:
    return "eval", {"step": at, "loss": loss, "unigram_loss": 5.0, "tokens": 10}


@pytest.mark.parametrize(
    ("metric", "trial", "value"),
    [
        (Metric("loss", False), {"summary": {"last_loss": 1.5}}, 1.5),
        (Metric("validation_loss", False), {"summary": {"last_loss": 1.5}}, None),
        (Metric("loss", True), {"summary": None, "metric_last": 0.5}, 0.5),
        (Metric("acc", True), {"summary": {}, "metric_last": None}, None),
    ],
)
def test_the_value_at_the_end(metric: Metric, trial: Any, value: float | None) -> None:
    assert metric_values.at_end(trial, metric) == value
