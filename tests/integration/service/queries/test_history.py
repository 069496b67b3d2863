"""A job's history is read backwards to its first line, on both databases."""

import pytest

from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.errors import JobNotFound
from shardyard.service.queries import history as job_history
from shardyard.service.queries import jobs
from shardyard.service.schemas.job import Job
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from ..conftest import Submit
from ..gang_events import Events, event_batch, state, step


def incident(cause: str, rank: int | None = None, **more: object) -> tuple[str, dict[str, object]]:
    return "incident", {"cause": cause, "rank": rank, "message": "", **more}


def repair(generation: int) -> tuple[str, dict[str, object]]:
    data = {
        "cause": "rank_lost",
        "generation": generation,
        "restored": 1,
        "step": 2,
        "seconds": 0.5,
        "spares": [],
    }
    return "repair", data


HISTORY: Events = event_batch(
    state("starting"),
    state("running"),
    step(1),
    incident("rank_lost", 1),
    state("recovering", "rank_lost"),
    state("running", "repaired"),
    repair(2),
    incident("straggler", 0),
    incident("hang", 3, stacks=[{"ranks": [0, 1], "stack": "MainThread"}], nccl_ras=["rank 3 is considered dead"]),
    state("recovering", "hang"),
    state("running", "repaired"),
    repair(3),
)


async def test_a_story_is_read_back_to_its_first_line_past_all_that_is_none_of_it(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    evals = [("eval", {"step": n, "loss": 1.0}) for n in range(600)]
    saved = ("checkpoint", {"step": 1, "path": "/c/1", "bytes": 1, "seconds": 0.1, "held_s": 0.0})
    hang = incident("hang", 3, stacks=[{"ranks": [0], "stack": "MainThread"}], waiting=[], nccl_ras=[], log=["a line"])
    await ingest(store, lease, 1, event_batch(state("starting"), state("running"), hang, *evals, saved, repair(2)))
    for limit in (1, 2, 100):
        lines, before = [], None
        while True:
            page = await job_history.history(store, job.id, before=before, limit=limit)
            lines += page.items
            before = page.next
            if before is None:
                break
        about = [line.data["state"] if line.kind == "state" else line.kind for line in lines]
        assert about == ["repair", "checkpoint", "incident", "running", "starting", "placing", "queued"]
    assert lines[-1].position == 1
    assert lines[2].data == {"cause": "hang", "rank": 3, "message": ""}
    with pytest.raises(JobNotFound):
        await job_history.history(store, "absent")


async def test_a_job_knows_whose_checkpoint_it_began_with(store: Store, submit: Submit) -> None:
    parent = "job-01kagz3v0000000000000000ab"
    for resume_from, expected in (
        (None, None),
        (f"/somewhere/checkpoints/{parent}/step-00000020", parent),
        ("s3://bucket/own-folder/step-00000020", None),
    ):
        job = await submit(resume_from=resume_from)
        assert job.parent == expected == (await jobs.get_job(store, job.id)).parent
