"""A preview of a spec: layout, batch and parameters, without storing a job."""

from typing import Any

import httpx2
import pytest
import yaml

from shardyard.service.spec import JobSpec
from shardyard.workers.own_plan import digest

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


async def test_a_module_has_the_numbers_of_its_submitters_dry_run_or_none(
    api: httpx2.AsyncClient, tmp_path: Any
) -> None:
    own = train(model={"import": "somewhere:build", "code": str(tmp_path)})
    bare = (await api.post("/v1/jobs/preview", json=own)).json()
    assert (bare["parameters"], bare["memory"], bare["needs_dry_run"]) == (None, None, True)
    plan = {"of": digest(JobSpec.model_validate(own).train), "ranks": 2, "parameters": 7, "at_peak": {"logits": 3}}
    own["train"]["planned"] = plan
    found = (await api.post("/v1/jobs/preview", json=own)).json()
    assert (found["parameters"], found["needs_dry_run"]) == (7, False)
    assert (found["memory"]["source"], found["memory"]["bytes"]) == ("dry run", 3)
    own["train"]["global_batch"] = 16
    stale = (await api.post("/v1/jobs/preview", json=own)).json()
    assert (stale["parameters"], stale["memory"], stale["needs_dry_run"]) == (None, None, True)


@pytest.mark.parametrize(("document", "code", "field", "remedy"), REFUSED)
async def test_a_preview_refuses_what_a_submission_refuses(
    api: httpx2.AsyncClient, document: dict[str, Any], code: str, field: str, remedy: str
) -> None:
    answer = await api.post(
        "/v1/jobs/preview", content=yaml.safe_dump(document), headers={"Content-Type": "application/yaml"}
    )
    found = next(error for error in problem(answer, 422, code)["errors"] if error["field"].startswith(field))
    assert remedy in found["remedy"]
