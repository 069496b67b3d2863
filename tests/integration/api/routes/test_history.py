"""What the job page asks of a job's story: incidents from the newest, the life line, and what the server allows."""

import httpx2

from shardyard import __version__
from shardyard.api.client import Client
from shardyard.service.settings import Settings

from ..conftest import SPEC, Gang, Plane, ask
from .test_faults import harmed
from .test_submit import problem

__all__ = ["harmed"]  # a fixture


def test_the_story_from_its_end_and_as_a_line(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC).id
    gang = Gang(plane, job)
    gang.state("starting")
    gang.state("running")
    gang.tell(*(("incident", {"cause": "straggler", "rank": rank, "message": f"rank {rank}"}) for rank in range(3)))

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
    told = ask("GET", f"{plane.url}/v1/jobs/{job}/history", params={"limit": 4}).json()
    assert [one["data"].get("rank", one["data"].get("state")) for one in told["items"]] == [2, 1, 0, "running"]
    rest = ask("GET", f"{plane.url}/v1/jobs/{job}/history", params={"before": told["next"]}).json()
    assert [one["data"]["state"] for one in rest["items"]] == ["starting", "placing", "queued"]
    assert rest["next"] is None


async def test_a_job_that_is_not_there_has_no_story(api: httpx2.AsyncClient) -> None:
    for about in ("timeline", "story"):
        problem(await api.get(f"/v1/jobs/nobody/{about}"), 404, "job_not_found")
    problem(await api.get("/v1/jobs/nobody/incidents", params={"newest": True}), 404, "job_not_found")


async def test_the_server_says_what_it_allows(api: httpx2.AsyncClient, settings: Settings) -> None:
    assert (await api.get("/v1/server")).json() == {
        "version": __version__,
        "fault_injection": False,
        "authentication": True,
    }


def test_where_faults_are_allowed_the_server_says_so(harmed: Plane) -> None:
    assert ask("GET", f"{harmed.url}/v1/server").json()["fault_injection"] is True


def test_the_plan_is_the_newest(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC).id
    assert set(ask("GET", f"{plane.url}/v1/jobs/{job}/plan").json().values()) == {None}
    gang = Gang(plane, job)
    gang.tell(*(("plan", {"parameters": number, "tokens_per_step": 512, "train_tokens": 9000}) for number in (1, 2)))
    told = ask("GET", f"{plane.url}/v1/jobs/{job}/plan").json()
    assert (told["parameters"], told["tokens_per_step"], told["train_tokens"]) == (2, 512, 9000)


# Curves


def test_curves_come_in_columns_and_the_stream_goes_on_after_them(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC).id
    gang = Gang(plane, job)
    gang.state("starting")
    gang.state("running")
    gang.steps(1, 10)
    gang.tell(("eval", {"step": 10, "loss": 0.5}))
    told = ask("GET", f"{plane.url}/v1/jobs/{job}/curves", params={"names": "loss, grad_norm,loss_scale,mfu"}).json()
    assert (told["width"], told["starts"], told["last_step"]) == (1, list(range(1, 11)), 10)
    assert told["series"] == {
        "loss": {"mean": [float(f"{5 / n:.6g}") for n in range(1, 11)], "low": None, "high": None, "last": 0.5},
        "grad_norm": {"mean": [1.0] * 10, "low": None, "high": None, "last": 1.0},
    }
    assert [(one["step"], one["loss"]) for one in told["evals"]] == [(10, 0.5)]
    gang.steps(11, 12)
    gang.state("succeeded")
    following = [event.data["step"] for event in client.events(job, told["cursor"]) if event.kind == "step"]
    assert following == [11, 12]
    part = ask("GET", f"{plane.url}/v1/jobs/{job}/curves", params={"from": 3, "to": 6, "buckets": 2}).json()
    assert (part["width"], part["starts"], part["series"]["loss"]["high"]) == (4, [1, 5], [5.0, 1.0])


async def test_curves_of_unknown_names_are_refused(api: httpx2.AsyncClient) -> None:
    job = (await api.post("/v1/jobs", json=SPEC)).json()["id"]
    for names in ("happiness", "loss,", "loss,job_id"):
        answer = await api.get(f"/v1/jobs/{job}/curves", params={"names": names})
        [error] = problem(answer, 422, "invalid_request")["errors"]
        assert error["field"] == "names" and "grad_norm" in error["remedy"]
    problem(await api.get("/v1/jobs/nobody/curves"), 404, "job_not_found")
    for params in ({"from": 0}, {"buckets": 801}, {"to": 2**53}):
        problem(await api.get(f"/v1/jobs/{job}/curves", params=params), 422, "invalid_request")
    assert (await api.get(f"/v1/jobs/{job}/curves")).json()["starts"] == []


# Logs


def test_logs_are_searched_and_shown_about_a_hit(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC).id
    gang = Gang(plane, job)
    gang.log(0, 0, *(f"line {n}" for n in range(40)))
    gang.log(1, 0, "Traceback (most recent call last):")
    url = f"{plane.url}/v1/jobs/{job}/logs"
    told = ask("GET", f"{url}/search", params={"text": "LINE 3", "limit": 4}).json()
    assert [one["text"] for one in told["lines"]] == ["line 3", "line 30", "line 31", "line 32"]
    assert (told["scanned_to"], told["end"], told["done"]) == (33, 41, False)
    told = ask("GET", f"{url}/search", params={"text": "line 3", "limit": 4, "after": told["scanned_to"]}).json()
    assert len(told["lines"]) == 4 and not told["done"]
    [hit] = ask("GET", f"{url}/search", params={"level": "error", "rank": 1}).json()["lines"]
    about = ask("GET", url, params={"around": hit["n"], "limit": 6}).json()
    assert [one["n"] for one in about["lines"]] == [38, 39, 40, 41]
    for params in ({"level": "loud"}, {"text": "x" * 256}, {"limit": 501}):
        assert ask("GET", f"{url}/search", params=params).status_code == 422
