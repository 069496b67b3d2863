"""Curves equal those of the steps themselves, and cost as much as the buckets of their range; on both databases."""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from harness.live_server import HIGH, MILLION, SPIKE, store_million
from sqlalchemy import text, update

from shardyard.service.dispatch.admission import admit
from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.errors import JobNotFound
from shardyard.service.queries import curves, steps
from shardyard.service.schemas.curve import Curves
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.store import events, leases
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.store.tables import jobs

from ..conftest import Submit
from ..gang_events import AT_ONCE, event_batch, state, step

#: Batches and steps that take long, for one more level of roll-ups.
MORE = [(1, 300), (7, 2500)]
Losses = dict[int, float | None]


def naive(losses: Losses, width: int) -> list[tuple[int, float | None, float | None]]:
    """First step, lowest and highest loss of each bucket."""
    buckets: dict[int, list[float]] = {}
    for number, loss in losses.items():
        buckets.setdefault((number - 1) // width, []).extend([] if loss is None else [loss])
    found = sorted(buckets.items())
    return [(at * width + 1, min(of, default=None), max(of, default=None)) for at, of in found]


def bounds(curves: Curves) -> list[tuple[int, float | None, float | None]]:
    loss = curves.series["loss"]
    return list(zip(curves.starts, loss.low or loss.mean, loss.high or loss.mean, strict=True))


@pytest.mark.parametrize(
    ("batch", "count"),
    [(1, 120), (7, 300), (500, 2500), *(pytest.param(*more, marks=pytest.mark.full) for more in MORE)],
)
async def test_they_hold_the_extremes_of_each_bucket(
    store: Store, placed: tuple[Job, Lease], batch: int, count: int
) -> None:
    job, lease = placed
    rng = random.Random(batch)
    losses: Losses = {n: None if rng.random() < 0.1 else float(rng.randint(1, 9999)) for n in range(1, count + 1)}
    said = event_batch(state("starting"), state("running"), *(step(n, loss) for n, loss in losses.items()))  # type: ignore[arg-type]
    for at in range(0, len(said), batch):
        await ingest(store, lease, 1, said[at : at + batch])
    for low, high in ((1, None), (1, 40), (33, 64), (100, 101), (count - 50, None)):
        for buckets in (2, 3, 20, 77, 800):
            read = await curves.curves(store, job.id, ["loss"], low=low, high=high, buckets=buckets)
            shown = range((low - 1) // read.width * read.width + 1, count + 1)
            last = count if high is None else high
            whole = {n: losses[n] for n in shown if (n - 1) // read.width <= (last - 1) // read.width}
            assert bounds(read) == naive(whole, read.width)
            assert len(read.starts) <= buckets
            assert read.last_step == count
            assert (read.end, read.series["loss"].last) == (last, losses[last])


async def test_numbers_that_no_step_had_are_left_out_and_odd_ones_stop_no_reader(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    empty = await curves.curves(store, job.id, ["loss"])
    assert (empty.starts, empty.series, empty.last_step) == ([], {}, 0)
    huge = [step(n, loss) for n, loss in enumerate((1e308, 1e308, -1e308, float("nan"), 5e-324), start=1)]
    await ingest(
        store, lease, 1, event_batch(state("starting"), state("running"), *huge, ("eval", {"step": 2, "loss": 1.5}))
    )
    read = await curves.curves(store, job.id, curves.SERIES, buckets=2)
    assert set(read.series) == {"loss", "tokens_per_s", "step_s", "step_s_max"}
    assert bounds(read) == [(1, -1e308, 1e308), (5, 5e-324, 5e-324)]
    assert [(one.step, one.loss) for one in read.evals] == [(2, 1.5)]
    beyond = await curves.curves(store, job.id, ["loss"], low=50, high=60)
    assert (beyond.starts, beyond.end, beyond.last_step) == ([], 0, 5)
    with pytest.raises(JobNotFound):
        await curves.curves(store, "absent", ["loss"])


async def test_a_later_attempt_cuts_what_the_one_before_did_beyond_its_newest_step(
    store: Store, settings: Settings, placed: tuple[Job, Lease]
) -> None:
    """All of the first attempt stays until the second one, from an older checkpoint, has a step."""
    job, lease = placed
    first = [step(n, 2.0) for n in range(1, 51)] + [("eval", {"step": n, "loss": 1.5}) for n in (10, 50)]
    lost = [*first, state("failed", "node_lost")]
    await ingest(store, lease, 1, event_batch(state("starting"), state("running"), *lost), AT_ONCE)
    async with store.write() as tx:
        await leases.release(tx, [lease.token])
    (lease,) = (await admit(store, settings, "a", None)).leases
    begun = event_batch(state("starting"), state("running"), *(step(n, 3.0) for n in range(11, 21)))
    found = []
    for upto in (2, 3, 12):
        await ingest(store, lease, 2, begun[:upto])
        read = await curves.curves(store, job.id, ["loss"])
        points = await steps.metrics(store, job.id)
        assert [one.step for one in points.points] == read.starts == list(range(1, read.last_step + 1))
        assert points.evals == read.evals and points.last_step == read.end == read.last_step
        found.append((read.last_step, read.series["loss"].last, [one.step for one in read.evals]))
    assert found == [(50, 2.0, [10, 50]), (11, 3.0, [10]), (20, 3.0, [10])]
    wide = await curves.curves(store, job.id, ["loss"], buckets=3)
    assert bounds(wide) == [(1, 2.0, 3.0), (17, 2.0, 3.0)], "the bucket at the cut keeps both"
    assert (await curves.curves(store, job.id, ["loss"], low=30)).starts == []
    assert (await steps.metrics(store, job.id, since=30)).points == []


async def test_of_many_validations_the_extremes_stay(store: Store, submit: Submit) -> None:
    """Compare showed the lowest of 400 of them as the lowest of all. A loss can be unknown, and a later attempt replaces it."""
    job = await submit()
    losses: Losses = {10 * n: 2.0 + n / 1000 for n in range(1, 1001)}
    losses |= {3330: 0.5, 6660: None, 7770: 9.0}
    replaced: Losses = {3320: 0.1, 9990: 99.0, 10010: 0.2}
    said = [*replaced.items(), *losses.items()]
    async with store.write() as tx:
        rows = [{"kind": "eval", "data": {"step": number, "loss": loss}} for number, loss in said]
        await events.append(tx, job.id, [{"attempt": 1, "ts": 0.0, "actor": "", **row} for row in rows])
        await tx.execute(update(jobs).where(jobs.c.id == job.id).values(step=10_000))
    found = {one.step: one.loss for one in (await curves.curves(store, job.id, ["loss"])).evals}
    assert 200 < len(found) <= 400
    assert found.items() <= losses.items()
    assert {(3330, 0.5), (7770, 9.0), (10_000, 3.0)} <= {*found.items()}


@pytest.mark.parametrize(("counting", "read"), [(300, 300), (400, 400), (1200, 400)])
async def test_validations_of_an_attempt_that_was_replaced_thin_out_no_others(
    store: Store, submit: Submit, counting: int, read: int
) -> None:
    """Places of the replaced ones were spread over with the others, and then left out."""
    job = await submit()
    said = [(10 * n, 9.0) for n in range(1, 1001)] + [(10 * n, 2.0) for n in range(1, counting + 1)]
    async with store.write() as tx:
        rows = [{"kind": "eval", "data": {"step": number, "loss": loss}} for number, loss in said]
        await events.append(tx, job.id, [{"attempt": 1, "ts": 0.0, "actor": "", **row} for row in rows])
        await tx.execute(update(jobs).where(jobs.c.id == job.id).values(step=10 * counting))
    found = (await curves.curves(store, job.id, ["loss"])).evals
    assert {one.loss for one in found} == {2.0}
    numbers = [one.step for one in found]
    assert (numbers[0], numbers[-1]) == (10, 10 * counting) and read / 2 < len(numbers) <= read
    apart = 10 * -(-counting // (read - 2)) if counting > read else 10
    assert max(then - one for one, then in pairwise(numbers)) <= apart


@pytest.mark.full
async def test_a_spike_among_a_million_steps_is_reported_in_a_small_answer_at_once(
    store: Store, submit: Submit
) -> None:
    job = await submit(steps=MILLION)
    await store_million(store, job.id)
    if store.dialect == "postgresql":
        async with store.write() as tx:
            await tx.execute(text("ANALYZE"))

    async def read(**asked: Any) -> tuple[Curves, int]:
        found = await curves.curves(store, job.id, curves.SERIES, **asked)
        return found, len(found.model_dump_json())

    whole, size = await read(buckets=curves.MOST)
    assert whole.width == 2048 and set(whole.series) == set(curves.SERIES)
    assert max(whole.series["loss"].high or [0]) == HIGH
    assert size <= 300_000
    narrow: Sequence[int] = (SPIKE - 250, SPIKE + 249)
    part, size = await read(low=narrow[0], high=narrow[1], buckets=500)
    assert part.width == 1 and len(part.starts) == 500 and size <= 300_000
    assert part.series["loss"].mean[part.starts.index(SPIKE)] == HIGH
    async with store.write() as tx:
        gone = "DELETE FROM steps WHERE job_id = :job AND step BETWEEN 500001 AND 550000"
        await tx.execute(text(gone), {"job": job.id})
    again, _ = await read(buckets=curves.MOST)
    assert again.series == whole.series  # no step of a wide bucket is looked at
