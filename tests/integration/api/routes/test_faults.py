"""Faults over HTTP, from Python and from the command line: refused where they are not allowed, and never injected twice."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import ApiError, Client
from shardyard.service.settings import Settings

from ..conftest import SPEC, Plane, ask, problem, running_job, served


@pytest.fixture
def harmed(settings: Settings) -> Iterator[Plane]:
    """A served API that lets faults be injected."""
    with served(settings.model_copy(update={"fault_injection": True})) as opened:
        yield opened


@pytest.fixture
def client(harmed: Plane) -> Iterator[Client]:
    with Client(harmed.url) as opened:
        yield opened


async def test_a_server_refuses_by_default(api: httpx2.AsyncClient) -> None:
    job = (await api.post("/v1/jobs", json=SPEC)).json()["id"]
    answer = await api.post(f"/v1/jobs/{job}/faults", json={"kind": "kill-rank", "rank": 0})
    [error] = problem(answer, 403, "faults_disabled")["errors"]
    assert "SHARDYARD_FAULT_INJECTION=true" in error["remedy"]


def test_a_fault_is_asked_for_once_by_its_key(harmed: Plane, client: Client) -> None:
    job, gang = running_job(harmed, client)
    asked = client.inject_fault(job, "kill-rank", rank=1, idempotency_key="mine")
    assert (asked.job, asked.kind, asked.rank, asked.actor, asked.settled_at) == (job, "kill-rank", 1, "local", None)
    assert client.inject_fault(job, "kill-rank", rank=1, idempotency_key="mine") == asked
    assert client.inject_fault(job, "kill-rank", rank=1).id != asked.id
    for _ in range(2):
        gang.emit(("fault", {"id": asked.id, "message": "SIGKILL", "step": 2, "done": True}))
    gang.state("succeeded")
    reported = [event.data for event in client.events(job) if event.kind == "fault"]
    assert [(data["id"] == asked.id, data["done"], data["asked_by"]) for data in reported] == [
        (True, True, "local"),
        (False, False, "local"),
    ]
    assert client.inject_fault(job, "kill-rank", rank=1, idempotency_key="mine").settled_at is not None


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({"kind": "kill-rank"}, 422, "invalid_fault", "rank"),
        ({"kind": "kill-rank", "rank": 2}, 422, "invalid_fault", "rank"),
        ({"kind": "kill-rank", "rank": -1}, 422, "invalid_request", "rank"),
        ({"kind": "kill-rank", "rank": "1"}, 422, "invalid_request", "rank"),
        ({"kind": "kill-rank", "rank": True}, 422, "invalid_request", "rank"),
        ({"kind": "kill-rank", "rank": 10**30}, 400, "invalid_syntax", "rank"),
        ({"kind": "slow-rank", "rank": 1, "delay_ms": 0}, 422, "invalid_request", "delay_ms"),
        ({"kind": "slow-rank", "rank": 1, "duration_s": 1e9}, 422, "invalid_request", "duration_s"),
        ({"kind": "flood"}, 422, "invalid_request", "kind"),
        ({"rank": 1}, 422, "invalid_request", "kind"),
        ({"kind": "kill-rank", "rank": 1, "why": "so"}, 422, "invalid_request", "why"),
        ([], 422, "invalid_request", "body"),
        ({"kind": "kill-supervisor", "rank": 1}, 422, "invalid_fault", "rank"),
        ({"kind": "corrupt-checkpoint"}, 422, "invalid_fault", "kind"),
    ],
    ids=str,
)
def test_refused_faults(harmed: Plane, client: Client, body: Any, status: int, code: str, field: str) -> None:
    job, _ = running_job(harmed, client)
    answer = ask("POST", f"{harmed.url}/v1/jobs/{job}/faults", json=body)
    [error, *_] = problem(answer, status, code)["errors"]
    assert error["field"] == field and error["message"] and error["remedy"]


def test_jobs_that_do_not_run_are_left_alone(client: Client) -> None:
    job = client.submit(SPEC).id
    for name, code in ((job, "job_not_running"), ("absent", "job_not_found")):
        with pytest.raises(ApiError) as refused:
            client.inject_fault(name, "kill-supervisor")
        assert refused.value.code == code and refused.value.errors[0].remedy


def test_other_formats_and_sites_are_kept_out(harmed: Plane, client: Client) -> None:
    job, _ = running_job(harmed, client)
    path = f"{harmed.url}/v1/jobs/{job}/faults"
    body = json.dumps({"kind": "kill-supervisor"})
    problem(ask("POST", path, content=body, headers={"Content-Type": "text/plain"}), 415, "unsupported_media_type")
    foreign = {"Content-Type": "application/json", "Origin": "http://evil.example"}
    problem(ask("POST", path, content=body, headers=foreign), 403, "foreign_origin")
    assert ask("POST", path, content=body, headers={"Content-Type": "application/yaml"}).status_code == 202


def test_the_command_line(
    harmed: Plane, client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHARDYARD_URL", harmed.url)
    job, gang = running_job(harmed, client)
    assert run(["chaos", job, "--kill-rank", "1"]) == 0
    printed = capsys.readouterr()
    fault, *rest = printed.out.split()
    assert rest == ["kill-rank", "rank", "1"] and f"shardyard watch {job}" in printed.err
    assert run(["chaos", "tiny", "--slow-rank", "0", "--delay-ms", "5", "--duration-s", "2", "--json"]) == 0
    slow = json.loads(capsys.readouterr().out)
    assert (slow["kind"], slow["rank"], slow["delay_ms"], slow["duration_s"]) == ("slow-rank", 0, 5.0, 2.0)
    for kind in ("kill-actor", "hang-rank"):
        assert run(["chaos", job, f"--{kind}", "0"]) == 0
    assert run(["chaos", job, "--kill-supervisor"]) == 0
    capsys.readouterr()

    for wrong, reason in (
        ([], "No fault was named"),
        (["--kill-supervisor", "--kill-rank", "1"], "Several faults were named"),
        (["--kill-rank", "7"], "There is no rank 7"),
        (["--corrupt-checkpoint"], "no checkpoint yet"),
    ):
        assert run(["chaos", job, *wrong]) == 1
        refused = capsys.readouterr().err
        assert reason in refused and "shardyard" in refused

    gang.emit(("fault", {"id": fault, "message": "SIGKILL to the trainer", "step": 2, "done": True}))
    gang.state("succeeded")
    assert run(["chaos", job, "--kill-supervisor"]) == 1
    assert "succeeded" in capsys.readouterr().err
    assert run(["watch", job, "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [event["fault"] for event in events if event["kind"] == "fault"]
    assert kinds == ["kill-rank", "slow-rank", "kill-actor", "hang-rank", "kill-supervisor"]
