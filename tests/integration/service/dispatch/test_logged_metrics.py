"""What programs log: stored exactly once, in bounded memory, and read as what it was."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from harness.events import logged

from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.queries import logged_metrics as queries
from shardyard.service.queries.incidents import incidents
from shardyard.service.schemas.job import Job
from shardyard.service.store import logged_metrics
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.store.packing import metric_curve
from shardyard.workers.messages.metric_block import MOST_RESTARTS

from ..gang_events import Events, event_batch, state, step


def loss(*steps: int, value: float = 1.0, generation: int = 1, rank: int = 0, restarts: int = 0) -> tuple[str, Any]:
    return logged({"loss": [(step, value) for step in steps]}, rank, generation, restarts)


async def curve_of(store: Store, job: Job, name: str = "loss", **wanted: Any) -> dict[int, float | None]:
    found = (await queries.curves(store, job.id, [name], **wanted)).series[name]
    return dict(zip(found.starts, found.mean, strict=True))


async def test_a_batch_that_comes_again_changes_nothing(store: Store, placed: tuple[Job, Lease]) -> None:
    """Ranks' values at a step are one point. A later generation replaces from its first step on."""
    job, lease = placed
    batch = event_batch(
        state("starting"), state("running"), loss(1, 2, 3), loss(1, 2, 3, value=3.0, rank=1), loss(3, 4, value=7.0, generation=2)
    )  # fmt: skip
    for cut in (3, 2, 4, 4, 5, 5):
        await ingest(store, lease, 1, batch[:cut])
    assert await curve_of(store, job) == {1: 2.0, 2: 2.0, 3: 7.0, 4: 7.0}
    found = (await queries.curves(store, job.id, ["loss"])).series["loss"]
    assert (found.low, found.high, found.width, found.last, found.last_step) == (
        [1.0, 1.0, 7.0, 7.0],
        [3.0, 3.0, 7.0, 7.0],
        1,
        7.0,
        4,
    )


@POSTGRESQL_IN_FULL
async def test_what_ranks_log_again_after_a_restart_by_torchrun_replaces(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    """A generation is newer than all restarts of the one before."""
    job, lease = placed
    batch = event_batch(
        loss(*range(100), value=5.0),
        loss(*range(20), value=0.5, restarts=1),
        loss(99, value=7.0),
        loss(9, 10, value=3.0, restarts=MOST_RESTARTS + 5),
        loss(10, value=2.0, generation=2),
    )
    await ingest(store, lease, 1, batch[:3])
    assert await curve_of(store, job) == dict.fromkeys(range(20), 0.5)
    await ingest(store, lease, 1, batch)
    assert await curve_of(store, job) == dict.fromkeys(range(9), 0.5) | {9: 3.0, 10: 2.0}


@POSTGRESQL_IN_FULL
async def test_what_a_model_logs_is_in_its_steps_and_is_stored_once(store: Store, placed: tuple[Job, Lease]) -> None:
    """A step comes once from an attempt, whatever its generations did again."""
    job, lease = placed
    of_model = [("step", {**step(at)[1], "logged": {"aux": value}}) for at, value in ((1, 2.0), (2, None), (4, 6.0))]
    batch = event_batch(state("starting"), state("running"), *of_model, step(5))
    for cut in (3, 2, 5, 6, 6):
        await ingest(store, lease, 1, batch[:cut])
    assert await curve_of(store, job, "aux") == {1: 2.0, 4: 6.0}


async def test_long_curves_of_many_names_equal_what_was_logged(
    store: Store, placed: tuple[Job, Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small buckets, drawn batches, starts again: every bucket has the extremes and the mean of its steps' newest values."""
    monkeypatch.setattr(metric_curve, "BUCKETS", 64)
    monkeypatch.setattr(metric_curve, "CHUNK", 16)
    job, lease = placed
    draw = random.Random(5)
    seen: dict[str, dict[int, float]] = {name: {} for name in ("a", "b/c", "größe %_")}
    generation, seq, at = 1, 1, dict.fromkeys(seen, 0)
    events: Events = []
    for _ in range(60):
        if draw.random() < 0.1:
            generation += 1
            at = {name: draw.randint(0, at[name]) for name in seen}
            for name, start in at.items():
                seen[name] = {step: value for step, value in seen[name].items() if step < start}
        points: dict[str, list[tuple[int, float | None]]] = {}
        for name, values in seen.items():
            for _ in range(draw.randint(1, 9)):
                value = draw.uniform(-1, 1)
                values[at[name]] = value
                points.setdefault(name, []).append((at[name], value))
                at[name] += draw.randint(1, 4)
        events = event_batch(logged(points, generation=generation), first=seq)
        seq += 1
        await ingest(store, lease, 1, events)
        await ingest(store, lease, 1, events)
    found = (await queries.curves(store, job.id, list(seen), buckets=800)).series
    for name, values in seen.items():
        curve = found[name]
        assert curve.width > 1 and len(curve.starts) <= 64
        assert curve.last_step == max(values)
        first = 1 if generation > 1 else 0  # the bucket in which a generation began may have more
        for at_, mean in list(zip(curve.starts, curve.mean, strict=True))[first:]:
            mine = [value for step, value in values.items() if at_ <= step < at_ + curve.width]
            low, high = (bound[curve.starts.index(at_)] if bound else mean for bound in (curve.low, curve.high))
            assert low is not None and high is not None and mean is not None
            assert low <= min(mine) + 1e-5 and high >= max(mine) - 1e-5
            assert min(mine) - 2 <= mean <= max(mine) + 2


@POSTGRESQL_IN_FULL
async def test_a_range_is_read_in_as_many_buckets_as_are_asked_for(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    spike = logged({"x": [(step, 100.0 if step == 777 else 1.0) for step in range(1000)]})
    await ingest(store, lease, 1, event_batch(spike))
    assert await curve_of(store, job, "x", low=770, high=779) == {
        s: 100.0 if s == 777 else 1.0 for s in range(770, 780)
    }
    coarse = (await queries.curves(store, job.id, ["x"], buckets=10)).series["x"]
    assert len(coarse.starts) <= 10 and coarse.high is not None and max(v or 0 for v in coarse.high) == 100.0
    assert (await queries.curves(store, job.id, ["x", "absent", "\0"], low=5000)).series["x"].starts == []


async def test_names_are_listed_in_pages_and_found_by_a_part(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    names = [f"train/layer{number:02}" for number in range(25)] + ["val/acc", "100%_Sure"]
    await ingest(store, lease, 1, event_batch(logged({name: [(1, None), (0, 0.5)] for name in names})))
    first = await queries.page(store, job.id, text=None, after=None, limit=20)
    rest = await queries.page(store, job.id, text=None, after=first.next, limit=20)
    assert [one.name for one in (*first.items, *rest.items)] == sorted(names) and rest.next is None
    found = await queries.page(store, job.id, text="%_s", after=None, limit=20)
    assert [(one.name, one.last_step, one.last, one.width) for one in found.items] == [("100%_Sure", 1, None, 1)]


@pytest.mark.parametrize("firsts", [(0, 15, 30, 45), (0, 10, 20, 30)], ids=["within a batch", "at its end"])
async def test_a_job_has_a_bounded_number_of_names(
    store: Store, placed: tuple[Job, Lease], monkeypatch: pytest.MonkeyPatch, firsts: Sequence[int]
) -> None:
    """The first ones are stored, and one incident says that others are not."""
    monkeypatch.setattr(logged_metrics, "MOST_NAMES", 30)
    job, lease = placed
    batch = event_batch(*(logged({f"n{number}": [(1, 1.0)] for number in range(at, at + 20)}) for at in firsts))
    for cut in (1, 2, 3, 4):
        await ingest(store, lease, 1, batch[:cut])
    assert len((await queries.page(store, job.id, text=None, after=None, limit=100)).items) == 30
    reported = [one for one in (await incidents(store, job.id)).items if one.cause == "metrics_dropped"]
    assert len(reported) == 1 and "n30" in reported[0].message
