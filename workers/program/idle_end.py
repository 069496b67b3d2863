"""`python -m shardyard.workers.program.idle_end SECONDS [ARGUMENT…]`: the program of a development job (`shardyard dev`).

It ends when the job is idle. The job is in use while a stream to it is open, as the name of a gate's process shows (`rank/stream_gate.py`),
or while its processes on this node need more than `BUSY` of a core. A job without either for SECONDS ends with status 0. What processes
print is no use: `tail -f` prints for days. With arguments rank 0 runs Python with them, such as a server, meanwhile, and ends with it,
too. Needs only the standard library, because it runs in the Python environment of the job.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple

from .. import process_stat
from ..messages.stream_frames import PROCESS_NAME

#: Share of a core that counts as use. Servers without requests, such as Jupyter's, need less.
BUSY: Final = 0.02
#: Seconds between two looks.
LOOK_S: Final = 5.0
#: An argument of each rank's process that looks whether the job is idle. All of them together may need more than `BUSY`.
MODULE: Final = "shardyard.workers.program.idle_end"
#: A variable of all processes of a job.
JOB: Final = "SHARDYARD_JOB"
#: Seconds that a server has to end after SIGTERM.
GRACE_S: Final = 10.0


class Use(NamedTuple):
    """What a job's processes on this node do: open streams, and CPU seconds since each began, with those of children that have ended."""

    streams: int
    cpu_s: float


def wait_until_idle(job: str, idle_s: float, has_ended: Callable[[], bool] = lambda: False) -> None:
    """Return when the job was idle for `idle_s`, or something has ended."""
    look_s = min(LOOK_S, idle_s / 4)
    before, looked, used = use_of(job), time.monotonic(), time.monotonic()
    while time.monotonic() - used < idle_s and not has_ended():
        time.sleep(look_s)
        now, moment = use_of(job), time.monotonic()
        if now.streams or now.cpu_s - before.cpu_s > BUSY * (moment - looked):
            used = moment
        before, looked = now, moment


def use_of(job: str) -> Use:
    """What the job's processes on this node do: those that have its variable, and all below them, but for those that look at it.

    A process may lose its variables: `sudo` resets them, and one that changes its title, as Ray's workers do, writes over them.
    """
    every = process_stat.read_all()
    own = {pid for pid in every if _began_with(pid, "environ", f"{JOB}={job}")}
    while below := {pid for pid, stat in every.items() if stat.parent in own} - own:
        own |= below
    stats = [every[pid] for pid in own if not _began_with(pid, "cmdline", MODULE)]
    streams = (stat.name.removeprefix(PROCESS_NAME) for stat in stats if stat.name.startswith(PROCESS_NAME))
    ticks = sum(stat.cpu + stat.children_cpu for stat in stats)
    return Use(sum(int(number) for number in streams if number.isdecimal()), ticks / process_stat.TICKS)


def _began_with(pid: int, what: Literal["environ", "cmdline"], entry: str) -> bool:
    """Whether a process began with a variable, or an argument. False for those of other users, whose variables cannot be read."""
    with contextlib.suppress(OSError):
        return entry.encode() in Path(f"/proc/{pid}/{what}").read_bytes().split(b"\0")
    return False


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    idle_s = float(arguments[0])
    if arguments[1:] and os.environ.get("RANK", "0") == "0":
        with subprocess.Popen([sys.executable, *arguments[1:]]) as server:
            wait_until_idle(os.environ[JOB], idle_s, lambda: server.poll() is not None)
            if server.returncode is not None:
                return server.returncode if server.returncode >= 0 else 128 - server.returncode
            end(server)
    else:
        wait_until_idle(os.environ[JOB], idle_s)
    sys.stdout.write(f"No terminal and no port was in use for {idle_s:g} s, and no process was busy: the job ends.\n")
    return 0


def end(server: "subprocess.Popen[bytes]") -> None:
    """End a server by SIGTERM, and by SIGKILL after `GRACE_S`."""
    server.terminate()
    try:
        server.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        server.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
