"""`shardyard dev`, `attach` and `exec -t` on a real terminal, against a served API and a real gate."""

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import typer
from harness.gates import opening_gates, process, serving
from harness.patience import PATIENCE_S
from harness.terminal import Terminal

from shardyard.api.cli.commands import dev
from shardyard.api.cli.commands.dev import spec_of
from shardyard.api.cli.main import run
from shardyard.api.cli.terminal.screen import Screen
from shardyard.api.client import Client, Unreachable
from shardyard.service.spec import CommandSpec
from shardyard.workers.program import jupyter_server

from ...conftest import Gang, Plane, running_job
from ..conftest import Restart

CLI = [sys.executable, "-m", "shardyard.api.cli"]


@contextmanager
def reachable(plane: Plane, folder: Path) -> Iterator[str]:
    """A running job whose gates open."""
    with Client(plane.url) as client, process(folder, PS1="> ") as pid:
        job, gang = running_job(plane, client)
        with opening_gates(client, job, gang.emit, pid):
            yield job


def on_terminal(*arguments: str) -> Terminal:
    return Terminal([*CLI, *arguments], {**os.environ, "SHELL": "/bin/sh"}, (31, 97))


def test_a_shell_is_attached_detached_and_attached_again(allowed: Plane, tmp_path: Path) -> None:
    with reachable(allowed, tmp_path) as job:
        with on_terminal("attach", job, "--rank", "1") as terminal:
            terminal.press("stty size; x=kept; echo is $x\r")
            terminal.shows("31 97", "is kept")
            terminal.press("\x1d")
            terminal.shows("Detached. The shell continues.", f"shardyard attach {job} --rank 1")
            assert terminal.ends() == 0
        with on_terminal("attach", job, "--rank", "1") as terminal:
            terminal.shows("is kept")
            terminal.press("echo still $x; exit 5\r")
            terminal.shows("still kept", "The shell has ended")
            assert terminal.ends() == 5


def test_a_command_on_this_terminal_ends_with_its_status(allowed: Plane, tmp_path: Path) -> None:
    with (
        reachable(allowed, tmp_path) as job,
        on_terminal("exec", "-t", job, "--", "sh", "-c", 'read x; echo "got $x"; exit 7') as terminal,
    ):
        terminal.press("hello\r")
        terminal.shows("got hello")
        assert terminal.ends() == 7


@pytest.mark.parametrize("command", [["attach"], ["exec", "-t"]], ids=" ".join)
def test_sigterm_leaves_the_terminal_as_it_was(command: list[str], allowed: Plane, tmp_path: Path) -> None:
    with reachable(allowed, tmp_path) as job, on_terminal(*command, job) as terminal:
        before = terminal.settings
        terminal.press("echo is $((40 + 2))\r")
        terminal.shows("is 42")
        assert terminal.settings != before
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ends() == 143 and terminal.settings == before
        assert "\x1b[?1049l" in terminal.raw, "a full-screen program may have been shown"


def test_what_is_refused(allowed: Plane, capsys: pytest.CaptureFixture[str]) -> None:
    with on_terminal("attach", "absent") as terminal:
        terminal.shows("There is no job 'absent'")
        assert terminal.ends() == 1
    for command in (["attach", "absent"], ["dev"]):  # the tests' standard input is no terminal
        assert run(command) == 1
        assert "no terminal" in capsys.readouterr().err
    assert run(["exec", "absent"]) == 1
    assert "There is no command." in capsys.readouterr().err
    assert run(["dev", "--stop"]) == 1
    assert "No session dev is open." in capsys.readouterr().err
    assert run(["dev", "--stop", "--idle", "soon"]) == 1
    assert "'soon' is not a duration" in capsys.readouterr().err


def test_a_server_that_connects_no_terminals_gets_no_job(
    plane: Plane, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev, "_wait_until_running", lambda *_: pytest.fail("it waits for a session"))
    assert run(["dev", "--jupyter", "--url", plane.url]) == 1
    shown = capsys.readouterr().err
    assert "Sessions are not enabled on this server." in shown and "SHARDYARD_EXEC=true" in shown
    with Client(plane.url) as client:
        assert client.jobs().items == []


@pytest.mark.parametrize("option", ["--stop", "--jupyter"])
def test_a_job_of_the_name_that_is_no_session_is_left_alone(
    option: str, allowed: Plane, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(allowed.url) as client:
        job, _ = running_job(allowed, client)
        assert run(["dev", "--name", client.job(job).name, option]) == 1
        shown = capsys.readouterr().err
        assert f"{job} has the name tiny, and is no session." in shown and f"shardyard attach {job}" in shown
        assert client.job(job).state == "running"


def test_a_session_waits_for_its_job_and_is_found_by_its_name(
    allowed: Plane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(allowed.url) as client, process(tmp_path) as pid:
        with on_terminal("dev", "--name", "mine", "--idle", "1h") as terminal:
            terminal.shows("is your session", "queued")
            job = client.job("mine")
            assert job.spec["command"][-1] == "3600"
            gang = Gang(allowed, job.id)
            with opening_gates(client, job.id, gang.emit, pid):
                gang.state("starting")
                gang.state("running")
                terminal.press("echo here\r")
                terminal.shows("here\r\n")
                terminal.press("\x1d")
                terminal.shows("shardyard dev --name mine --stop")
                assert terminal.ends() == 0
                with on_terminal("dev", "--name", "mine") as again:
                    again.shows(f"{job.id} is your session. --stop ends it", "echo here")
                    again.press("\x1d")
                    assert again.ends() == 0
        assert run(["dev", "--name", "mine", "--stop"]) == 0
        assert client.job("mine").state == "cancelling"


def test_a_session_that_ends_is_not_attached_to(allowed: Plane, capsys: pytest.CaptureFixture[str]) -> None:
    with Client(allowed.url) as client:
        first = client.submit(spec_of("dev", 1, on_gpus=False, idle_s=1.0, code=None, env=None))
        Gang(allowed, first.id).state("starting")
        assert run(["dev", "--stop"]) == 0 and client.job(first.id).state == "cancelling"
        assert run(["dev", "--stop"]) == 1
        with on_terminal("dev") as terminal:
            terminal.shows("is your session, and ends when")
        assert client.job("dev").id != first.id


def test_a_paused_session_names_the_command_that_continues_it(
    allowed: Plane, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(allowed.url) as client:
        job = client.submit(spec_of("dev", 1, on_gpus=False, idle_s=1.0, code=None, env=None))
        client.pause(job.id)
        with pytest.raises(typer.Exit) as left:
            dev._wait_until_running(Screen(), client, client.job(job.id))
    assert left.value.exit_code == 1
    assert f"{job.id} is paused. Continue it with: shardyard resume {job.id}" in capsys.readouterr().err


def test_a_restart_of_the_control_plane_is_waited_out(
    allowed: Plane, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(allowed.url) as client:
        job = client.submit(spec_of("dev", 1, on_gpus=False, idle_s=1.0, code=None, env=None))
        gang = Gang(allowed, job.id)

        def run_it() -> None:
            gang.state("starting")
            gang.state("running")

        restart = Restart(dev, allowed, run_it, monkeypatch)
        dev._wait_until_running(Screen(), client, job)
        assert restart.is_over
        client._patience_s = 0.0
        Restart(dev, allowed, lambda: None, monkeypatch)
        with pytest.raises(Unreachable):
            dev._wait_until_running(Screen(), client, job)
    assert f"It still waits. End it with: shardyard cancel {job.id}" in capsys.readouterr().err


def test_jupyter_of_a_session_is_served_on_this_machine_with_its_token(
    allowed: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The gates run in this process's variables; Jupyter's runtime file and a server are the test's own."""
    (tmp_path / "index.html").write_text("the notebook")
    with Client(allowed.url) as client, process(tmp_path) as pid, serving(tmp_path) as port:
        with on_terminal("dev", "--jupyter") as terminal:
            terminal.shows("is your session", "queued")
            job = client.job("dev")
            assert job.spec["command"][-3:] == ["-m", "shardyard.workers.program.jupyter_server", "serve"]
            gang = Gang(allowed, job.id)
            monkeypatch.setenv("SHARDYARD_JOB", job.id)
            monkeypatch.setenv("SHARDYARD_ATTEMPT", "1")
            folder = jupyter_server.runtime_folder()
            with opening_gates(client, job.id, gang.emit, pid):
                gang.state("starting")
                gang.state("running")
                folder.mkdir(mode=0o700)
                try:
                    (folder / "jpserver-7.json").write_text(json.dumps({"port": port, "token": "T0ken", "pid": 7}))
                    terminal.shows("/?token=T0ken is port")
                finally:
                    shutil.rmtree(folder)
                [address] = re.findall(r"http://127.0.0.1:\d+/\?token=T0ken", terminal.text)
                assert httpx2.get(address, timeout=PATIENCE_S, trust_env=False).text == "the notebook"
                terminal.process.send_signal(signal.SIGINT)  # it is not the terminal's controlling process
                terminal.shows("The session continues.", "shardyard dev --name dev --jupyter")
                assert terminal.ends() == 0
                assert "T0ken" not in "".join(line.text for line in client.logs(job.id).lines)
        client.cancel(job.id)
        other = client.submit(spec_of("shell", 1, on_gpus=False, idle_s=60, code=None, env=None))
        assert run(["dev", "--jupyter", "--name", "shell"]) == 1
        assert f"{other.id} serves no Jupyter." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"ranks": 2, "on_gpus": False}, {"ranks": 2, "ranks_per_node": 2, "resources": {"device": "cpu"}}),
        ({"ranks": 4, "on_gpus": True}, {"ranks": 4, "ranks_per_node": 4, "resources": {"device": "cuda"}}),
        (
            {"ranks": 1, "on_gpus": False, "code": ".", "env": "requirements.txt"},
            {"code": {"dir": "."}, "env": {"python": "requirements.txt", "inherit": True}},
        ),
        (
            {"ranks": 1, "on_gpus": False, "code": ".", "env": "environment.yml"},
            {"code": {"dir": "."}, "env": {"conda": "environment.yml"}},
        ),
        ({"ranks": 1, "on_gpus": False, "image": "nemo"}, {"env": {"image": "nemo"}}),
    ],
    ids=["cpus", "gpus", "code", "conda", "image"],
)
def test_the_spec_of_a_session_is_one(given: dict[str, Any], expected: dict[str, Any]) -> None:
    spec = spec_of("dev", **{"idle_s": 1800.0, "code": None, "env": None, **given})
    assert expected.items() <= spec.items()
    assert CommandSpec.model_validate(spec).command[-2:] == ["shardyard.workers.program.idle_end", "1800"]
