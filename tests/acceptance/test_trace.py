"""A trace seen from outside: asked for while a job trains, it names the rank that is slow, and the training does not notice."""

import gzip
import json
from collections.abc import Iterator

import pytest
from harness.plane import Plane, running_plane, spec, until

SLOW, SLOW_MS, STEPS = 3, 100, 5


@pytest.fixture(scope="module")
def struck() -> Iterator[Plane]:
    """A control plane that lets faults be asked for."""
    with running_plane(SHARDYARD_FAULT_INJECTION="true") as plane:
        yield plane


@pytest.mark.slow
def test_a_trace_names_the_slow_rank(struck: Plane) -> None:
    layout = {"pipeline": 2, "data": 2, "zero": 1, "micro_batch": 1}
    with struck.client() as client:
        job = client.submit(spec("traced", steps=1_000_000, layout=layout, checkpoint={"final": False}))
        until(
            lambda: (seen := client.job(job.id)).state == "running" or seen.finished_at is not None,
            240,
            "the job to run",
        )
        assert client.job(job.id).state == "running", client.job(job.id)
        client.inject_fault(job.id, "slow-rank", rank=SLOW, by_ms=SLOW_MS, for_s=600)
        until(lambda: any(event.kind == "fault" for event in client.events(job.id)), 60, "the rank to be slow")
        trace = client.trace(job.id, steps=STEPS).id
        until(lambda: client.traces(job.id).items[0].state != "open", 120, "the trace")
        found = client.trace_summary(job.id, trace)
        assert found.trace.state == "done", found.trace
        assert len(found.steps) == STEPS and [rank.rank for rank in found.ranks] == [0, 1, 2, 3]
        for rank in found.ranks:
            assert sum(rank.sums.values()) == pytest.approx(rank.seconds, rel=0.02)
        assert found.slowest_rank == SLOW and (found.slower_by_s or 0) > SLOW_MS / 2000
        assert 0 <= (found.bubble_simulated or 0) < (found.bubble_measured or 0) < 1
        document = json.loads(gzip.decompress(client.perfetto(job.id, trace)))
        assert {one["pid"] for one in document["traceEvents"]} == {0, 1, 2, 3}
        client.cancel(job.id)
        assert client.wait(job.id, timeout_s=120).state == "cancelled"
        losses = [point.loss for point in client.metrics(job.id).points]
        assert len(losses) > STEPS and all(loss is not None for loss in losses)
