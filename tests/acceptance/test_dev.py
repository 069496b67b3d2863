"""Development sessions on a real control plane: a shell in the job's environment, its ports, its idle stop, and nothing that stays."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from harness.control_plane import ControlPlane, until
from harness.gates import is_alive, printed
from harness.patience import PATIENCE_S
from harness.programs import lines
from harness.terminal import Terminal

from shardyard.api.cli.commands.dev import spec_of
from shardyard.api.client import Client
from shardyard.api.client.streams import Streams

CLI = [sys.executable, "-m", "shardyard.api.cli"]
SIZE = {"rows": 24, "columns": 80, "term": "xterm"}


def session(client: Client, folder: Path, idle_s: float) -> str:
    """A session with the folder's code, once its program runs; by its job's id."""
    (folder / "own.py").write_text("print('own', 'code')\n")
    spec: dict[str, Any] = spec_of("dev", 1, on_gpus=False, idle_s=idle_s, code=str(folder), env=None)
    job = client.submit(spec).id
    until(lambda: client.job(job).state == "running", PATIENCE_S, "the session to run")
    return job


async def test_a_session_has_the_code_ends_when_it_is_idle_and_leaves_no_process(
    plane: ControlPlane, tmp_path: Path
) -> None:
    with plane.client() as client:
        job = await asyncio.to_thread(session, client, tmp_path, 4.0)
        async with Streams(client.url, token=plane.token) as streams:
            async with streams.terminal(job, 0, ["sh"], keep=True, size=SIZE) as stream:
                await stream.send(b"python own.py; echo $SHARDYARD_JOB $RANK $$.\r")
                text = await printed(stream, "own code\r\n", f"{job} 0 ", ".\r\n")
                pid = int(text.rpartition(f"{job} 0 ")[2].partition(".")[0])
                await asyncio.sleep(6.0)  # longer than it may be idle
                assert client.job(job).state == "running"
            assert is_alive(pid)
        done = await asyncio.to_thread(client.wait, job, PATIENCE_S)
        assert done.state == "succeeded", done.message
        assert any("and no process was busy: the job ends." in line for line in lines(client, job))
        await asyncio.to_thread(until, lambda: not is_alive(pid), PATIENCE_S, "the shell to end")


@pytest.mark.full
def test_the_commands_work_against_a_real_rank_and_a_cancelled_session_takes_its_shell_along(
    plane: ControlPlane, tmp_path: Path
) -> None:
    with plane.client() as client:
        job = session(client, tmp_path, 3600.0)
        with Terminal([*CLI, "dev"], plane.env) as terminal:
            terminal.press("python -m http.server --bind 127.0.0.1 0 & echo pid $!.\r")
            terminal.shows("Serving HTTP on 127.0.0.1 port ", "pid ")
            terminal.press("\x1d")
            terminal.shows("Detached.")
            assert terminal.ends() == 0
        with Terminal([*CLI, "exec", "-t", job, "--", "sh", "-c", "pwd; tty"], plane.env) as terminal:
            terminal.shows("/code/", "/dev/pts/")
            assert terminal.ends() == 0
        with Terminal([*CLI, "dev"], plane.env) as terminal:
            terminal.shows("is your session.", "Serving HTTP")
            terminal.press("kill %1; exit 3\r")
            assert terminal.ends() == 3
        assert plane.run("dev", "--stop").returncode == 0
        assert client.wait(job, timeout_s=PATIENCE_S).state == "cancelled"
        until(
            lambda: not [one for one in plane.processes() if one.name().startswith("streams:")],
            PATIENCE_S,
            "the gate's end",
        )
