"""Advice on a layout over HTTP: the fastest layouts of a spec, and refusals by parameter and field."""

from typing import Any

import httpx2
import pytest

from ..conftest import problem
from .test_submit import stored, train


async def test_layouts_are_advised_and_nothing_is_stored(api: httpx2.AsyncClient) -> None:
    wanted: dict[str, Any] = {"world": 8, "top": 3, "gpu": "A100 80GB", "gpus_per_node": 4, "inter_gbps": 100}
    answer = await api.post("/v1/jobs/advice", params=wanted, json=train())
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["world_size"] == 8 and found["hardware"]["ranks_per_node"] == 4
    assert found["hardware"]["inter"]["bandwidth"] == pytest.approx(0.8 * 100e9 / 8)
    assert len(found["layouts"]) == 3 and not found["offloaded"]
    first = train(**found["layouts"][0]["train"])
    assert (await api.post("/v1/jobs/preview", json=first)).json()["world_size"] == 8
    assert await stored(api) == []


@pytest.mark.parametrize("layout", [{"tensor": 3}, {"data": 3}, {"pipeline": 8}, {"zero": 1}])
async def test_a_layout_that_cannot_run_is_replaced_as_any_other(
    api: httpx2.AsyncClient, layout: dict[str, Any]
) -> None:
    problem(await api.post("/v1/jobs/preview", json=train(layout=layout)), 422, "invalid_layout")
    answer = await api.post("/v1/jobs/advice", params={"world": 2}, json=train(layout=layout))
    assert answer.status_code == 200, answer.text
    plain = await api.post("/v1/jobs/advice", params={"world": 2}, json=train())
    assert answer.json()["layouts"] == plain.json()["layouts"] != []


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"world": 0}, "world"),
        ({"world": 10_000}, "world"),
        ({"top": 0}, "top"),
        ({"gpu": "H1"}, "gpu"),
        ({"mfu": 1.5}, "mfu"),
        ({"ranks": 4}, "ranks"),
    ],
)
async def test_a_wrong_parameter_is_refused_by_its_name(
    api: httpx2.AsyncClient, parameters: dict[str, Any], field: str
) -> None:
    answer = await api.post("/v1/jobs/advice", params=parameters, json=train())
    assert field in problem(answer, 422, "invalid_request")["errors"][0]["field"]


async def test_more_ranks_than_are_searched_are_refused_also_if_the_spec_has_them(api: httpx2.AsyncClient) -> None:
    many = train(layout={"data": 8192}, global_batch=8192)
    [error] = problem(await api.post("/v1/jobs/advice", json=many), 422, "invalid_spec")["errors"]
    assert error["field"] == "train.layout" and "4,096" in error["message"] and "world" in error["remedy"]


async def test_a_model_of_unknown_size_is_refused(api: httpx2.AsyncClient, tmp_path: Any) -> None:
    own = train(model={"import": "somewhere:build", "code": str(tmp_path)})
    errors = problem(await api.post("/v1/jobs/advice", json=own), 422, "invalid_spec")["errors"]
    assert errors[0]["field"] == "train.model" and "shardyard run --local" in errors[0]["remedy"]


async def test_a_command_has_no_layout(api: httpx2.AsyncClient) -> None:
    spec = {"name": "c", "command": ["python", "-c", "0"], "ranks": 2}
    assert problem(await api.post("/v1/jobs/advice", json=spec), 422, "invalid_spec")["errors"][0]["field"] == "command"
