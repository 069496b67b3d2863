"""A preview of a spec: layout, batch and parameters, without storing a job."""

from typing import Any

import httpx2
import pytest
import yaml

from ..conftest import problem
from .test_submit import REFUSED, stored, train


async def test_a_preview_shows_what_would_run_and_stores_nothing(api: httpx2.AsyncClient) -> None:
    answer = await api.post("/v1/jobs/preview", json=train(layout={"data": {"min": 1, "max": 4}}))
    assert answer.status_code == 200
    plan = answer.json()
    assert (plan["world_size"], plan["global_batch"], plan["data"], plan["microbatches"], plan["micro_batch"]) == (
        4, 8, 4, 1, 2,
    )  # fmt: skip
    assert (plan["tokens_per_step"], plan["tokens"]) == (512, 10_240)
    assert plan["parameters"] == 4 * (2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 352 + 2 * 128) + 2 * 256 * 128 + 128
    assert [form["data"] for form in plan["elastic_layouts"]] == [4, 2, 1]
    assert await stored(api) == []


async def test_parameters_that_cannot_be_counted_are_null(api: httpx2.AsyncClient, tmp_path: Any) -> None:
    own = train(model={"import": "somewhere:build", "code": str(tmp_path)})
    assert (await api.post("/v1/jobs/preview", json=own)).json()["parameters"] is None


@pytest.mark.parametrize(("document", "code", "field", "remedy"), REFUSED)
async def test_a_preview_refuses_what_a_submission_refuses(
    api: httpx2.AsyncClient, document: dict[str, Any], code: str, field: str, remedy: str
) -> None:
    answer = await api.post(
        "/v1/jobs/preview", content=yaml.safe_dump(document), headers={"Content-Type": "application/yaml"}
    )
    found = next(error for error in problem(answer, 422, code)["errors"] if error["field"].startswith(field))
    assert remedy in found["remedy"]
