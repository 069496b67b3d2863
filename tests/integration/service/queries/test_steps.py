"""Steps in buckets keep their extremes."""

import random
from collections.abc import Iterable
from itertools import pairwise

import pytest
from sqlalchemy import update

from shardyard.service.queries import steps
from shardyard.service.store import events, rollups
from shardyard.service.store import steps as step_rows
from shardyard.service.store.engine import Store
from shardyard.service.store.tables import jobs as jobs_table
from shardyard.service.store.tables import steps as steps_table

from ..conftest import Submit
from .test_jobs import _fill_steps


async def _fill(store: Store, job_id: str, losses: dict[int, float | None]) -> None:
    """Steps with their roll-ups, as the ingest leaves them."""
    await _fill_steps(store, job_id, losses)
    async with store.write() as tx:
        await rollups.extend(tx, job_id, min(losses), max(losses))


def _naive_extremes(losses: dict[int, float | None], low: int, high: int, buckets: int) -> set[int]:
    """First, last, and each range's steps of lowest and highest loss, as one would write it in Python."""
    first, width, _ = step_rows.ranges_of(low, high, buckets)
    starts = range(first, high + 1, width)
    assert len(starts) <= buckets and first <= low
    chosen = {low, high}
    for start in starts:
        inside = [
            (loss, step)
            for step in range(max(low, start), min(start + width, high + 1))
            if (loss := losses.get(step)) is not None
        ]
        if inside:
            chosen |= {min(inside)[1], min((-loss, step) for loss, step in inside)[1]}
    return chosen & {*losses}


async def test_downsampling_keeps_every_ranges_extremes(store: Store, submit: Submit) -> None:
    job = await submit()
    losses: dict[int, float | None] = {step: 10 / step + 0.01 * (step % 7) for step in range(1, 5001)}
    losses |= {1234: 99.0, 3333: -5.0, 2000: None}
    await _fill(store, job.id, losses)
    for most in (2, 3, 10, 30, 100, 1000):
        thinned = await steps.metrics(store, job.id, max_points=most)
        assert thinned.downsampled and thinned.last_step == 5000
        assert len(thinned.points) <= max(most, 4)
        seen = [point.step for point in thinned.points]
        assert seen == sorted(set(seen)) and seen[0] == 1 and seen[-1] == 5000
        assert set(seen) == _naive_extremes(losses, 1, 5000, max(1, (most - 2) // 2))
        assert all(point.loss == losses[point.step] for point in thinned.points)
    rest = await steps.metrics(store, job.id, since=4990, max_points=10)
    assert (rest.downsampled, [point.step for point in rest.points]) == (False, list(range(4991, 5001)))
    nothing = await steps.metrics(store, job.id, since=5000)
    assert (nothing.points, nothing.last_step) == ([], 5000)


@pytest.mark.parametrize(("every", "buckets"), [(1, (1, 4, 7, 40)), (20, (4, 30))])
async def test_extremes_by_roll_ups_are_those_of_the_steps(
    store: Store, submit: Submit, every: int, buckets: tuple[int, ...]
) -> None:
    """With equal losses, with losses that are not known over whole roll-ups, and with steps beyond the newest, which do not count."""
    job = await submit()
    drawn = random.Random(7)
    losses: dict[int, float | None] = {
        step: drawn.choice([None, *map(float, range(-40, 40))]) for step in range(1, 9000 * every, every)
    }
    losses |= dict.fromkeys([step for step in losses if 2000 * every < step < 2400 * every])
    await _fill(store, job.id, losses)
    numbers = [*losses]
    async with store.read() as tx:
        for low, high in ((1, numbers[-1]), (numbers[700], numbers[8200])):
            for count in buckets:
                found = [row["step"] for row in await step_rows.extremes(tx, job.id, low, high, count)]
                assert found == sorted(_naive_extremes(losses, low, high, count))


async def test_wide_ranges_are_read_by_their_roll_ups(store: Store, submit: Submit) -> None:
    """Each step was read twice: a second for a million of them, whenever the dashboard asked again."""
    job = await submit()
    await _fill(store, job.id, {step: 1 / step for step in range(1, 5001)})
    async with store.write() as tx:  # no roll-up has it
        await tx.execute(update(steps_table).where(steps_table.c.step == 2500).values(loss=99.0))
        found = await step_rows.extremes(tx, job.id, 1, 5000, 10)
    assert 2500 not in {row["step"] for row in found}
    of_one = await steps.metrics(store, job.id, since=100, max_points=2)  # as `shardyard compare` reads one step
    assert [point.step for point in of_one.points] == [101, 5000], "a range that is cut consists of roll-ups too"


async def _validate(store: Store, job_id: str, numbers: Iterable[int], loss: float) -> None:
    async with store.write() as tx:
        row = {"attempt": 1, "kind": "eval", "ts": 0.0, "actor": ""}
        await events.append(tx, job_id, [{**row, "data": {"step": number, "loss": loss}} for number in numbers])


async def test_a_whole_range_has_all_of_its_validations(store: Store, submit: Submit) -> None:
    """Those of the whole job were thinned first, although no step of the range was left out."""
    job = await submit()
    await _fill(store, job.id, dict.fromkeys(range(1, 3001), 1.0))
    await _validate(store, job.id, range(2, 3201, 2), 9.0)
    await _validate(store, job.id, range(2800, 3001, 2), 2.0)  # of an attempt from an older checkpoint
    async with store.write() as tx:
        await tx.execute(update(jobs_table).where(jobs_table.c.id == job.id).values(step=3000))
    late = await steps.metrics(store, job.id, since=2900, max_points=100)
    assert not late.downsampled
    assert [(one.step, one.loss) for one in late.evals] == [(step, 2.0) for step in range(2902, 3001, 2)]


async def test_a_thinned_range_loses_no_validation_to_an_attempt_that_was_replaced(
    store: Store, submit: Submit
) -> None:
    """The limit was compared with all that were ever made, and what was then left out of them was not counted again."""
    job = await submit()
    await _fill(store, job.id, dict.fromkeys(range(1, 3001), 1.0))
    await _validate(store, job.id, range(10, 10_001, 10), 9.0)
    await _validate(store, job.id, range(10, 3001, 10), 2.0)  # of an attempt from the beginning
    async with store.write() as tx:
        await tx.execute(update(jobs_table).where(jobs_table.c.id == job.id).values(step=3000))
    late = await steps.metrics(store, job.id, since=1000, max_points=300)
    assert late.downsampled
    assert [(one.step, one.loss) for one in late.evals] == [(step, 2.0) for step in range(1010, 3001, 10)]
    few = await steps.metrics(store, job.id, max_points=100)
    assert 50 < len(few.evals) <= 100 and {one.loss for one in few.evals} == {2.0}
    fewest = await steps.metrics(store, job.id, max_points=4)
    assert [one.step for one in fewest.evals][:: len(fewest.evals) - 1] == [10, 3000] and len(fewest.evals) <= 4


async def test_of_removed_steps_the_validations_stay_bounded(store: Store, submit: Submit) -> None:
    """Metrics are removed by their own age, sooner than events."""
    job = await submit()
    await _validate(store, job.id, range(10, 5001, 10), 2.0)
    found = await steps.metrics(store, job.id, max_points=100)
    assert (found.points, found.downsampled) == ([], False)
    seen = [one.step for one in found.evals]
    assert 50 < len(seen) <= 100 and (seen[0], seen[-1]) == (10, 5000)


@pytest.mark.parametrize("apart", [1, 7])
async def test_validations_are_thinned_evenly_between_the_first_and_the_last(
    store: Store, submit: Submit, apart: int
) -> None:
    """Between two there may be events of other kinds. What is read grows with what is returned."""
    job, other = (await submit()).id, (await submit()).id
    kinds = ["eval", *["warning"] * (apart - 1)]
    for owner, count in ((job, 500), (other, 3)):
        async with store.write() as tx:
            rows = [(1, kind, 0.0, "", {"step": number}) for number in range(1, count + 1) for kind in kinds]
            names = ("attempt", "kind", "ts", "actor", "data")
            await events.append(tx, owner, [dict(zip(names, row, strict=True)) for row in rows])
    async with store.read() as tx:
        for most in (2, 3, 10, 100, 499, 500):
            found = [row["data"]["step"] for row in await events.of_kind(tx, job, "eval", most)]
            assert found == sorted(set(found)) and found[0] == 1 and found[-1] == 500
            assert most / 2 < len(found) <= most
            apart_at_most = -(-499 // (most - 1)) + (apart > 1)
            assert all(then - one <= apart_at_most for one, then in pairwise(found))
        assert len(await events.of_kind(tx, other, "eval", 2)) == 2
        assert [row["data"]["step"] for row in await events.of_kind(tx, other, "eval", 3)] == [1, 2, 3]
        assert await events.of_kind(tx, other, "summary", 2) == []
