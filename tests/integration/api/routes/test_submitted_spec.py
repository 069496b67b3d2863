"""A spec's text over HTTP, from the client's files, and in the terminal."""

import json
import os
from pathlib import Path

import httpx2
import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import Client

from ..conftest import SPEC, problem

YAML = {"Content-Type": "application/yaml"}


def as_yaml() -> str:
    """SPEC with a comment on top."""
    return "# Why: the baseline.\n" + "".join(f"{key}: {json.dumps(value)}\n" for key, value in SPEC.items())


async def read(api: httpx2.AsyncClient, job: str) -> tuple[str | None, str | None]:
    found = (await api.get(f"/v1/jobs/{job}/submitted-spec")).json()
    return found["format"], found["text"]


async def test_the_body_is_kept_with_its_comments_and_its_notation(api: httpx2.AsyncClient) -> None:
    job = (await api.post("/v1/jobs", content=as_yaml(), headers=YAML)).json()
    assert await read(api, job["id"]) == ("yaml", as_yaml())
    other = (await api.post("/v1/jobs", json=SPEC)).json()
    form, text = await read(api, other["id"])
    assert form == "json" and json.loads(text or "") == SPEC
    assert job["spec"] == other["spec"]
    problem(await api.get("/v1/jobs/absent/submitted-spec"), 404, "job_not_found")


async def test_a_credential_in_a_comment_is_not_stored(api: httpx2.AsyncClient) -> None:
    secret = "hf_abcdefghijklmnopqrstuvwxyz"
    job = (await api.post("/v1/jobs", content=f"{as_yaml()}# {secret}\n", headers=YAML)).json()
    _, text = await read(api, job["id"])
    assert text == as_yaml() + "# (left out: it may hold a credential)\n"
    # A trial of a sweep has no text of its own, nor has a body that is too long.
    longer = (await api.post("/v1/jobs", content=as_yaml() + "#" * 70_000, headers=YAML)).json()
    assert await read(api, longer["id"]) == (None, None)


def test_a_file_arrives_with_its_comments_and_its_absolute_paths(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.py").write_text("")
    (tmp_path / "spec.yaml").write_text("name: a  # mine\ncommand: [python, run.py]\ncwd: .   # here\n")
    assert run(["submit", str(tmp_path / "spec.yaml"), "--url", client.url]) == 0
    capsys.readouterr()
    assert run(["show", "a", "--submitted", "--url", client.url]) == 0
    out = capsys.readouterr().out
    assert out == f"name: a  # mine\ncommand: [python, run.py]\ncwd: {tmp_path}   # here\n"
    reader, writer = os.pipe()  # a shell's `<(…)`
    os.write(writer, out.encode())
    os.close(writer)
    assert run(["submit", f"/dev/fd/{reader}", "--json", "--url", client.url]) == 0
    os.close(reader)
    assert client.submitted_spec(json.loads(capsys.readouterr().out)["id"]).text == out
    (tmp_path / "again.yaml").write_text(out)
    assert client.submit(tmp_path / "again.yaml").spec == client.job("a").spec
    with_code = {"name": "b", "command": ["python", "run.py"], "code": {"dir": str(tmp_path)}}
    assert run(["show", client.submit(with_code).id, "--submitted", "--json", "--url", client.url]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "json"


def test_a_job_without_a_text_says_where_its_spec_is(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spec.json").write_text(json.dumps(SPEC) + " " * 70_000)
    (tmp_path / "spec.yaml").write_text(as_yaml() + "# -----BEGIN PRIVATE KEY-----\n")
    job = client.submit(tmp_path / "spec.yaml")
    assert client.submitted_spec(job.id).text is None
    assert run(["show", job.id, "--submitted", "--url", client.url]) != 0
    assert f"shardyard show {job.id} --json" in capsys.readouterr().err
    assert client.submitted_spec(client.submit(tmp_path / "spec.json").id).format == "json"
