"""A job's history over HTTP: incidents from the newest, the timeline, the plan, and what the server allows."""

import httpx2

from shardyard import __version__
from shardyard.api.client import Client
from shardyard.service.settings import Settings

from ..conftest import SPEC, Gang, Plane, ask, problem
from .test_faults import harmed

__all__ = ["harmed"]  # a fixture


def test_the_story_from_its_end_and_as_a_line(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC).id
    gang = Gang(plane, job)
    gang.state("starting")
    gang.state("running")
    gang.emit(*(("incident", {"cause": "straggler", "rank": rank, "message": f"rank {rank}"}) for rank in range(3)))

    def newest(**params: object) -> dict[str, object]:
        return ask("GET", f"{plane.url}/v1/jobs/{job}/incidents", params={"newest": True, **params}).json()  # type: ignore[no-any-return]

    page = newest(limit=2)
    assert [one["rank"] for one in page["items"]] == [2, 1]  # type: ignore[attr-defined]
    rest = newest(limit=2, before=page["next"])
    assert ([one["rank"] for one in rest["items"]], rest["next"]) == ([0], None)  # type: ignore[attr-defined]
    line = ask("GET", f"{plane.url}/v1/jobs/{job}/timeline").json()
    assert [span["state"] for span in line["spans"]][-2:] == ["starting", "running"]
    assert line["spans"][-1]["ended"] is None and line["spans"][-1]["generation"] == 1
    assert [(mark["kind"], mark["about"], mark["rank"]) for mark in line["marks"]] == [
        ("incident", "straggler", rank) for rank in range(3)
    ]
    assert line["complete"] is True
    answered = ask("GET", f"{plane.url}/v1/jobs/{job}/history", params={"limit": 4}).json()
    assert [one["data"].get("rank", one["data"].get("state")) for one in answered["items"]] == [2, 1, 0, "running"]
    rest = ask("GET", f"{plane.url}/v1/jobs/{job}/history", params={"before": answered["next"]}).json()
    assert [one["data"]["state"] for one in rest["items"]] == ["starting", "placing", "queued"]
    assert rest["next"] is None


async def test_a_job_that_is_not_there_has_no_history(api: httpx2.AsyncClient) -> None:
    for about in ("timeline", "history"):
        problem(await api.get(f"/v1/jobs/absent/{about}"), 404, "job_not_found")
    problem(await api.get("/v1/jobs/absent/incidents", params={"newest": True}), 404, "job_not_found")


async def test_a_position_needs_the_jobs_id(api: httpx2.AsyncClient) -> None:
    """A script that goes on with a position of an earlier job of the name would skip what the newest one did."""
    job = (await api.post("/v1/jobs", json=SPEC)).json()
    for about, params in (
        ("incidents", {"after": 1}),
        ("incidents", {"newest": True, "before": 2}),
        ("history", {"before": 2}),
        ("checkpoints", {"before": 2}),
        ("ranks", {"before": 2}),
    ):
        [error] = problem(await api.get(f"/v1/jobs/{job['name']}/{about}", params=params), 422, "invalid_request")[
            "errors"
        ]
        assert error["field"] == "job" and "GET /v1/jobs/NAME" in error["remedy"]
        assert (await api.get(f"/v1/jobs/{job['id']}/{about}", params=params)).status_code == 200
        assert (await api.get(f"/v1/jobs/{job['name']}/{about}")).status_code == 200


async def test_the_server_says_what_it_allows(api: httpx2.AsyncClient, settings: Settings) -> None:
    assert (await api.get("/v1/server")).json() == {
        "version": __version__,
        "fault_injection": False,
        "authentication": True,
        "terminals": False,
        "undelete_s": 86_400.0,
    }


def test_where_faults_are_allowed_the_server_says_so(harmed: Plane) -> None:
    assert ask("GET", f"{harmed.url}/v1/server").json()["fault_injection"] is True


def test_the_plan_is_the_newest(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC).id
    assert set(ask("GET", f"{plane.url}/v1/jobs/{job}/plan").json().values()) == {None}
    gang = Gang(plane, job)
    gang.emit(*(("plan", {"parameters": number, "tokens_per_step": 512, "train_tokens": 9000}) for number in (1, 2)))
    answered = ask("GET", f"{plane.url}/v1/jobs/{job}/plan").json()
    assert (answered["parameters"], answered["tokens_per_step"], answered["train_tokens"]) == (2, 512, 9000)


# Curves


# Logs
