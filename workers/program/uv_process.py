"""Runs uv: its output is the rank's log, and of a failure the reason is one line.

uv inherits the lock of the environment that it builds, so that no other process takes the place before uv has ended, too.
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
from typing import Final

from uv import find_uv_bin

from ..process_state import state_of
from .shared_folder import EndRequested

#: Code of the cause of a failure that would come again.
NOT_BUILT: Final = "environment_not_built"
#: That of a network or a package index that did not answer.
UNREACHABLE: Final = "package_index_unreachable"
#: Seconds between two looks at whether the rank is to end.
LOOK_S: Final = 0.2
#: Bytes at the end of uv's output in which the reason of a failure is sought: the error stands before all that a compiler wrote.
_MOST_BYTES: Final = 4 << 20
#: Maximum characters of a reason.
_MOST_REASON: Final = 500
#: Signs of an index that cannot be reached, or answers 5xx, in uv's last error.
_NETWORK: Final = re.compile(
    r"error sending request|failed after \d+ retries|status server error|operation timed out|dns error|connection reset|"
    r"failed to connect to|could not resolve host",
    re.IGNORECASE,
)
_CAUSE: Final = re.compile(r"^ *cause: (.+(?:\n {9}\S.*)*)", re.MULTILINE)
#: uv says why a package was not found if an index has refused to answer.
_HINT: Final = re.compile(r"^hint: (An index .+)$", re.MULTILINE)
#: What a build backend wrote to its standard error: indented, until a line that is not.
_BACKEND: Final = re.compile(r"\[stderr\]\n((?:(?: .*)?\n)+)")


class EnvironmentNotBuilt(Exception):
    """The environment of a program cannot be built. `cause`: NOT_BUILT or UNREACHABLE."""

    def __init__(self, why: str, cause: str = NOT_BUILT) -> None:
        super().__init__(why)
        self.cause = cause


class Uv:
    """Runs commands of uv, all within `limit_s`. `lock`: a descriptor that they inherit."""

    def __init__(
        self, environment: Mapping[str, str], cwd: Path, lock: int, limit_s: float, is_to_stop: Callable[[], bool]
    ) -> None:
        self._environment, self._cwd, self._lock, self._is_to_stop = environment, cwd, lock, is_to_stop
        self._limit_s, self._deadline = limit_s, time.monotonic() + limit_s

    def run(self, *arguments: str) -> None:
        """Raises EnvironmentNotBuilt, EndRequested."""
        try:
            process = subprocess.Popen(
                [find_uv_bin(), *arguments],
                cwd=self._cwd,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(self._lock,),
                process_group=0,
            )
        except OSError as error:
            raise EnvironmentNotBuilt(f"uv cannot be started on this node: {error}") from None
        with process:
            try:
                output = self._logged(process)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)  # with the compilers that it has started
                raise
        if process.returncode != 0:
            raise _failure(process.returncode, output)

    def _logged(self, process: "subprocess.Popen[bytes]") -> str:
        """Copy uv's output to the log until uv ends. Returns its end."""
        assert process.stdout is not None
        poll, output = select.poll(), b""
        poll.register(process.stdout, select.POLLIN)
        while True:
            if poll.poll(1000 * LOOK_S):
                part = os.read(process.stdout.fileno(), 1 << 16)
                if not part:
                    return output.decode(errors="replace")
                sys.stderr.write(part.decode(errors="replace"))
                sys.stderr.flush()
                output = (output + part)[-_MOST_BYTES:]
            elif state_of(process.pid) == "Z":  # a process that a build has left behind holds the pipe
                return output.decode(errors="replace")
            if self._is_to_stop():
                raise EndRequested
            if time.monotonic() >= self._deadline:
                raise EnvironmentNotBuilt(f"it took longer than {self._limit_s:g} s")


def _failure(status: int, output: str) -> EnvironmentNotBuilt:
    cause = UNREACHABLE if _NETWORK.search(_last_error(output)) else NOT_BUILT
    return EnvironmentNotBuilt(reason(output) or f"uv ended with status {status}", cause)


def reason(output: str) -> str:
    """The last error in uv's output and its causes, as one line. Empty if there is none."""
    error = _last_error(output)
    said = [error.partition("\n")[0], *_CAUSE.findall(error)]
    if backend := _BACKEND.search(error):
        said = [said[0], backend[1].strip().rpartition("\n")[2] or said[-1]]
    elif len(said) > 3:  # each cause is the same in other words
        said = [said[0], said[1], said[-1]]
    said += _HINT.findall(error)
    text = ": ".join(" ".join(part.split()) for part in said)
    return re.sub(r",? we can conclude that [^,]*\b(unsatisfiable|cannot be used)\.", ".", text)[:_MOST_REASON]


def _last_error(output: str) -> str:
    """What follows the last `error: ` at the beginning of a line; what a build backend wrote is indented."""
    _, found, error = f"\n{output}".rpartition("\nerror: ")
    return error if found else ""
