"""Commands beside ranks over HTTP, from Python and from the command line."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from shardyard.api.cli.terminal.event_lines import remark
from shardyard.api.client import Client
from shardyard.service.settings import Settings

from ..conftest import SPEC, Plane, ask, problem, running_job, served


@pytest.fixture
def allowed(settings: Settings) -> Iterator[Plane]:
    """A served API that lets users run commands."""
    with served(settings.model_copy(update={"exec": True})) as opened:
        yield opened


@pytest.fixture
def client(allowed: Plane) -> Iterator[Client]:
    with Client(allowed.url) as opened:
        yield opened


async def test_a_server_refuses_by_default(api: httpx2.AsyncClient) -> None:
    job = (await api.post("/v1/jobs", json=SPEC)).json()["id"]
    answer = await api.post(f"/v1/jobs/{job}/execs", json={"command": ["ls"], "rank": 0})
    [error] = problem(answer, 403, "exec_disabled")["errors"]
    assert "SHARDYARD_EXEC=true" in error["remedy"]


def test_a_command_runs_once_by_its_key_and_its_end_names_who_ran_it(allowed: Plane, client: Client) -> None:
    job, gang = running_job(allowed, client)
    asked = client.execute(job, ["nvidia-smi", "-L"], rank=1, idempotency_key="mine")
    assert (asked.command, asked.rank, asked.seconds, asked.status) == (["nvidia-smi", "-L"], 1, 60, None)
    assert client.execute(job, ["nvidia-smi", "-L"], rank=1, idempotency_key="mine") == asked
    for _ in range(2):
        gang.emit(("exec", {"id": asked.id, "rank": 1, "status": 9, "message": "exit status 9"}))
    gang.state("succeeded")
    [event] = [event for event in client.events(job) if event.kind == "exec"]
    assert (event.data["status"], event.data["asked_by"]) == (9, "local")
    assert (remark(event) or "").endswith("nvidia-smi -L beside rank 1, run by local: exit status 9")
    assert [(one.id, one.status) for one in client.execs(job).items] == [(asked.id, 9)]


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({"rank": 2, "command": ["ls"]}, 422, "profile_rank_unknown", "rank"),
        ({"rank": 0, "command": []}, 422, "invalid_request", "command"),
        ({"rank": 0, "command": "ls"}, 422, "invalid_request", "command"),
        ({"rank": 0, "command": ["x" * 8000] * 5}, 422, "command_too_long", "command"),
        ({"rank": 0, "command": ["ls"], "seconds": 3601}, 422, "invalid_request", "seconds"),
        ({"command": ["ls"]}, 422, "invalid_request", "rank"),
    ],
    ids=["rank", "empty", "text", "long", "seconds", "missing"],
)
def test_refused_commands(allowed: Plane, client: Client, body: Any, status: int, code: str, field: str) -> None:
    job, _ = running_job(allowed, client)
    [error, *_] = problem(ask("POST", f"{allowed.url}/v1/jobs/{job}/execs", json=body), status, code)["errors"]
    assert error["field"] == field and error["message"] and error["remedy"]
