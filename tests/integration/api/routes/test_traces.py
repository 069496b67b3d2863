"""Traces over HTTP and from Python: asked for, reported by a gang, summed up, drawn within a bound, downloaded."""

import gzip
import json
from typing import Any

import pytest
from harness.patience import PATIENCE_S
from harness.trace_events import crowded_trace_part, trace_events, trace_part

from shardyard.api.client import ApiError, AsyncClient, Client

from ..conftest import Gang, Plane, ask, problem, running_job


@pytest.fixture
def running(plane: Plane, client: Client) -> tuple[str, Gang]:
    return running_job(plane, client)


def test_a_trace_is_asked_for_once_by_its_key_and_reported_once(running: tuple[str, Gang], client: Client) -> None:
    job, gang = running
    asked = client.trace(job, idempotency_key="mine")
    assert (asked.job, asked.steps, asked.state, asked.actor, asked.parts_wanted) == (job, 3, "open", "local", 6)
    assert client.trace(job, idempotency_key="mine") == asked
    conflicts: list[tuple[dict[str, Any], str]] = [
        ({}, "trace_open"),
        ({"steps": 2, "idempotency_key": "mine"}, "idempotency_conflict"),
    ]
    for wrong, code in conflicts:
        with pytest.raises(ApiError) as refused:
            client.trace(job, **wrong)
        assert refused.value.code == code and refused.value.errors[0].field and refused.value.errors[0].remedy
    gang.emit(*trace_events(asked.id))
    [done] = client.job(job).traces().items
    assert (done.id, done.state, done.parts, done.first_step, done.last_step) == (asked.id, "done", 6, 5, 7)
    second = client.job(job).trace(steps=1)
    gang.state("succeeded")
    reported = [event.data for event in client.events(job) if event.kind in ("trace", "trace_finished")]
    assert [(data["id"], data["done"]) for data in reported] == [(asked.id, True), (second.id, False)]
    assert [one.state for one in client.traces(job, limit=1).items] == ["failed"]
    assert [one.id for one in client.traces(job, before=client.traces(job, limit=1).next).items] == [asked.id]
    with pytest.raises(ApiError) as refused:
        client.trace(job)
    assert (refused.value.code, refused.value.errors[0].field) == ("job_not_running", "job")


async def test_both_clients_read_a_trace(running: tuple[str, Gang], plane: Plane, client: Client) -> None:
    job, gang = running
    trace = client.trace(job).id
    gang.emit(*trace_events(trace, slower_ms=0))
    found = client.trace_summary(job, trace)
    assert [step.step for step in found.steps] == [5, 6, 7] and found.bubble_simulated == 0.2
    assert client.job(job).trace_summary(trace, step=6).step == 6
    spans = client.trace_spans(job, trace, step=7, ranks=[1], from_us=1000, to_us=5000)
    assert (spans.step, [rank.rank for rank in spans.ranks]) == (7, [1])
    packed = client.perfetto(job, trace)
    document = json.loads(gzip.decompress(packed))
    assert {slice_["pid"] for slice_ in document["traceEvents"]} == {0, 1}
    async with AsyncClient(plane.url) as other:
        assert await other.trace_summary(job, trace) == found
        assert await other.trace_spans(job, trace, step=7, ranks=[1], from_us=1000, to_us=5000) == spans
        assert await other.perfetto(job, trace) == packed
        assert [one.id for one in (await other.traces(job)).items] == [trace]
        with pytest.raises(ApiError) as refused:
            await other.perfetto(job, "trace-absent")
    assert refused.value.code == "trace_not_found"


@pytest.mark.parametrize("each", [500, pytest.param(4000, marks=pytest.mark.full)])
def test_no_answer_is_large(running: tuple[str, Gang], plane: Plane, client: Client, each: int) -> None:
    """Of 64 ranks with more spans than an answer holds. A rank reports at most 4000 of a step."""
    job, gang = running
    trace = client.trace(job, steps=20).id
    gang.emit(*(("trace", crowded_trace_part(trace, rank, 5, each)) for rank in range(64)))
    gang.emit(*(("trace", trace_part(trace, rank, step)) for rank in range(64) for step in range(6, 25)))
    base = f"{plane.url}/v1/jobs/{job}/traces/{trace}"
    answers = [ask("GET", base + path, timeout=PATIENCE_S) for path in ("", "?step=5", "/spans", "/spans?step=24")]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert max(len(answer.content) for answer in answers) <= 300_000
    spans = client.trace_spans(job, trace)
    kept = sum(len(rank.spans) for rank in spans.ranks)
    assert len(spans.ranks) == 64 and kept > 4000 and kept + spans.dropped == 64 * each


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "field"),
    [
        ("POST", "/absent/trace", 404, "job_not_found", None),
        ("POST", "/{job}/trace?steps=0", 422, "invalid_request", "steps"),
        ("POST", "/{job}/trace?steps=21", 422, "invalid_request", "steps"),
        ("POST", "/{job}/trace?steps=many", 422, "invalid_request", "steps"),
        ("GET", "/absent/traces", 404, "job_not_found", None),
        ("GET", "/{job}/traces?before=nonsense", 400, "invalid_cursor", "before"),
        ("GET", "/{job}/traces?limit=0", 422, "invalid_request", "limit"),
        ("GET", "/{job}/traces/trace-1", 404, "trace_not_found", "trace"),
        ("GET", "/{job}/traces/%00", 404, "trace_not_found", "trace"),
        ("GET", "/{job}/traces/trace-1/spans", 404, "trace_not_found", "trace"),
        ("GET", "/{job}/traces/trace-1/spans?ranks=-1", 422, "invalid_request", "ranks[0]"),
        ("GET", "/{job}/traces/trace-1/spans?from_us=-1", 422, "invalid_request", "from_us"),
        ("GET", "/{job}/traces/trace-1/perfetto", 404, "trace_not_found", "trace"),
    ],
)
def test_refusals(
    running: tuple[str, Gang], plane: Plane, method: str, path: str, status: int, code: str, field: str | None
) -> None:
    answer = ask(method, f"{plane.url}/v1/jobs{path.format(job=running[0])}")
    [error, *_] = problem(answer, status, code)["errors"]
    assert error["field"] == field and error["message"] and error["remedy"]


def test_a_trace_that_has_reported_nothing_yet_is_empty(running: tuple[str, Gang], client: Client) -> None:
    job, _ = running
    trace = client.trace(job).id
    found: Any = client.trace_summary(job, trace)
    assert (found.steps, found.ranks, found.slowest_rank, found.bubble_measured) == ([], [], None, None)
    with pytest.raises(ApiError) as refused:
        client.trace_spans(job, trace)
    assert refused.value.errors[0].remedy == "Its steps: none yet."
    assert json.loads(gzip.decompress(client.perfetto(job, trace)))["traceEvents"] == []
