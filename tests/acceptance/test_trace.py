"""A trace seen from outside: asked for while a job trains, it names the rank that is slow, and the training does not notice."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.control_plane import ControlPlane, spec, until
from harness.patience import PATIENCE_S

SLOW, SLOW_MS, STEPS = 3, 100, 5
#: What must not be overlooked, per step.
FELT_MS = 50.0


@pytest.mark.timing
def test_a_trace_names_the_slow_rank(plane: ControlPlane) -> None:
    layout = {"pipeline": 2, "data": 2, "zero": 1, "micro_batch": 1}
    with plane.client() as client:
        job = client.submit(spec("traced", steps=1_000_000, layout=layout, checkpoint={"final": False}))
        until(
            lambda: (seen := client.job(job.id)).state == "running" or seen.finished_at is not None,
            PATIENCE_S,
            "the job to run",
        )
        assert client.job(job.id).state == "running", client.job(job.id)
        client.inject_fault(job.id, "slow-rank", rank=SLOW, delay_ms=SLOW_MS, duration_s=600)
        until(lambda: any(event.kind == "fault" for event in client.events(job.id)), PATIENCE_S, "the rank to be slow")
        trace = client.trace(job.id, steps=STEPS).id
        until(lambda: client.traces(job.id).items[0].state != "open", PATIENCE_S, "the trace")
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
        assert client.wait(job.id, timeout_s=PATIENCE_S).state == "cancelled"
        losses = [point.loss for point in client.metrics(job.id).points]
        assert len(losses) > STEPS and all(loss is not None for loss in losses)


@pytest.fixture(scope="module")
def job(plane: ControlPlane) -> Iterator[str]:
    """Two stages, four micro-batches, steps without end."""
    layout = {"pipeline": 2, "schedule": "1f1b", "micro_batch": 2}
    with plane.client() as client:
        endless = client.submit(spec("piped", steps=1_000_000, layout=layout, eval={}, checkpoint={"final": False}))
        until(
            lambda: (client.job(endless.id).cursor.split(".")[1]) not in ("0", "1"), PATIENCE_S, "the job's second step"
        )
        yield endless.id
        client.cancel(endless.id)


def test_the_command_records_steps_that_add_up(plane: ControlPlane, job: str, tmp_path: Path) -> None:
    file = tmp_path / "steps.json.gz"
    done = plane.run("trace", job, "--steps", "3", "-o", str(file), "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["trace"]["state"] == "done" and found["trace"]["parts"] == 6
    first, last = found["trace"]["first_step"], found["trace"]["last_step"]
    assert [step["step"] for step in found["steps"]] == [first, first + 1, last]
    for rank in found["ranks"]:
        assert sum(rank["sums"].values()) == pytest.approx(rank["seconds"], rel=0.02)
        assert rank["sums"]["forward"] > 0 and rank["sums"]["backward"] > 0
    assert 0 < found["bubble_measured"] < 1 and 0 < found["bubble_simulated"] < 1
    slices = measured(json.loads(gzip.decompress(file.read_bytes()))["traceEvents"])
    steps = [(one["pid"], one["ts"], one["ts"] + one["dur"]) for one in slices if one["cat"] == "step"]
    assert {rank for rank, _, _ in steps} == {0, 1} and len(steps) == 6
    assert {"forward", "backward", "optimizer", "receive"} <= {one["cat"] for one in slices}
    for one in slices:
        mine = [(low, high) for rank, low, high in steps if rank == one["pid"]]
        assert any(low - 1 <= one["ts"] and one["ts"] + one["dur"] <= high + 1 for low, high in mine), one


def measured(reported: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The slices, but those of the ideal schedule, which takes the time that it takes."""
    threads = [(one["pid"], one["tid"], one["args"]["name"]) for one in reported if one["name"] == "thread_name"]
    ideal = {(rank, thread) for rank, thread, name in threads if name.startswith("ideal")}
    assert {rank for rank, _ in ideal} == {0, 1}
    return [one for one in reported if one["ph"] == "X" and (one["pid"], one["tid"]) not in ideal]


@pytest.mark.timing
def test_fifty_milliseconds_are_seen(plane: ControlPlane, job: str) -> None:
    with plane.client() as client:
        fault = client.inject_fault(job, "slow-rank", rank=1, delay_ms=FELT_MS, duration_s=600)
        until(
            lambda: any(event.data.get("id") == fault.id for event in client.past_events(client.job(job))),
            PATIENCE_S,
            "the fault",
        )
        trace = client.trace(job, steps=3)
        until(lambda: client.traces(job).items[0].state != "open", PATIENCE_S, "the trace")
        found = client.trace_summary(job, trace.id)
        assert found.trace.state == "done", found.trace.message
        assert found.slowest_rank == 1 and 1000 * (found.slower_by_s or 0) > 0.6 * FELT_MS
        assert 1000 * found.ranks[1].busy_s > FELT_MS
        spans = client.trace_spans(job, trace.id)
        assert [rank.place for rank in spans.ranks] == [0, 1] and all(rank.ideal for rank in spans.ranks)
