"""Development sessions on a real control plane: a shell in the job's environment, its ports, its idle stop, and nothing that stays."""

import asyncio
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.control_plane import ControlPlane, until
from harness.gates import is_alive, printed
from harness.jupyter import PACKAGES, Jupyter
from harness.patience import PATIENCE_S
from harness.programs import lines
from harness.terminal import Terminal

from shardyard.api.cli.commands.dev import spec_of
from shardyard.api.client import FINAL, Client
from shardyard.api.client.streams import Streams

CLI = [sys.executable, "-m", "shardyard.api.cli"]
SIZE = {"rows": 24, "columns": 80, "term": "xterm"}
#: Arguments of a Python that computes until there is a file, and then waits.
COMPUTES = ("-c", "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): pass\ntime.sleep(1000)")


def session(client: Client, folder: Path, idle_s: float, serves: Sequence[str] = ()) -> str:
    """A session with the folder's code, once its program runs; by its job's id."""
    (folder / "own.py").write_text("print('own', 'code')\n")
    spec: dict[str, Any] = spec_of("dev", 1, on_gpus=False, idle_s=idle_s, code=str(folder), env=None, serves=serves)
    job = client.submit(spec).id
    until(lambda: client.job(job).state == "running", PATIENCE_S, "the session to run")
    return job


@pytest.mark.full
async def test_a_session_has_the_code_ends_when_it_is_idle_and_leaves_no_process(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Until its terminal is open, it is in use because it computes."""
    opened = tmp_path / "opened"
    with plane.client() as client:
        job = await asyncio.to_thread(session, client, tmp_path, 4.0, [*COMPUTES, str(opened)])
        async with Streams(client.url, token=plane.token) as streams:
            async with streams.terminal(job, 0, ["sh"], keep=True, size=SIZE) as stream:
                opened.touch()
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


#: Seconds that a session may be idle, and that its kernel computes, without a page and without output.
IDLE_S, COMPUTED_S = 10, 25
CELL = """
import pathlib, time
while time.process_time() < {seconds}: pass
pathlib.Path({file!r}).touch()
"""


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_kernel_of_jupyter_computes_behind_the_forwarded_port_until_it_is_idle(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """A real server in an environment that the session's job builds."""
    (tmp_path / "requirements.txt").write_text("\n".join(PACKAGES))
    options = ["--code", str(tmp_path), "--env", "requirements.txt", "--idle", f"{IDLE_S}s"]
    with plane.client() as client:
        with Terminal([*CLI, "dev", "--jupyter", "--name", "notebook", *options], plane.env, (40, 200)) as terminal:
            terminal.shows("is your session")
            job = client.job("notebook").id
            until(lambda: client.job(job).state in {"running", *FINAL}, 5 * PATIENCE_S, "the environment")
            terminal.shows("is port ")
            [address] = re.findall(r"http://127\.0\.0\.1:\d+/\?token=[\w-]+", terminal.text)
            with Jupyter(address) as jupyter:
                assert jupyter.status(**jupyter.authorized) == 200
                assert jupyter.status() == jupyter.status(Authorization=f"token {jupyter.token}x") == 403
                with jupyter.kernel() as kernel:
                    assert kernel.run("1 + 1") == "2"
                    pid = int(kernel.run("import os; os.getpid()"))
                    kernel.start(CELL.format(seconds=COMPUTED_S, file=str(tmp_path / "computed")))
            terminal.process.send_signal(signal.SIGINT)  # it is not the terminal's controlling process
            terminal.shows("The session continues.")
            assert terminal.ends() == 0
        until(
            (tmp_path / "computed").exists, COMPUTED_S + PATIENCE_S, "the kernel, which computes for longer than that"
        )
        done = client.wait(job, PATIENCE_S)
        assert done.state == "succeeded", done.message
        printed_lines = lines(client, job)
        assert any("and no process was busy: the job ends." in line for line in printed_lines)
        assert not any(jupyter.token in line for line in printed_lines)
        until(lambda: not is_alive(pid), PATIENCE_S, "the kernel to end")
