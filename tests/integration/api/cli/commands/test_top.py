"""`shardyard top` on a real terminal and in a pipe, against a served API."""

import signal
from typing import Any

import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import Client

from ...conftest import SPEC, Gang, Plane, until


def test_top_shows_jobs_and_nodes_and_leaves_by_q(plane: Plane, client: Client, shown: Any) -> None:
    job = client.submit(SPEC)
    gang = Gang(plane, job.id)
    gang.state("running")
    gang.steps(1, 3)
    with shown("top", "--interval", "0.2") as terminal:
        terminal.shows("1 running", job.id, "3/20", "here", "q quits")
        gang.steps(4, 7)
        terminal.shows("7/20")
        other = client.submit({**SPEC, "name": "another"})
        terminal.shows(other.id)
        terminal.press("q")
        assert terminal.ends() == 0
        assert "\x1b[?1049h" in terminal.raw and "\x1b[?1049l" in terminal.raw  # the screen of before comes back


def test_top_continues_when_the_control_plane_restarts(plane: Plane, client: Client, shown: Any) -> None:
    client.submit(SPEC)
    with shown("top", "--interval", "0.2") as terminal:
        terminal.shows("tiny")
        plane.stop()
        terminal.shows("Trying again")
        plane.start()
        newer = client.submit({**SPEC, "name": "newer"})
        terminal.shows(newer.id)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ends() == 130


def test_sigterm_leaves_the_terminal_as_it_was(client: Client, shown: Any) -> None:
    client.submit(SPEC)
    with shown("top") as terminal:
        before = terminal.settings
        terminal.shows("tiny")
        assert terminal.settings != before
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ends() == 143 and terminal.settings == before
        assert "\x1b[?1049l" in terminal.raw


def test_colours_stay_away_where_they_are_not_wanted(client: Client, shown: Any) -> None:
    client.cancel(client.submit(SPEC).id)
    with shown("top", NO_COLOR="1") as terminal:
        terminal.shows("cancelled")
        assert "\x1b[33m" not in terminal.raw
        terminal.press("q")
        assert terminal.ends() == 0


def test_top_in_a_pipe_comes_once(
    plane: Plane, client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDYARD_URL", plane.url)
    first = client.submit(SPEC)
    gang = Gang(plane, first.id)
    gang.state("running")
    second = client.submit(SPEC)
    assert run(["top"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "1 running · 0/32 CPU ranks · 0/0 GPUs in use on 1 nodes" in lines[0]
    ids = [line.split()[0] for line in lines if line.startswith("job-")]
    assert ids == [first.id, second.id]  # the running one first
    assert any(line.startswith("here") for line in lines)
    assert not any("\x1b" in line for line in lines)
    until(lambda: plane.app.state.context.hub.watched == 0)
