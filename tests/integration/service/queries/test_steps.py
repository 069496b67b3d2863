"""Steps in buckets keep their extremes."""

from itertools import pairwise

import pytest

from shardyard.service.queries import steps
from shardyard.service.store import events
from shardyard.service.store.engine import Store

from ..conftest import Submit
from .test_jobs import _fill_steps


def _naive_extremes(losses: dict[int, float | None], buckets: int) -> set[int]:
    """First, last, and each bucket's steps of lowest and highest loss, as one would write it in Python."""
    low, high = min(losses), max(losses)
    width = -(-(high - low + 1) // buckets)
    chosen = {low, high}
    for start in range(low, high + 1, width):
        inside = [
            (loss, step) for step in range(start, min(start + width, high + 1)) if (loss := losses[step]) is not None
        ]
        chosen |= {min(inside)[1], min((-loss, step) for loss, step in inside)[1]}
    return chosen


async def test_downsampling_keeps_every_buckets_extremes(store: Store, submit: Submit) -> None:
    job = await submit()
    losses: dict[int, float | None] = {step: 10 / step + 0.01 * (step % 7) for step in range(1, 5001)}
    losses |= {1234: 99.0, 3333: -5.0, 2000: None}
    await _fill_steps(store, job.id, losses)
    for most in (2, 3, 10, 100, 1000):
        thinned = await steps.metrics(store, job.id, max_points=most)
        assert thinned.downsampled and thinned.last_step == 5000
        assert len(thinned.points) <= max(most, 4)
        seen = [point.step for point in thinned.points]
        assert seen == sorted(set(seen)) and seen[0] == 1 and seen[-1] == 5000
        assert set(seen) == _naive_extremes(losses, max(1, (most - 2) // 2))
        assert all(point.loss == losses[point.step] for point in thinned.points)
    rest = await steps.metrics(store, job.id, since=4990, max_points=10)
    assert (rest.downsampled, [point.step for point in rest.points]) == (False, list(range(4991, 5001)))
    nothing = await steps.metrics(store, job.id, since=5000)
    assert (nothing.points, nothing.last_step) == ([], 5000)


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
