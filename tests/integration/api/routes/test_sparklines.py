"""Loss sparklines of many jobs in one response."""

import httpx2

from shardyard.api.client import Client

from ..conftest import SPEC, Gang, Plane, ask, problem


def test_outlines_of_many_jobs_are_one_answer(plane: Plane, client: Client) -> None:
    ids = []
    for name, steps in (("long", 20), ("short", 3)):
        ids.append(client.submit({**SPEC, "name": name}).id)
        gang = Gang(plane, ids[-1])
        gang.state("starting")
        gang.state("running")
        gang.steps(1, steps)
    long, short = ids
    silent = client.submit({**SPEC, "name": "silent"}).id
    answer = ask(
        "GET", f"{plane.url}/v1/sparklines", params={"job": [long, silent, short, "job-absent", "a\0b"]}
    ).json()
    assert [item["job"] for item in answer["items"]] == [long, short]
    first, second = answer["items"]
    assert first["width"] == 1 and len(first["low"]) == 20 and first["low"] == first["high"]
    assert second["high"] == [5.0, 2.5, 1.6667]


async def test_outlines_are_asked_for_by_job(api: httpx2.AsyncClient) -> None:
    for params in ({}, {"job": ["x"] * 201}):
        [error] = problem(await api.get("/v1/sparklines", params=params), 422, "invalid_request")["errors"]
        assert error["field"] == "job" and error["remedy"]
    assert (await api.get("/v1/sparklines", params={"job": ["x"] * 200})).json() == {"items": []}
