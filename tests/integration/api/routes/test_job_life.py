"""Retry, delete and undelete over HTTP."""

import httpx2

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


async def test_a_name_deletes_nothing_because_it_means_another_job_the_second_time(api: httpx2.AsyncClient) -> None:
    job = await cancelled(api)
    problem(await api.delete(f"/v1/jobs/{SPEC['name']}"), 422, "invalid_request")
    assert (await api.get(f"/v1/jobs/{job}")).status_code == 200
