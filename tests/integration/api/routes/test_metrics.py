"""Metrics over HTTP: curves by column, and steps from the last cursor on."""

import httpx2

from shardyard.api.client import Client

from ..conftest import SPEC, Gang, Plane, ask, problem


def test_curves_come_in_columns_and_the_stream_goes_on_after_them(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC).id
    gang = Gang(plane, job)
    gang.state("starting")
    gang.state("running")
    gang.steps(1, 10)
    gang.emit(("eval", {"step": 10, "loss": 0.5}))
    answered = ask(
        "GET", f"{plane.url}/v1/jobs/{job}/curves", params={"names": "loss, grad_norm,loss_scale,mfu"}
    ).json()
    assert (answered["width"], answered["starts"], answered["last_step"]) == (1, list(range(1, 11)), 10)
    assert answered["series"] == {
        "loss": {"mean": [float(f"{5 / n:.6g}") for n in range(1, 11)], "low": None, "high": None, "last": 0.5},
        "grad_norm": {"mean": [1.0] * 10, "low": None, "high": None, "last": 1.0},
    }
    assert [(one["step"], one["loss"]) for one in answered["evals"]] == [(10, 0.5)]
    gang.steps(11, 12)
    gang.state("succeeded")
    following = [event.data["step"] for event in client.events(job, answered["cursor"]) if event.kind == "step"]
    assert following == [11, 12]
    part = ask("GET", f"{plane.url}/v1/jobs/{job}/curves", params={"from": 3, "to": 6, "buckets": 2}).json()
    assert (part["width"], part["starts"], part["series"]["loss"]["high"]) == (4, [1, 5], [5.0, 1.0])


async def test_curves_of_unknown_names_are_refused(api: httpx2.AsyncClient) -> None:
    job = (await api.post("/v1/jobs", json=SPEC)).json()["id"]
    for names in ("happiness", "loss,", "loss,job_id"):
        answer = await api.get(f"/v1/jobs/{job}/curves", params={"names": names})
        [error] = problem(answer, 422, "invalid_request")["errors"]
        assert error["field"] == "names" and "grad_norm" in error["remedy"]
    problem(await api.get("/v1/jobs/absent/curves"), 404, "job_not_found")
    for params in ({"from": 0}, {"buckets": 801}, {"to": 2**53}):
        problem(await api.get(f"/v1/jobs/{job}/curves", params=params), 422, "invalid_request")
    assert (await api.get(f"/v1/jobs/{job}/curves")).json()["starts"] == []
