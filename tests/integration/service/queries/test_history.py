"""A job's story read backwards and as a line, on both databases."""

import pytest

from shardyard.service.dispatch.admission import admit
from shardyard.service.dispatch.event_ingest import take_in
from shardyard.service.errors import JobNotFound
from shardyard.service.queries import history as told_story
from shardyard.service.queries import incidents, jobs, timeline
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import leases
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from ..dispatch.test_event_ingest import AT_ONCE, Events, placed, state, step, told

__all__ = ["placed"]  # a fixture


def incident(cause: str, rank: int | None = None, **more: object) -> tuple[str, dict[str, object]]:
    return "incident", {"cause": cause, "rank": rank, "message": "", **more}


def repair(generation: int) -> tuple[str, dict[str, object]]:
    told = {"cause": "rank_lost", "generation": generation, "restored": 1, "step": 2, "seconds": 0.5, "spares": []}
    return "repair", told


STORY: Events = told(
    state("starting"),
    state("running"),
    step(1),
    incident("rank_lost", 1),
    state("recovering", "rank_lost"),
    state("running", "repaired"),
    repair(2),
    incident("straggler", 0),
    incident("hang", 3, stacks=[{"ranks": [0, 1], "stack": "MainThread"}]),
    state("recovering", "hang"),
    state("running", "repaired"),
    repair(3),
)


async def test_incidents_are_read_from_the_newest_page_by_page_with_their_own_repairs(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    await take_in(store, lease, 1, STORY)
    forwards = (await incidents.incidents(store, job.id)).items
    assert [(one.cause, one.repair and one.repair.generation) for one in forwards] == [
        ("rank_lost", 2),
        ("straggler", None),
        ("hang", 3),
    ]
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
        await incidents.newest(store, "nobody")


async def test_a_repair_of_a_later_incident_is_not_an_earlier_ones(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    await take_in(
        store, lease, 1, told(state("starting"), incident("rank_lost", 1), incident("rank_lost", 2), repair(2))
    )
    newest = (await incidents.newest(store, job.id, limit=1)).items
    older = (await incidents.newest(store, job.id, before=newest[0].n, limit=1)).items
    assert [one.repair is not None for one in (*newest, *older)] == [True, False]


async def test_a_life_is_spans_of_states_with_attempts_and_generations(
    store: Store, settings: Settings, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    await take_in(store, lease, 1, [*STORY, *told(state("failed", "rank_lost"), first=13)], AT_ONCE)
    async with store.write() as tx:
        await leases.release(tx, [lease.token])
    (second,) = (await admit(store, settings, "a", None)).leases
    await take_in(store, second, 2, told(state("starting"), state("running")))
    line = await timeline.lifeline(store, job.id)
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
    await take_in(store, lease, 1, told(state("starting"), *(incident("straggler", n) for n in range(count))))
    line = await timeline.lifeline(store, job.id)
    assert not line.complete
    assert [mark.rank for mark in line.marks] == list(range(50, count))


async def test_a_story_is_read_back_to_its_first_line_past_all_that_is_none_of_it(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    evals = [("eval", {"step": n, "loss": 1.0}) for n in range(600)]
    saved = ("checkpoint", {"step": 1, "path": "/c/1", "bytes": 1, "seconds": 0.1, "held_s": 0.0})
    hang = incident("hang", 3, stacks=[{"ranks": [0], "stack": "MainThread"}], waiting=[], log=["a line"])
    await take_in(store, lease, 1, told(state("starting"), state("running"), hang, *evals, saved, repair(2)))
    for limit in (1, 2, 100):
        lines, before = [], None
        while True:
            page = await told_story.history(store, job.id, before=before, limit=limit)
            lines += page.items
            before = page.next
            if before is None:
                break
        about = [line.data["state"] if line.kind == "state" else line.kind for line in lines]
        assert about == ["repair", "checkpoint", "incident", "running", "starting", "placing", "queued"]
    assert lines[-1].n == 1
    assert lines[2].data == {"cause": "hang", "rank": 3, "message": ""}
    with pytest.raises(JobNotFound):
        await told_story.history(store, "nobody")


async def test_a_job_knows_whose_checkpoint_it_began_with(store: Store, placed: tuple[Job, Lease]) -> None:
    job, _ = placed
    assert job.parent is None
    parent = "job-01kagz3v0000000000000000ab"
    async with store.write() as tx:
        await job_rows.set_columns(tx, job.id, {"resume": f"/somewhere/checkpoints/{parent}/step-00000020"})
    assert (await jobs.get_job(store, job.id)).parent == parent
    async with store.write() as tx:
        await job_rows.set_columns(tx, job.id, {"resume": "s3://bucket/own-folder/step-00000020"})
    assert (await jobs.get_job(store, job.id)).parent is None
