"""Metrics over HTTP: curves by column, and steps from the last cursor on."""

from typing import Any

import httpx2
from harness.events import logged

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


def test_newest_values_of_many_jobs_are_one_answer(plane: Plane, client: Client) -> None:
    ids = []
    for name, values in (("first", {"acc": 0.5, "val/loss": 2.0}), ("second", {"acc": 0.75, "Only": 1.0, "ÄHRE": 2.0})):
        ids.append(client.submit({"name": name, "command": "true"}).id)
        gang = Gang(plane, ids[-1])
        gang.state("starting")
        gang.state("running")
        gang.emit(logged({key: [(1, 9.0), (7, value)] for key, value in values.items()}))
        gang.emit(logged({"broken": [(8, None)]}))
    silent = client.submit({"name": "silent", "command": "true"}).id
    [first, second] = client.logged_values([*ids, silent, "absent", "a\0b"], ["acc", "broken", "absent", "a\0b"])
    assert [first.job, second.job] == ids
    assert {name: (one.last_step, one.last) for name, one in first.values.items()} == {
        "acc": (7, 0.5),
        "broken": (8, None),
    }
    assert second.values["acc"].last == 0.75
    assert client.logged_values(ids, "absent") == []
    found = client.logged_names([*ids, silent])
    assert [(one.name, one.jobs, one.last_step) for one in found.items] == [
        ("acc", 2, 7),
        ("broken", 2, 8),
        ("Only", 1, 7),
        ("val/loss", 1, 7),
        ("ÄHRE", 1, 7),
    ]
    assert not found.more
    assert [one.name for one in client.logged_names(ids, text="Ähr").items] == ["ÄHRE"]
    part = client.logged_names(ids, text="L", limit=1)
    assert ([one.name for one in part.items], part.more) == (["Only"], True)
    assert client.logged_names([silent, "absent"]).items == client.logged_names(ids, text="\0").items == []


async def test_newest_values_are_asked_for_by_job_and_name(api: httpx2.AsyncClient) -> None:
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("logged-values", {"name": "acc"}, "job"),
        ("logged-values", {"job": "x"}, "name"),
        ("logged-values", {"job": ["x"] * 201, "name": "acc"}, "job"),
        ("logged-values", {"job": "x", "name": ["acc"] * 17}, "name"),
        ("logged-names", {}, "job"),
        ("logged-names", {"job": "x", "limit": 1001}, "limit"),
    ]
    for path, params, field in refused:
        [error] = problem(await api.get(f"/v1/{path}", params=params), 422, "invalid_request")["errors"]
        assert error["field"] == field and error["remedy"]
    most = {"job": ["x"] * 200, "name": [str(at) for at in range(16)]}
    assert (await api.get("/v1/logged-values", params=most)).json() == {"items": []}
