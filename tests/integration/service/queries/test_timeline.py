"""A job's life as spans of states with attempts and generations, on both databases."""

from shardyard.service.dispatch.admission import admit
from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.queries import timeline
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.store import leases
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from ..gang_events import AT_ONCE, event_batch, state
from .test_history import HISTORY, incident


async def test_a_life_is_spans_of_states_with_attempts_and_generations(
    store: Store, settings: Settings, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    await ingest(store, lease, 1, [*HISTORY, *event_batch(state("failed", "rank_lost"), first=13)], AT_ONCE)
    async with store.write() as tx:
        await leases.release(tx, [lease.token])
    (second,) = (await admit(store, settings, "a", None)).leases
    await ingest(store, second, 2, event_batch(state("starting"), state("running")))
    line = await timeline.read(store, job.id)
    assert line.complete
    known = [
        (span.state, span.attempt, span.generation) for span in line.spans if span.state not in ("queued", "placing")
    ]
    assert known[:6] == [
        ("starting", 1, 0),
        ("running", 1, 1),
        ("recovering", 1, 1),
        ("running", 1, 2),
        ("recovering", 1, 2),
        ("running", 1, 3),
    ]
    assert known[-2:] == [("starting", 2, 0), ("running", 2, 1)]
    assert line.spans[-1].ended is None
    for before, after in zip(line.spans, line.spans[1:], strict=False):
        assert before.ended is not None and before.begun <= before.ended
        assert before.ended == max(after.begun, before.begun)
    assert [(mark.kind, mark.about, mark.rank) for mark in line.marks] == [
        ("incident", "rank_lost", 1),
        ("repair", "rank_lost", None),
        ("incident", "straggler", 0),
        ("incident", "hang", 3),
        ("repair", "rank_lost", None),
    ]


async def test_a_long_life_begins_where_all_of_it_is_known(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    count = timeline.MOST + 50
    await ingest(store, lease, 1, event_batch(state("starting"), *(incident("straggler", n) for n in range(count))))
    line = await timeline.read(store, job.id)
    assert not line.complete
    assert [mark.rank for mark in line.marks] == list(range(50, count))
