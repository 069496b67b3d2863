"""Submitting over HTTP: what is good is stored once, what is bad is refused with field and remedy and leaves nothing."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from shardyard.service.spec import JobSpec
from shardyard.workers.own_plan import digest

from ..conftest import SPEC, problem


def train(**changes: Any) -> dict[str, Any]:
    return {**SPEC, "train": {**SPEC["train"], **changes}}


async def stored(api: httpx2.AsyncClient) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await api.get("/v1/jobs")).json()["items"]
    return items


async def test_yaml_and_json_are_taken(api: httpx2.AsyncClient) -> None:
    first = await api.post("/v1/jobs", json=SPEC)
    assert first.status_code == 201
    job = first.json()
    assert first.headers["location"] == f"/v1/jobs/{job['id']}"
    assert (job["name"], job["state"], job["world_size"], job["layout"]) == ("tiny", "queued", 2, "data 2")
    assert job["batch"] == "global batch 8 = 2 data × 1 micro-batches × 4 sequences"
    assert job["labels"] == {"team": "search"}
    assert job["created_at"].endswith(("Z", "+00:00"))
    second = await api.post("/v1/jobs", content=yaml.safe_dump(SPEC), headers={"Content-Type": "application/yaml"})
    assert second.status_code == 201
    assert second.json()["spec"] == job["spec"]
    assert (await api.get(f"/v1/jobs/{job['id']}")).json() == job
    assert (await api.get("/v1/jobs/tiny")).json()["id"] == second.json()["id"]


@pytest.mark.parametrize("degree", [2, 3, 8])
async def test_the_vocabulary_of_gpt2_goes_with_any_tensor_degree(api: httpx2.AsyncClient, degree: int) -> None:
    sizes = {"family": "gpt2", "preset": "nano", "dim": 192, "heads": 24, "hidden": 768, "vocab": 50_257}
    layout = {"tensor": degree, "sequence": False}
    answer = await api.post("/v1/jobs/preview", json=train(model=sizes, layout=layout))
    assert answer.status_code == 200, answer.json()
    assert answer.json()["world_size"] == degree


SERVED = {"data": 2, "parameter_server": {"servers": 1}}
REFUSED: list[tuple[dict[str, Any], str, str, str]] = [
    ({**SPEC, "polcy": {}}, "invalid_spec", "polcy", "policy"),
    (train(layuot={}), "invalid_spec", "train.layuot", "layout"),
    (train(layout={"data": 3}), "invalid_layout", "train.global_batch", "multiple of 3"),
    (train(layout={"tensor": 3}), "invalid_layout", "train.layout.tensor", "1, 2"),
    (train(layout={"pipeline": 8}, global_batch=64), "invalid_layout", "train.layout.pipeline", "at most 4"),
    (train(layout={"data": 2, "micro_batch": 3}), "invalid_layout", "train.layout.micro_batch", "divisor"),
    (train(layout={"zero": 1}), "invalid_layout", "train.layout.zero", "layout.data"),
    ({**train(precision="fp8"), "resources": {"device": "cpu"}}, "invalid_spec", "resources.device", "cuda"),
    (train(precision="fp8", layout={"tensor": 2}), "invalid_layout", "train.layout.tensor", "bf16"),
    ({**train(layout=SERVED), "resources": {"device": "cuda"}}, "invalid_spec", "resources.device", "to cpu"),
    (train(layout={"auto": {"world": 0}}), "invalid_spec", "train.layout.auto.world", "1 or more"),
    (train(layout={"auto": {"world": 2}, "tensor": 3}), "invalid_layout", "train.layout", "another number of ranks"),
    (train(layout={"auto": {"world": 2}, "ring_window": 2}), "invalid_layout", "train.layout.ring_window", "Leave"),
    (train(layout={**SERVED, "tensor": 2}), "invalid_layout", "train.layout.tensor", "to 1"),
    (train(checkpoint={"uri": "gs://bucket/a"}), "invalid_spec", "train.checkpoint.uri", "s3://bucket/prefix"),
    (train(checkpoint={"uri": 7}), "invalid_spec", "train.checkpoint.uri", "text"),
    (train(resume_from="s3://bucket/a?b"), "invalid_spec", "train.resume_from", "without ?"),
    (train(optimizer={"lr": float("nan")}), "invalid_spec", "train.optimizer.lr", "finite"),
    (train(optimizer={"lr": float("inf")}), "invalid_spec", "train.optimizer.lr", "finite"),
    (train(data={"source": "text", "files": ["/nowhere/a.txt"]}), "missing_file", "train.data.files", ""),
    (train(data={"tokenizer": "/nowhere/tokenizer.json"}), "missing_file", "train.data.tokenizer", ""),
    (train(resume_from="/nowhere"), "unknown_checkpoint", "train.resume_from", ""),
]


@pytest.mark.parametrize(("document", "code", "field", "remedy"), REFUSED)
@pytest.mark.parametrize("form", ["json", "yaml"])
async def test_a_bad_spec_is_refused(
    api: httpx2.AsyncClient, document: dict[str, Any], code: str, field: str, remedy: str, form: str
) -> None:
    content = json.dumps(document) if form == "json" else yaml.safe_dump(document)
    answer = await api.post("/v1/jobs", content=content, headers={"Content-Type": f"application/{form}"})
    found = next(error for error in problem(answer, 422, code)["errors"] if error["field"].startswith(field))
    assert found["message"]
    assert found["remedy"] and remedy in found["remedy"]
    assert await stored(api) == []


@pytest.mark.parametrize(
    "field", [{"checkpoint": {"uri": "s3://me:geheim@bucket/a"}}, {"resume_from": "s3://me:geheim@b"}]
)
async def test_credentials_in_an_address_are_refused_and_not_repeated(
    api: httpx2.AsyncClient, field: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    answer = await api.post("/v1/jobs", json=train(**field))
    assert "environment or role" in problem(answer, 422, "invalid_spec")["errors"][0]["remedy"]
    assert "geheim" not in answer.text + caplog.text
    assert await stored(api) == []


async def test_a_bucket_is_taken_as_it_is_named(api: httpx2.AsyncClient) -> None:
    """The API asks no bucket: the workers alone have the credentials."""
    fields = {"checkpoint": {"uri": "s3://bucket/a/"}, "resume_from": "s3://bucket/b/step-00000003"}
    answer = await api.post("/v1/jobs", json=train(**fields))
    assert answer.status_code == 201, answer.text
    assert answer.json()["spec"]["train"]["checkpoint"]["uri"] == "s3://bucket/a"


async def test_an_empty_corpus_is_refused(api: httpx2.AsyncClient, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    answer = await api.post("/v1/jobs", json=train(data={"source": "text", "files": [f"{tmp_path}/*.txt"]}))
    [found] = problem(answer, 422, "empty_corpus")["errors"]
    assert found["field"].startswith("train.data") and found["remedy"]
    assert await stored(api) == []


async def test_an_idempotency_key_gives_one_job(api: httpx2.AsyncClient) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = await api.post("/v1/jobs", json=SPEC, headers=key)
    again = await api.post(
        "/v1/jobs", content=yaml.safe_dump(SPEC), headers={**key, "Content-Type": "application/yaml"}
    )
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    other = await api.post("/v1/jobs", json=train(steps=21), headers=key)
    [found] = problem(other, 409, "idempotency_conflict")["errors"]
    assert found["field"] == "Idempotency-Key" and found["remedy"]
    assert len(await stored(api)) == 1


async def test_a_plan_that_came_with_a_module_is_stored_and_makes_no_other_request(api: httpx2.AsyncClient) -> None:
    """The second dry run of a submission that is repeated may find another number, or take too long."""
    key, bare = {"Idempotency-Key": "k-1"}, train(model={"import": "somewhere:build"})
    plan = {"of": digest(JobSpec.model_validate(bare).train), "ranks": 2, "parameters": 7, "at_peak": {"logits": 3}}
    first = await api.post("/v1/jobs", json=train(model={"import": "somewhere:build"}, planned=plan), headers=key)
    assert first.status_code == 201 and first.json()["warnings"] == []
    assert first.json()["spec"]["train"]["planned"]["at_peak"]["logits"] == 3
    again = await api.post("/v1/jobs", json=bare, headers=key)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    other = await api.post("/v1/jobs", json=train(planned=plan))
    assert other.json()["spec"]["train"]["planned"] is None
    assert [found["field"] for found in other.json()["warnings"]] == ["train.planned"]


@pytest.mark.parametrize("key", ["", "x" * 256, "a b"])
async def test_an_impossible_key_is_refused(api: httpx2.AsyncClient, key: str) -> None:
    answer = await api.post("/v1/jobs", json=SPEC, headers={"Idempotency-Key": key})
    assert problem(answer, 422, "invalid_request")["errors"][0]["field"] == "Idempotency-Key"
    assert await stored(api) == []
