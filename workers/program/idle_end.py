"""`python -m shardyard.workers.program.idle_end SECONDS [ARGUMENT…]`: the program of a development job (`shardyard dev`).

It ends when the job is idle. The job is in use while a stream to it is open, as the name of a gate's process shows (`rank/stream_gate.py`),
or while its processes on this node need more than `BUSY` of a core. A job without either for SECONDS ends with status 0. With arguments
rank 0 runs Python with them, such as a server, meanwhile, and ends with it, too. Needs only the standard library, because it runs in
the Python environment of the job.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from ..messages.stream_frames import PROCESS_NAME

#: Share of a core that counts as use. Servers without requests, such as Jupyter's, need less.
BUSY: Final = 0.02
#: Seconds between two looks.
LOOK_S: Final = 5.0
#: A variable of all processes of a job.
JOB: Final = "SHARDYARD_JOB"
#: Seconds that a server has to end after SIGTERM.
GRACE_S: Final = 10.0
#: An argument of the program of each rank.
_PROGRAM: Final = f"{__package__}.idle_end".encode()
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


class Use(NamedTuple):
    """What a job's processes on this node do. `cpu_s`: the CPU time of each, in seconds, by its id."""

    streams: int
    cpu_s: dict[int, float]

    def since(self, before: "Use") -> float:
        """CPU seconds that were used after `before`."""
        return sum(max(0.0, used - before.cpu_s.get(pid, 0.0)) for pid, used in self.cpu_s.items())


def wait_until_idle(job: str, idle_s: float, has_ended: Callable[[], bool] = lambda: False) -> None:
    """Return when the job was idle for `idle_s`, or something has ended."""
    look_s = min(LOOK_S, idle_s / 4)
    before, looked, used = use_of(job), time.monotonic(), time.monotonic()
    while time.monotonic() - used < idle_s and not has_ended():
        time.sleep(look_s)
        now, moment = use_of(job), time.monotonic()
        if now.streams or now.since(before) > BUSY * (moment - looked):
            used = moment
        before, looked = now, moment


def use_of(job: str) -> Use:
    """What the job's processes on this node do, but for the programs of its ranks, as this one: their looks cost CPU time.

    Those of other users, and those that end meanwhile, are left out.
    """
    marker = f"{JOB}={job}".encode()
    streams, cpu_s = 0, {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or folder.name == str(os.getpid()):
            continue
        with contextlib.suppress(OSError):
            if marker in _texts(folder / "environ") and _PROGRAM not in _texts(folder / "cmdline"):
                name, fields = _stat(folder)
                cpu_s[int(folder.name)] = _TICK_S * (int(fields[11]) + int(fields[12]))
                number = name.removeprefix(PROCESS_NAME)
                if number != name and number.isdecimal():  # else a process of the user's own has such a name
                    streams += int(number)
    return Use(streams, cpu_s)


def _texts(file: Path) -> list[bytes]:
    """The texts in a file of `/proc/PID` that lists them."""
    return file.read_bytes().split(b"\0")


def _stat(folder: Path) -> tuple[str, list[str]]:
    """A process's name, and the fields that follow it in `/proc/PID/stat` (proc(5)): of these the 12th and 13th are its CPU time."""
    text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, rest.split()


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
