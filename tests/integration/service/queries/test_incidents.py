"""Incidents of a job, newest first, each with its own repair."""

import pytest

from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.errors import JobNotFound
from shardyard.service.queries import incidents
from shardyard.service.schemas.job import Job
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.store.tables import events

from ..gang_events import event_batch, state
from .test_history import HISTORY, incident, repair


async def test_incidents_are_read_from_the_newest_page_by_page_with_their_own_repairs(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    await ingest(store, lease, 1, HISTORY)
    forwards = (await incidents.incidents(store, job.id)).items
    assert [(one.cause, one.repair and one.repair.generation) for one in forwards] == [
        ("rank_lost", 2),
        ("straggler", None),
        ("hang", 3),
    ]
    assert [one.nccl_ras for one in forwards] == [[], [], ["rank 3 is considered dead"]]
    for limit in (1, 2, 3, 10):
        backwards, before = [], None
        while True:
            page = await incidents.newest(store, job.id, before=before, limit=limit)
            backwards += page.items
            before = page.next
            if before is None:
                break
        assert backwards == forwards[::-1]
    with pytest.raises(JobNotFound):
        await incidents.newest(store, "absent")


async def test_a_repair_of_a_later_incident_is_not_an_earlier_ones(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    await ingest(
        store, lease, 1, event_batch(state("starting"), incident("rank_lost", 1), incident("rank_lost", 2), repair(2))
    )
    newest = (await incidents.newest(store, job.id, limit=1)).items
    older = (await incidents.newest(store, job.id, before=newest[0].position, limit=1)).items
    assert [one.repair is not None for one in (*newest, *older)] == [True, False]


async def test_a_repair_of_a_later_attempt_is_not_an_earlier_ones(store: Store, placed: tuple[Job, Lease]) -> None:
    """However few incidents a page has: a straggler has no repair of its own."""
    job, lease = placed
    lost = [incident("rank_lost", 1), incident("straggler", 1), incident("node_lost", 2), repair(2)]
    await ingest(store, lease, 1, event_batch(state("starting"), *lost))
    async with store.write() as tx:
        later = events.c.kind.in_(["node_lost", "repair"]) | (events.c.data["cause"].as_string() == "node_lost")
        await tx.execute(events.update().where(later).values(attempt=2))
    for limit in (1, 2, 3):
        found = (await incidents.incidents(store, job.id, limit=limit)).items
        assert [one.repair is not None for one in found] == [False, False, True][:limit]


async def test_a_supervisors_death_takes_no_repair_from_the_incident_before(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    said = [incident("node_lost", 1), incident("supervisor_lost", 2), repair(2)]
    await ingest(store, lease, 1, event_batch(state("starting"), *said))
    found = (await incidents.incidents(store, job.id)).items
    assert [(one.cause, one.repair is not None) for one in found] == [("node_lost", True), ("supervisor_lost", False)]


async def test_nodes_that_died_together_have_one_repair(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    lost = [incident("node_lost", generation=at) for at in (1, 1, 2, 3)]
    await ingest(store, lease, 1, event_batch(state("starting"), *lost[:2], repair(2), *lost[2:], repair(4)))
    found = (await incidents.incidents(store, job.id)).items
    assert [one.repair and one.repair.generation for one in found] == [2, 2, None, 4]


async def test_files_beyond_the_limits_take_no_repair_from_the_incident_before(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    said = [incident("rank_lost", 1), incident("artifacts_dropped", 1), repair(2)]
    await ingest(store, lease, 1, event_batch(state("starting"), *said))
    found = (await incidents.newest(store, job.id)).items
    assert [(one.cause, one.repair is not None) for one in found] == [("artifacts_dropped", False), ("rank_lost", True)]
