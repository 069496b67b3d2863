"""A job that waits for its next try, as its readers see it."""

import json
import time

import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import Client
from shardyard.service.store import jobs

from ..conftest import SPEC, Gang, Plane


async def _postpone(plane: Plane, job: str) -> None:
    """However slow the machine, the next try is still to come when it is looked at."""
    async with plane.store.write() as tx:
        await jobs.set_columns(tx, job, {"retry_at": time.time() + 3600})


def test_a_lost_job_shows_what_it_has_used_and_when_it_is_tried_again(
    plane: Plane, client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHARDYARD_URL", plane.url)
    job = client.submit({**SPEC, "policy": {"max_restarts": 2}})
    gang = Gang(plane, job.id)
    gang.state("starting")
    gang.state("recovering", "rank_lost")
    gang.state("failed", "node_lost", "rank 1: its node is gone")
    plane.do(_postpone(plane, job.id))
    found = client.job(job.id)
    assert (found.state, found.reason) == ("queued", "node_lost")
    assert found.retry_at is not None
    budgets = found.budgets.model_dump()
    assert budgets == {
        "restarts": {"used": 1, "limit": 2},
        "retries": {"used": 0, "limit": 0},
        "repairs": {"used": 1, "limit": 20},
    }
    assert run(["show", job.id]) == 0
    shown = capsys.readouterr().out
    assert "restarts 1 of 2 · repairs 1 of 20" in shown
    assert "retry at" in shown and "queued · node_lost · Restart 1 of 2 in " in shown
    assert run(["show", job.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["retry_at"] is not None
    client.cancel(job.id)
    assert client.job(job.id).retry_at is None
