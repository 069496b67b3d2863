"""System metrics over HTTP, and in `shardyard top`."""

import httpx2

from shardyard.api.cli.commands.top import JOB_USE, job_use
from shardyard.api.client import Client

from ..conftest import SPEC, Gang, Plane, ask, problem

GIB = float(1 << 30)


def test_a_gangs_samples_are_curves_of_time_and_the_jobs_use(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC).id
    gang = Gang(plane, job)
    gang.state("starting")
    gang.state("running")
    gang.emit(("system", {"nodes": {"n1": {"cpu": 40.0}}, "ranks": {"cpu": [150.0, 100.0], "memory": [GIB, None]}}))
    answered = ask("GET", f"{plane.url}/v1/jobs/{job}/system", params={"name": "rank/cpu"}).json()
    assert (answered["unit"], answered["width"], len(answered["starts"])) == ("percent of one CPU", 5, 1)
    assert [(one["rank"], one["mean"], one["node"]) for one in answered["curves"]] == [
        (0, [150.0], None),
        (1, [100.0], None),
    ]
    assert client.system(job, "node/cpu").curves[0].node == "n1"
    assert dict(zip(JOB_USE, job_use(client.job(job)), strict=True)) == {
        "CPU": "250 %",
        "RESIDENT": "1.0 GiB",
        "GPU": "",
    }


async def test_what_is_no_metric_and_no_time_is_refused(api: httpx2.AsyncClient) -> None:
    job = (await api.post("/v1/jobs", json=SPEC)).json()["id"]
    assert (await api.get(f"/v1/jobs/{job}/system")).json()["curves"] == []
    [error] = problem(await api.get(f"/v1/jobs/{job}/system", params={"name": "mood"}), 422, "invalid_request")[
        "errors"
    ]
    assert error["field"] == "name" and "rank/gpu_power" in error["remedy"]
    for params in ({"since": -1}, {"until": "nan"}, {"since": "inf"}):
        problem(await api.get(f"/v1/jobs/{job}/system", params=params), 422, "invalid_request")
    problem(await api.get("/v1/jobs/absent/system"), 404, "job_not_found")
    answer = await api.get(f"/v1/jobs/{job}/system", params={"after": "n1"})
    assert problem(answer, 400, "invalid_cursor")["errors"][0]["field"] == "after"
