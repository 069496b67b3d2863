"""Clone, retry, delete and undelete over HTTP."""

import shutil
from pathlib import Path

import httpx2
from harness.stored_checkpoints import save_checkpoint

from shardyard.service.settings import Settings
from shardyard.service.store import checkpoints
from shardyard.service.store.engine import Store

from ..conftest import SPEC, problem


async def cancelled(api: httpx2.AsyncClient) -> str:
    job = (await api.post("/v1/jobs", json=SPEC)).json()["id"]
    assert (await api.post(f"/v1/jobs/{job}/cancel")).status_code == 202
    return str(job)


async def test_a_retry_answers_201_then_200_for_the_same_key(api: httpx2.AsyncClient) -> None:
    job = await cancelled(api)
    sent = [await api.post(f"/v1/jobs/{job}/retry", headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [answer.status_code for answer in sent] == [201, 200]
    assert sent[0].json() == sent[1].json() and sent[0].json()["retry_of"] == job
    assert sent[0].headers["Location"] == f"/v1/jobs/{sent[0].json()['id']}"
    problem(await api.post(f"/v1/jobs/{sent[0].json()['id']}/retry"), 409, "job_not_ended")
    problem(await api.post("/v1/jobs/absent/retry"), 404, "job_not_found")


async def test_a_clone_answers_201_then_200_for_the_same_key(api: httpx2.AsyncClient) -> None:
    text = "name: tiny  # the smallest\ntrain: {steps: 20, global_batch: 8, layout: {data: 2}}\n"
    job = (await api.post("/v1/jobs", content=text, headers={"Content-Type": "application/yaml"})).json()["id"]
    wanted = {"set": {"train.steps": 30, "train.data.seq_len": 64}}
    sent = [await api.post("/v1/jobs/tiny/clone", json=wanted, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [answer.status_code for answer in sent] == [201, 200]
    made = sent[0].json()
    assert made["id"] == sent[1].json()["id"] and sent[0].headers["Location"] == f"/v1/jobs/{made['id']}"
    assert (made["name"], made["state"], made["labels"]) == ("tiny-clone", "queued", {"parent": job})
    assert (made["spec"]["train"]["steps"], made["spec"]["train"]["data"]["seq_len"]) == (30, 64)
    kept = (await api.get(f"/v1/jobs/{made['id']}/submitted-spec")).json()["text"]
    assert "name: tiny-clone  # the smallest" in kept and "steps: 30" in kept
    other = await api.post("/v1/jobs/tiny/clone", json={}, headers={"Idempotency-Key": "k"})
    problem(other, 409, "idempotency_conflict")
    assert (await api.post(f"/v1/jobs/{made['id']}/clone", json={"name": "again"})).json()["name"] == "again"


async def test_a_clone_that_cannot_be_made_names_the_field(api: httpx2.AsyncClient) -> None:
    job = await cancelled(api)
    for body, field in (
        ({"set": {"train.stps": 1}}, "train.stps"),
        ({"set": {"name.first": "x"}}, "name.first"),
        ({"set": {"train.layout[0]": 1}}, "train.layout[0]"),
        ({"name": "No Name"}, "name"),
        ({"values": {}}, "values"),
    ):
        answer = await api.post(f"/v1/jobs/{job}/clone", json=body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["field"] == field and answer.json()["errors"][0]["remedy"]
    assert (await api.post(f"/v1/jobs/{job}/clone", json={"set": {"a" * 201: 1}})).status_code == 422
    problem(await api.post("/v1/jobs/absent/clone", json={}), 404, "job_not_found")
    problem(
        await api.post(f"/v1/jobs/{job}/clone", content=b"", headers={"Content-Type": "text/plain"}),
        415,
        "unsupported_media_type",
    )
    await api.delete(f"/v1/jobs/{job}")
    problem(await api.post(f"/v1/jobs/{job}/clone", json={}), 410, "job_deleted")


async def test_a_clone_of_a_job_whose_first_checkpoint_is_gone_is_asked_for_another(
    api: httpx2.AsyncClient, settings: Settings
) -> None:
    source = await cancelled(api)
    save_checkpoint(Path(settings.storage) / source, 10)
    continued = SPEC | {"name": "more", "train": SPEC["train"] | {"resume_from": source}}
    job = (await api.post("/v1/jobs", json=continued)).json()["id"]
    shutil.rmtree(Path(settings.storage) / source / "step-00000010")
    store = Store(settings.database)
    async with store.write() as tx:
        await checkpoints.put(tx, source, 10, "deleted")
    await store.close()
    (error,) = problem(await api.post(f"/v1/jobs/{job}/clone", json={}), 409, "checkpoint_deleted")["errors"]
    assert error["field"] == "train.resume_from"
    assert error["remedy"].startswith(f"Set train.resume_from to another checkpoint: shardyard checkpoints {source}")
    save_checkpoint(Path(settings.storage) / source, 20)
    chosen = await api.post(f"/v1/jobs/{job}/clone", json={"set": {"train.resume_from": source, "train.steps": 30}})
    assert chosen.status_code == 201, chosen.text


async def test_a_deleted_job_answers_410_until_it_is_restored(api: httpx2.AsyncClient) -> None:
    job = await cancelled(api)
    deleted = [await api.delete(f"/v1/jobs/{job}") for _ in range(2)]
    assert [answer.status_code for answer in deleted] == [200, 200] and deleted[0].json() == deleted[1].json()
    for path in ("", "/events", "/logs", "/incidents", "/timeline", "/metrics", "/checkpoints"):
        found = problem(await api.get(f"/v1/jobs/{job}{path}"), 410, "job_deleted")
        assert f"shardyard undelete {job}" in found["errors"][0]["remedy"]
    assert (await api.get(f"/v1/jobs/{job}")).headers["Cache-Control"] == "no-store"
    assert (await api.get("/v1/jobs")).json()["items"] == []
    listed = (await api.get("/v1/jobs", params={"deleted": True})).json()["items"]
    assert [one["id"] for one in listed] == [job]
    assert (await api.post(f"/v1/jobs/{job}/undelete")).json()["deleted_at"] is None
    assert (await api.get(f"/v1/jobs/{job}")).json()["id"] == job


async def test_a_name_does_nothing_that_would_meet_another_job_the_second_time(api: httpx2.AsyncClient) -> None:
    job = await cancelled(api)
    named = f"/v1/jobs/{SPEC['name']}"
    problem(await api.delete(named), 422, "invalid_request")
    assert (await api.get(f"/v1/jobs/{job}")).status_code == 200
    (error,) = problem(await api.patch(named, json={"name": "other"}), 422, "invalid_request")["errors"]
    assert error["field"] == "job" and "shardyard list --name" in error["remedy"]
    assert (await api.patch(named, json={"notes": "x"})).json()["id"] == job
    await api.delete(f"/v1/jobs/{job}")
    (error,) = problem(await api.post(f"{named}/undelete"), 422, "invalid_request")["errors"]
    assert error["field"] == "job" and "shardyard undelete" in error["remedy"]
