"""`shardyard show` says when a job was in a state, also if that was on another day."""

import time
from typing import Any

import pytest
from harness.client_stand_in import ClientStandIn

from shardyard.api.cli.commands import jobs as command
from shardyard.api.cli.main import run
from shardyard.service.schemas.job import Job
from shardyard.service.schemas.timeline import Plan, StateSpan, Timeline

#: Noon of a day in the local time zone.
NOON = time.mktime((2026, 3, 5, 12, 0, 0, 0, 0, -1))


class Service(ClientStandIn):
    """A client of a service that has one job, which waits for its next attempt since yesterday."""

    def job(self, _: str) -> Job:
        spec: dict[str, Any] = {"name": "tiny", "train": {}}
        times = {"created_at": NOON - 90000, "retry_at": NOON + 86400}
        return Job.model_validate({"id": "job-1", "name": "tiny", "state": "backing_off", "spec": spec, **times})

    def timeline(self, _: str) -> Timeline:
        spans = [
            StateSpan(state="running", attempt=1, begun=NOON - 86400, ended=NOON - 60),
            StateSpan(state="backing_off", attempt=1, begun=NOON - 60),
        ]
        return Timeline(spans=spans, marks=[])

    def plan(self, _: str) -> Plan:
        return Plan()


def test_moments_of_another_day_have_their_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "Client", Service)
    monkeypatch.setattr("time.time", lambda: NOON)
    assert run(["show", "job-1"]) == 0
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    found = [[cell.strip() for cell in line if cell] for line in lines]
    assert ["retry at", "2026-03-06 12:00:00"] in found
    assert ["2026-03-04 12:00:00", "running · 23:59:00"] in found
    assert ["11:59:00", "backing_off"] in found
