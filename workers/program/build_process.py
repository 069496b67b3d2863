"""Runs the commands that build an environment: their output is the rank's log.

A command inherits the lock of the environment that it builds, so that no other process takes the place before it has ended, too.
"""

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ..process_stat import state_of
from . import cache_disk
from .shared_folder import EndRequested

#: Code of the cause of a failure that would come again.
NOT_BUILT: Final = "environment_not_built"
#: That of a network or a package index that did not answer.
UNREACHABLE: Final = "package_index_unreachable"
#: That of work which was not done in time, or whose process was killed.
NOT_PREPARED: Final = "not_prepared"
#: Maximum characters of a failure's reason (`shortened`).
MOST_REASON: Final = 500
#: Seconds between two looks at whether the rank is to end.
LOOK_S: Final = 0.2
#: Bytes at the end of the output in which the reason of a failure is sought: the error stands before all that a compiler wrote.
_MOST_BYTES: Final = 4 << 20
#: Signs of a disk without room, in the error of a tool.
_NO_ROOM: Final = re.compile(r"no space left|disk quota exceeded|\bos error (?:28|122)\b", re.IGNORECASE)
#: Those of a disk that fails. A package may try to write where nothing can be written, so only uv's own words count for that.
_DISK_FAILED: Final = re.compile(r"\bos error (?:5|30)\b|\[Errno 5\]")
#: Those of a process of the build, such as a compiler, that the kernel has killed.
_KILLED: Final = re.compile(r"signal: 9 \(SIGKILL\)|Killed signal terminated program")


class EnvironmentNotBuilt(Exception):
    """The environment of a program cannot be built. `cause`: one of the codes above, or of `cache_disk.py`."""

    def __init__(self, why: str, cause: str = NOT_BUILT) -> None:
        super().__init__(why)
        self.cause = cause


def shortened(why: str) -> str:
    """At most `MOST_REASON` characters, in whole words: a secret is masked where it is whole."""
    return why if len(why) <= MOST_REASON else why[: MOST_REASON + 1].rpartition(" ")[0]


class Ended(NamedTuple):
    """A command that has ended: its exit status, and the end of its output."""

    status: int
    output: str

    def text(self, name: str) -> str:
        """How the command `name` ended."""
        if self.status >= 0:
            return f"{name} ended with status {self.status}"
        known = {one.value: one.name for one in signal.Signals}  # most real-time signals have no name
        return f"{name} was killed by {known.get(-self.status, f'signal {-self.status}')}"


def cause_of(status: int, error: str, network: re.Pattern[str]) -> str:
    """The cause of a command's failure. `error`: what it said last. `network`: its signs of an index that did not answer."""
    if _NO_ROOM.search(error):
        return cache_disk.FULL
    if _DISK_FAILED.search(error):
        return cache_disk.FAILED
    if status < 0 or _KILLED.search(error):
        return NOT_PREPARED
    return UNREACHABLE if network.search(error) else NOT_BUILT


class BuildProcess:
    """Runs commands one after the other, all within `limit_s`. `lock`: a descriptor that they inherit."""

    def __init__(
        self, environment: Mapping[str, str], cwd: Path, lock: int, limit_s: float, is_to_stop: Callable[[], bool]
    ) -> None:
        self._environment, self._cwd, self._lock, self._is_to_stop = environment, cwd, lock, is_to_stop
        self._limit_s, self._deadline = limit_s, time.monotonic() + limit_s

    def run(self, program: str, *arguments: str) -> Ended:
        """Raises EnvironmentNotBuilt if it cannot be started or takes too long, EndRequested."""
        try:
            process = subprocess.Popen(
                [program, *arguments],
                cwd=self._cwd,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(self._lock,),
                process_group=0,
            )
        except OSError as error:
            raise EnvironmentNotBuilt(f"{Path(program).name} cannot be started on this node: {error}") from None
        with process:
            try:
                output = self._logged(process)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)  # with the compilers that it has started
                raise
        return Ended(process.returncode, output)

    def _logged(self, process: "subprocess.Popen[bytes]") -> str:
        """Copy the command's output to the log until it ends. Returns its end."""
        assert process.stdout is not None
        poll, output = select.poll(), b""
        poll.register(process.stdout, select.POLLIN)
        while True:
            ended = state_of(process.pid) == "Z"  # all that it has written is in the pipe then
            if poll.poll(1000 * LOOK_S):
                part = os.read(process.stdout.fileno(), 1 << 16)
                if not part:
                    return output.decode(errors="replace")
                sys.stderr.write(part.decode(errors="replace"))
                sys.stderr.flush()
                output = (output + part)[-_MOST_BYTES:]
            elif ended:  # a process that a build has left behind holds the pipe
                return output.decode(errors="replace")
            if self._is_to_stop():
                raise EndRequested
            if time.monotonic() >= self._deadline:
                raise EnvironmentNotBuilt(f"it took longer than {self._limit_s:g} s", NOT_PREPARED)
