"""`shardyard list` in the order of a number, against a served API."""

import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import Client

from ...conftest import SPEC, Gang, Plane
from .test_program_facts import PROGRAM, logs, running

pytestmark = pytest.mark.usefixtures("asks_the_plane")


def listed(capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    assert run(["list", *options]) == 0
    return capsys.readouterr().out.splitlines()


def test_jobs_are_listed_by_what_they_logged(plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    for name, values in (("low", (0.25, 0.5)), ("high", (0.75, 0.125))):
        _, gang = running(plane, client, {**PROGRAM, "name": name})
        logs(gang, *(("val/acc [%]", step, value) for step, value in enumerate(values)))
    client.submit({**SPEC, "name": "silent"})
    head, *rows = listed(capsys, "--sort", "-highest.val/acc [%]")
    assert "highest val/acc [%]" in head and head.split()[-1] == "AGE"
    assert [row.split()[1] for row in rows] == ["high", "low", "silent"]
    assert ["0.75" in rows[0], "0.5" in rows[1]] == [True, True]
    head, *rows = listed(capsys, "--sort=-metric.val/acc [%]", "--limit", "1")
    assert "val/acc [%]" in head and [row.split()[1] for row in rows] == ["low"]
    assert run(["list", "--sort=-metric.val/acc [%]", "--limit", "1"]) == 0
    hint = capsys.readouterr().err
    assert "shardyard list '--sort=-metric.val/acc [%]' --limit=1 --cursor " in hint
    following = listed(capsys, "--sort=-metric.val/acc [%]", "--cursor", hint.split()[-1])
    assert [row.split()[1] for row in following[1:]] == ["high", "silent"]


def test_jobs_are_listed_by_their_times(plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    waits = client.submit({**SPEC, "name": "waits"})
    job = client.submit({**SPEC, "name": "ran"}).id
    gang = Gang(plane, job)
    gang.state("starting")
    gang.state("running")
    gang.succeed()
    for order, head in (("-duration", "DURATION"), ("device_time", "DEVICE TIME")):
        first, *rows = listed(capsys, "--sort", order)
        assert head in first and [row.split()[1] for row in rows] == ["ran", "waits"]
        assert rows[1].split()[0] == waits.id
    assert run(["list", "--sort", "loss"]) == 1
    error = capsys.readouterr().err
    assert "'loss' is no order of jobs" in error and "-highest.acc" in error
