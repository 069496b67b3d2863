"""The model registry over HTTP: what its bodies and names may be, and who changed what."""

from typing import Any

import httpx2
import pytest

from shardyard.api.client import Client

from ..conftest import SPEC, Gang, Plane, ask, problem


@pytest.fixture
def job(plane: Plane, client: Client) -> str:
    """A running job with checkpoints of steps 10 and 20."""
    job = client.submit(SPEC).id
    gang = Gang(plane, job)
    gang.state("starting")
    for step in (10, 20):
        gang.emit(("checkpoint", {"step": step, "path": f"/somewhere/{job}/step-{step:08d}"}))
    gang.state("running")
    gang.steps(1, 20)
    return job


def send(plane: Plane, method: str, path: str, body: Any = None, key: str | None = None) -> httpx2.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return ask(method, f"{plane.url}/v1/models{path}", headers=headers, **({} if body is None else {"json": body}))


def test_a_version_is_created_once_for_a_key_and_found_where_its_location_says(plane: Plane, job: str) -> None:
    made = send(plane, "POST", "/nano/versions", {"job": job, "step": 10, "notes": "first"}, "mine")
    assert (made.status_code, made.headers["location"]) == (201, "/v1/models/nano/versions/1")
    assert made.json()["metrics"]["loss"] == 0.5 and made.json()["actor"]
    again = send(plane, "POST", "/nano/versions", {"job": job, "step": 10, "notes": "first"}, "mine")
    assert (again.status_code, again.json()) == (200, made.json())
    other = send(plane, "POST", "/other/versions", {"job": job, "step": 10, "notes": "first"}, "mine")
    assert problem(other, 409, "idempotency_conflict")
    assert send(plane, "GET", "/nano/versions/1").json() == made.json()
    (operation,) = ask("GET", f"{plane.url}/v1/jobs/{job}/operations").json()["items"]
    assert (operation["kind"], operation["step"], operation["state"]) == ("pin", 10, "pending")


def test_an_alias_moves_by_compare_and_set(plane: Plane, job: str) -> None:
    for step in (10, 20):
        send(plane, "POST", "/nano/versions", {"job": job, "step": step})
    assert send(plane, "PUT", "/nano/aliases/best", {"version": 1}).json()["version"] == 1
    refused = problem(send(plane, "PUT", "/nano/aliases/best", {"version": 2, "expected": 2}), 409, "alias_moved")
    assert refused["errors"][0]["field"] == "expected" and "names version 1" in refused["detail"]
    assert send(plane, "PUT", "/nano/aliases/best", {"version": 2, "expected": 1}).json()["version"] == 2
    assert send(plane, "GET", "/nano/versions/best").json()["number"] == 2
    assert send(plane, "GET", "").json()["items"][0]["aliases"][0]["alias"] == "best"
    assert problem(send(plane, "DELETE", "/nano/versions/2"), 409, "version_aliased")
    assert problem(send(plane, "DELETE", "/nano/aliases/best?expected=1"), 409, "alias_moved")
    assert send(plane, "DELETE", "/nano/aliases/best?expected=2").json()["aliases"] == []
    assert send(plane, "DELETE", "/nano/versions/2").json()["latest"] == 1
    kinds = [one["kind"] for one in send(plane, "GET", "/nano/history").json()["items"]]
    assert kinds == ["version_deleted", "alias_removed", *["alias_set"] * 2, *["version_created"] * 2]


REFUSED: list[tuple[str, str, Any, int, str]] = [
    ("POST", "/Nano/versions", {"job": "tiny"}, 422, "invalid_request"),
    ("POST", f"/{'a' * 64}/versions", {"job": "tiny"}, 422, "invalid_request"),
    ("POST", "/nano/versions", {"job": "absent"}, 404, "job_not_found"),
    ("POST", "/nano/versions", {"job": "tiny", "step": 11}, 404, "checkpoint_not_found"),
    ("POST", "/nano/versions", {"job": "tiny", "artifact": "x"}, 404, "artifact_not_found"),
    ("POST", "/nano/versions", {"job": "tiny", "path": "/etc"}, 422, "invalid_request"),
    ("POST", "/nano/versions", {"job": "tiny", "notes": "a\0b"}, 400, "invalid_syntax"),
    ("PUT", "/nano/aliases/latest", {"version": 1}, 422, "invalid_alias"),
    ("PUT", "/nano/aliases/best", {"version": "best"}, 422, "invalid_request"),
    ("PUT", "/nano/aliases/best", {"version": 1}, 404, "model_not_found"),
    ("GET", "/nano", None, 404, "model_not_found"),
    ("GET", "/nano/versions/1", None, 404, "model_not_found"),
    ("DELETE", "/nano/versions/1", None, 404, "model_not_found"),
]


def test_what_is_refused_names_the_field_and_stores_nothing(plane: Plane, job: str) -> None:
    for method, path, body, status, code in REFUSED:
        assert problem(send(plane, method, path, body), status, code)["errors"][0]["message"]
    assert send(plane, "GET", "").json()["items"] == []


def test_a_spec_that_names_a_version_is_stored_with_its_number(plane: Plane, job: str, client: Client) -> None:
    client.create_version("nano", job, step=10)
    client.set_alias("nano", "best", 1)
    child = client.submit({**SPEC, "name": "child", "train": {**SPEC["train"], "resume_from": "models/nano@best"}})
    assert child.spec["train"]["resume_from"] == "models/nano@1" and child.parent == job
    deleted = ask("DELETE", f"{plane.url}/v1/jobs/{job}")
    assert problem(deleted, 409, "job_not_ended")
