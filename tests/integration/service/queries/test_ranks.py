"""What each rank did lately, from a gang's word to an answer: bounded per job, and never over 300 kB at once."""

import random
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from harness.rank_metrics import rank_metrics_of
from pydantic_core import to_json

from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.jobs.pause import pause
from shardyard.service.jobs.reshard import reshard
from shardyard.service.jobs.submit import cancel
from shardyard.service.queries import live_tail, ranks
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.job import Job
from shardyard.service.schemas.live_tail import Scope
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.store import rank_samples
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.store.packing.rank_sample import row_of
from shardyard.strategies.layout import Layout
from shardyard.workers.messages.event import RankMetricsEvent, read

from ..conftest import Submit
from ..gang_events import event_batch, state, step
from ..traced_gang import TracedGang

MOST_BYTES = 300_000


async def test_a_gangs_samples_are_kept_beside_its_events(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    events = event_batch(
        state("starting"),
        state("running"),
        step(1),
        ("rank_metrics", rank_metrics_of(1)),
        step(2),
        ("rank_metrics", rank_metrics_of(1, 2)),
    )
    for cut in (4, 6, 6):
        await ingest(store, lease, 1, events[:cut])
    page = await ranks.samples(store, job.name)
    assert [(one.position, one.step, one.attempt) for one in page.items] == [(2, 2, 1), (1, 1, 1)]
    assert (page.first, page.last, page.next) == (1, 2, None)
    assert (page.items[0].busy_s, page.items[0].memory, page.items[0].nodes) == ([0.05], [1 << 30], ["n"])
    assert page.items[0].axes == {"pipeline": 1, "data": 1, "context": 1, "tensor": 1}
    kinds = {item.kind for item in (await live_tail.tail(store, job.id, Cursor(), limit=100)).items}
    assert "rank_metrics" not in kinds


async def test_a_rank_is_slow_after_several_samples_however_they_come(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    events = event_batch(state("starting"), *(("rank_metrics", rank_metrics_of(2, n, slow=1)) for n in range(1, 6)))
    for cut in (2, 3, 6):
        await ingest(store, lease, 1, events[:cut])
    page = await ranks.samples(store, job.id)
    assert [one.slow.rank if one.slow else None for one in page.items] == [1, 1, 1, None, None]


@pytest.mark.parametrize("then", [None, pause, cancel])
async def test_samples_of_a_gang_that_ends_for_another_layout_have_none(
    store: Store, settings: Settings, gang: TracedGang, then: Callable[..., Awaitable[Job]] | None
) -> None:
    """Its job has the next layout already, here of as many ranks."""
    sample = ("rank_metrics", rank_metrics_of(2))
    await gang.emit(sample)
    spec = gang.job.spec | {"train": gang.job.spec["train"] | {"layout": {"tensor": 2}}}
    await reshard(store, settings, gang.job.id, JobSpec.model_validate(spec), "tester")
    if then is not None:
        await then(store, gang.job.id, "tester")
    await gang.emit(sample)
    later, first = (await ranks.samples(store, gang.job.id)).items
    assert first.axes == {"pipeline": 1, "data": 2, "context": 1, "tensor": 1}
    assert (later.axes, later.parts) == (None, None)


async def test_what_is_no_sample_is_reported_as_an_incident(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    await ingest(store, lease, 1, event_batch(state("starting"), ("rank_metrics", {"step": 1, "steps": 1})))
    items = (await live_tail.tail(store, job.id, Cursor())).items
    assert [item.data["cause"] for item in items if item.kind == "incident"] == ["invalid_event"]
    assert (await ranks.samples(store, job.id)).items == []


async def test_a_stream_gets_the_newest_sample_once(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    await ingest(
        store, lease, 1, event_batch(state("starting"), *(("rank_metrics", rank_metrics_of(1, n)) for n in (1, 2, 3)))
    )
    tail = await live_tail.tail(store, job.id, Cursor(), Scope(ranks=True))
    assert [item.data["step"] for item in tail.items if item.kind == "rank_metrics"] == [3]
    again = await live_tail.tail(store, job.id, Cursor.parse(str(tail.cursor)), Scope(ranks=True))
    assert again.items == []
    await ingest(store, lease, 1, event_batch(("rank_metrics", rank_metrics_of(1, 4)), first=5))
    more = await live_tail.tail(store, job.id, tail.cursor, Scope(ranks=True))
    assert [(item.kind, item.data["position"]) for item in more.items] == [("rank_metrics", 4)]


async def test_of_a_long_job_the_older_half_is_thinned(store: Store, submit: Submit) -> None:
    job = await submit()
    for first in range(0, 5000, 500):
        rows = [
            row_of(float(n), 1, Layout(), read(RankMetricsEvent, rank_metrics_of(1, n)))
            for n in range(first + 1, first + 501)
        ]
        async with store.write() as tx:
            await rank_samples.append(tx, job.id, rows)
    async with store.read() as tx:
        kept = [row["position"] for row in await rank_samples.before(tx, job.id, None, 10_000)]
    assert rank_samples.ROOM <= len(kept) <= rank_samples.MOST
    assert kept[:800] == list(range(5000, 4200, -1)), "the newest are as close as they were reported"
    assert kept[-1] == 1, "the first stays"
    gaps = [later - earlier for later, earlier in pairwise(kept)]
    assert max(gaps) <= 8, "and nowhere is a hole"


@pytest.mark.parametrize(("size", "samples"), [(1, 1500), (512, 2000), (4096, 3)])
async def test_no_answer_is_over_300_kb(store: Store, submit: Submit, size: int, samples: int) -> None:
    """512 ranks on 64 nodes with 2,000 samples stored; a page of a job of one rank; and the largest gang that reports any."""
    job = await submit()
    layout = Layout(data=size // 8 or 1, tensor=min(8, size))
    chosen = random.Random(1)
    rows = [
        row_of(1.7e9 + n, 1, layout, read(RankMetricsEvent, _random_sample(chosen, size, 10**6 + n)))
        for n in range(min(samples, 12))
    ]
    async with store.write() as tx:
        await rank_samples.append(tx, job.id, [rows[n % len(rows)] for n in range(samples)])
    assert sum(len(row["packed"]) for row in rows) / len(rows) < 20 * size + 600
    before, seen = None, 0
    for _ in range(3):
        page = await ranks.samples(store, job.id, before=before, limit=1000)
        assert 0 < len(to_json(page)) < MOST_BYTES
        before, seen = page.next, seen + len(page.items)
        if before is None:
            break
    assert seen >= min(samples, 3)


def _random_sample(chosen: random.Random, size: int, step: int) -> dict[str, Any]:
    seconds = lambda: [float(f"{chosen.uniform(0.01, 3):.4g}") for _ in range(size)]  # noqa: E731
    lists = {"step_s": seconds(), "busy_s": seconds(), "wait_s": seconds()}
    memory = [chosen.randrange(80 << 30) for _ in range(size)]
    where = {"nodes": [f"{n:056x}" for n in range(-(-size // 8))], "node_of": [rank // 8 for rank in range(size)]}
    return {"step": step, "steps": 25, **lists, "memory": memory, "memory_of": "allocated", **where}


async def test_pages_go_back_to_the_first_sample(store: Store, submit: Submit) -> None:
    job = await submit()
    async with store.write() as tx:
        await rank_samples.append(
            tx,
            job.id,
            [row_of(float(n), 1, Layout(), read(RankMetricsEvent, rank_metrics_of(1, n))) for n in range(1, 6)],
        )
    first = await ranks.samples(store, job.id, limit=2)
    assert ([one.step for one in first.items], first.next) == ([5, 4], 4)
    second = await ranks.samples(store, job.id, before=first.next, limit=3)
    assert ([one.step for one in second.items], second.next) == ([3, 2, 1], None)


async def test_a_job_without_samples_has_an_empty_page(store: Store, submit: Submit) -> None:
    page = await ranks.samples(store, (await submit()).id)
    assert (page.items, page.first, page.last, page.next) == ([], None, None, None)
