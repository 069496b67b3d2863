"""Profiles over HTTP: taken once by their key, and refused with the field and a remedy."""

from typing import Any

import pytest

from shardyard.api.cli.terminal.event_lines import remark
from shardyard.api.client import ApiError, Client

from ..conftest import SPEC, Gang, Plane, ask, problem, running_job


@pytest.fixture
def running(plane: Plane, client: Client) -> tuple[str, Gang]:
    return running_job(plane, client)


def test_a_profile_is_taken_once_by_its_key(running: tuple[str, Gang], client: Client) -> None:
    job, gang = running
    asked = client.profile(job, rank=1, kind="cpu", seconds=2, idempotency_key="mine")
    assert (asked.job, asked.rank, asked.kind, asked.seconds, asked.state) == (job, 1, "cpu", 2, "open")
    assert client.profile(job, rank=1, kind="cpu", seconds=2, idempotency_key="mine") == asked
    left = client.profile(job, rank=0)
    file = {"name": "profiles/x", "bytes": 9, "sha256": "a" * 64}
    for _ in range(2):
        gang.emit(("profile", {"id": asked.id, "rank": 1, "done": True, "message": "so", "file": file}))
    gang.state("succeeded")
    events = [event for event in client.events(job) if event.kind == "profile"]
    first, second = [(remark(event) or "").partition(" · ")[2] for event in events]
    assert first == "cpu profile of rank 1, requested by local: profiles/x"
    assert (
        second == "stacks profile of rank 0, requested by local: failed: the attempt ended before the rank was profiled"
    )
    reported = [event.data for event in events]
    assert [(data["id"], data["done"], data["asked_by"]) for data in reported] == [
        (asked.id, True, "local"),
        (left.id, False, "local"),
    ]
    found = {one.id: (one.state, one.file) for one in client.profiles(job).items}
    assert found == {asked.id: ("done", "profiles/x"), left.id: ("failed", None)}
    assert [one.name for one in client.artifacts(job).items] == ["profiles/x"]


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({"rank": 2}, 422, "profile_rank_unknown", "rank"),
        ({"kind": "cpu"}, 422, "invalid_request", "rank"),
        ({"rank": -1}, 422, "invalid_request", "rank"),
        ({"rank": "1"}, 422, "invalid_request", "rank"),
        ({"rank": 1, "kind": "locals"}, 422, "invalid_request", "kind"),
        ({"rank": 1, "seconds": 121}, 422, "invalid_request", "seconds"),
        ({"rank": 1, "pid": 1}, 422, "invalid_request", "pid"),
        ([], 422, "invalid_request", "body"),
    ],
    ids=str,
)
def test_refused_profiles(
    running: tuple[str, Gang], plane: Plane, body: Any, status: int, code: str, field: str
) -> None:
    answer = ask("POST", f"{plane.url}/v1/jobs/{running[0]}/profiles", json=body)
    [error, *_] = problem(answer, status, code)["errors"]
    assert error["field"] == field and error["message"] and error["remedy"]


def test_a_kind_that_the_job_cannot_have_is_a_described_refusal(running: tuple[str, Gang], plane: Plane) -> None:
    answer = ask("POST", f"{plane.url}/v1/jobs/{running[0]}/profiles", json={"rank": 1, "kind": "memory"})
    problem(answer, 422, "profile_not_possible")
    answers = plane.app.openapi()["paths"]["/v1/jobs/{job}/profiles"]["post"]["responses"]
    assert "`profile_not_possible`" in answers["422"]["description"]


def test_jobs_that_do_not_run_have_none(client: Client) -> None:
    job = client.submit(SPEC).id
    for name, code in ((job, "job_not_running"), ("absent", "job_not_found")):
        with pytest.raises(ApiError) as refused:
            client.profile(name, rank=0)
        assert refused.value.code == code and refused.value.errors[0].remedy
