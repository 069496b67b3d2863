"""Certificates over HTTP: attached, read, refused, and a page that a browser runs nothing of."""

from pathlib import Path

import httpx2
import pytest
from harness.certificates import certificate

from shardyard.api.cli.main import run
from shardyard.api.client import Client
from shardyard.service.certificate_signature import signed
from shardyard.service.schemas.certificate import Certificate
from shardyard.service.settings import Settings

from ..conftest import SPEC, problem


@pytest.fixture
def proof(settings: Settings) -> Certificate:
    changes = ["<script>alert(1)</script>"]
    return signed(certificate(given=SPEC["train"], changes=changes), settings)


async def test_a_job_has_its_certificate_and_a_list_has_none(api: httpx2.AsyncClient, proof: Certificate) -> None:
    path = f"/v1/jobs/{(await api.post('/v1/jobs', json=SPEC)).json()['id']}/certificate"
    for absent in (path, f"{path}/page"):
        problem(await api.get(absent), 404, "certificate_not_found")
    found = await api.put(path, json=proof.model_dump(mode="json"))
    assert found.status_code == 200 and found.json()["certificate"]["equal"] is True
    assert Certificate.model_validate((await api.get(path)).json()) == proof
    shown = await api.get(f"{path}/page")
    assert "equal to one process" in shown.text and "<script" not in shown.text
    assert (
        shown.headers["content-type"].startswith("text/html") and "sandbox" in shown.headers["content-security-policy"]
    )
    [listed] = (await api.get("/v1/jobs")).json()["items"]
    assert listed["certificate"] is None


async def test_what_is_no_certificate_of_the_job_is_refused(api: httpx2.AsyncClient, proof: Certificate) -> None:
    path = f"/v1/jobs/{(await api.post('/v1/jobs', json=SPEC)).json()['id']}/certificate"
    body = proof.model_dump(mode="json")
    problem(await api.put(path, json=body | {"equal": False}), 422, "invalid_certificate")
    problem(await api.put(path, json={"name": "a"}), 422, "invalid_request")
    for wrong in ({"made_at": 1e30}, {"made_at": -1.0}):
        refused = problem(await api.put(path, json=body | wrong), 422, "invalid_request")
        assert refused["errors"][0]["field"] == "made_at"
    text = proof.model_copy(update={"losses": [1.5, 7.5]}).model_dump_json().replace("7.5", "NaN")
    headers = {"content-type": "application/json"}  # by Python's json, as FastAPI reads it
    refused = problem(await api.put(path, content=text, headers=headers), 422, "invalid_request")
    assert refused["errors"][0]["field"].startswith("losses")
    assert (await api.get(path.removesuffix("/certificate"))).json()["certificate"] is None
    other = {**SPEC, "name": "other", "train": {**SPEC["train"], "seed": 7}}
    for spec in (other, {"name": "mine", "command": "true"}):
        job = (await api.post("/v1/jobs", json=spec)).json()["id"]
        refused = problem(await api.put(f"/v1/jobs/{job}/certificate", json=body), 422, "certificate_mismatch")
        assert refused["errors"][0]["remedy"]


async def test_another_layout_has_no_certificate(api: httpx2.AsyncClient, proof: Certificate) -> None:
    job = f"/v1/jobs/{(await api.post('/v1/jobs', json=SPEC)).json()['id']}"
    assert (await api.put(f"{job}/certificate", json=proof.model_dump(mode="json"))).status_code == 200
    for data, kept in ((2, True), (1, False)):
        layout = {**SPEC["train"]["layout"], "data": data}
        changed = await api.post(f"{job}/reshard", json={"layout": layout})
        assert changed.status_code == 202
        assert ((await api.get(job)).json()["certificate"] is not None) == kept
    problem(await api.get(f"{job}/certificate"), 404, "certificate_not_found")


def test_a_file_is_attached_from_the_command_line(
    client: Client, proof: Certificate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, url = client.submit(SPEC), ["--url", client.url]
    (tmp_path / "proof.json").write_text(proof.model_dump_json(indent=2))
    assert run(["verify", str(tmp_path / "proof.json"), "--check", "--job", job.id, *url]) == 0
    assert f"Attached to {job.id}" in capsys.readouterr().err
    assert run(["show", job.id, *url]) == 0
    assert "equal to one process (data 2 × tensor 2; key " in capsys.readouterr().out
    for arguments, said in (([], "No file is given"), (["a.yaml", "--job", job.id], "Both a file and a job")):
        assert run(["verify", *arguments, *url]) != 0
        assert said in capsys.readouterr().err


@pytest.mark.full
def test_a_jobs_layout_is_proved_and_its_page_says_so(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    job = client.submit(SPEC)
    assert run(["verify", "--job", "tiny", "--steps", "2", "--url", client.url]) == 0
    assert f"Attached to {job.id}" in capsys.readouterr().err
    found = job.refresh().certificate
    assert found is not None and found.equal and (tmp_path / "tiny.certificate.json").exists()
