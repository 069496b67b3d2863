"""Sweeps over HTTP: what is refused, and what is stored."""

from typing import Any

import httpx2
import pytest

from ..conftest import SPEC

SWEEP: dict[str, Any] = {"parameters": {"train.optimizer.lr": {"min": 1e-4, "max": 1e-2, "scale": "log"}}, "trials": 4}


def document(**sweep: Any) -> dict[str, Any]:
    return {**SPEC, "name": "tune", "sweep": {**SWEEP, **sweep}}


@pytest.mark.parametrize(
    ("sweep", "field", "says"),
    [
        ({"parameters": {}}, "sweep.parameters", ""),
        (
            {"parameters": {"train.optimizer.lr": {"min": 1, "max": 1}}},
            "sweep.parameters.train.optimizer.lr.max",
            "larger max",
        ),
        (
            {"parameters": {"train.optimizer.lr": {"min": 0, "max": 1, "scale": "log"}}},
            "sweep.parameters.train.optimizer.lr.min",
            "linear",
        ),
        ({"parameters": {"train.optimizer.lr": {}}}, "sweep.parameters.train.optimizer.lr.min", "list of values"),
        (
            {"parameters": {"train.optimizer.lr": {"values": [1], "min": 2}}},
            "sweep.parameters.train.optimizer.lr.min",
            "Leave out",
        ),
        ({"parameters": {"train.optimiser.lr": [0.1]}}, "train.optimiser", "optimizer"),
        ({"parameters": {"train.optimizer.lr": [0.1, -1.0]}}, "sweep.parameters.train.optimizer.lr", "more than 0"),
        (
            {"parameters": {"train.optimizer.lr": {"min": -1.0, "max": 1.0}}},
            "sweep.parameters.train.optimizer.lr",
            "more than 0",
        ),
        ({"parameters": {"name": ["a", "b"]}}, "sweep.parameters.name", "another key"),
        ({"parameters": {"train.steps[3]": [1]}}, "sweep.parameters.train.steps[3]", "item"),
        ({"parameters": {"train..lr": [1]}}, "sweep.parameters", ""),
        ({"search": "grid"}, "sweep.parameters.train.optimizer.lr", "count"),
        (
            {"search": "grid", "parameters": {"train.seed": {"min": 1, "max": 1001}}},
            "sweep.parameters.train.seed",
            "fewer",
        ),
        ({"search": "bayes"}, "sweep.search", ""),
        ({"trials": 0}, "sweep.trials", ""),
        ({"trials": 1001}, "sweep.trials", ""),
        ({"asha": {"min_steps": 20}}, "sweep.asha.min_steps", "lower"),
        ({"asha": {}}, "sweep.asha.min_steps", ""),
        (
            {"asha": {"min_steps": 2}, "parameters": {"train.steps": [10, 20]}},
            "sweep.parameters.train.steps",
            "Leave it out",
        ),
        ({"parameters": {"train.layout.data": [20_000]}, "search": "grid"}, "train", ""),
        ({"more": 1}, "sweep.more", ""),
    ],
)
async def test_what_cannot_be_a_sweep_is_refused_with_the_field_and_a_remedy(
    api: httpx2.AsyncClient, sweep: dict[str, Any], field: str, says: str
) -> None:
    answer = await api.post("/v1/sweeps", json=document(**sweep))
    assert answer.status_code == 422, answer.text
    found = [one for one in answer.json()["errors"] if (one["field"] or "").startswith(field)]
    assert found and all(one["remedy"] for one in found), answer.json()
    assert says in " ".join(one["remedy"] for one in found), found
    assert (await api.get("/v1/sweeps")).json()["items"] == []


@pytest.mark.parametrize(
    ("sweep", "field"),
    [({}, "sweep.metric"), ({"metric": "acc", "asha": {"min_steps": 3}}, "sweep.asha.max_steps")],
)
async def test_a_command_has_to_say_what_is_compared(
    api: httpx2.AsyncClient, sweep: dict[str, Any], field: str
) -> None:
    body = {"name": "mine", "command": "true", "sweep": {"parameters": {"resources.env.LR": ["0.1", "0.2"]}, **sweep}}
    answer = await api.post("/v1/sweeps", json=body)
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == field, answer.text


async def test_a_sweep_is_stored_once_per_key_listed_and_cancelled(api: httpx2.AsyncClient) -> None:
    keyed = {"Idempotency-Key": "once"}
    first = await api.post("/v1/sweeps", json=document(), headers=keyed)
    again = await api.post("/v1/sweeps", json=document(), headers=keyed)
    other = await api.post("/v1/sweeps", json=document(trials=3), headers=keyed)
    assert [one.status_code for one in (first, again, other)] == [201, 200, 409]
    found = first.json()
    assert (found["id"], found["metric"], found["rungs"], found["counts"]) == (
        again.json()["id"],
        "loss",
        [],
        {"waiting": 4},
    )
    assert (await api.get("/v1/sweeps/tune")).json()["id"] == found["id"]
    trials = (await api.get(f"/v1/sweeps/{found['id']}/trials")).json()["items"]
    lrs = [one["parameters"]["train.optimizer.lr"] for one in trials]
    assert len(set(lrs)) == 4 and all(1e-4 <= lr <= 1e-2 for lr in lrs)
    await api.post("/v1/sweeps", json=document(seed=1))
    page = (await api.get("/v1/sweeps?limit=1")).json()
    older = (await api.get(f"/v1/sweeps?cursor={page['next']}")).json()
    assert [one["id"] for one in older["items"]] == [found["id"]] and older["next"] is None
    cancelled = [await api.post(f"/v1/sweeps/{found['id']}/cancel") for _ in range(2)]
    assert [(one.status_code, one.json()["state"]) for one in cancelled] == [(202, "cancelling")] * 2
    assert (await api.get("/v1/sweeps/none")).json()["code"] == "sweep_not_found"
    assert (await api.get("/v1/sweeps?cursor=x")).json()["code"] == "invalid_cursor"


async def test_a_job_that_is_a_sweep_gets_the_route_of_sweeps(api: httpx2.AsyncClient) -> None:
    answer = await api.post("/v1/jobs", json=document())
    assert "/v1/sweeps" in answer.json()["errors"][0]["remedy"]
    answer = await api.post("/v1/sweeps", json=SPEC)
    assert answer.json()["errors"][0]["field"] == "sweep"
