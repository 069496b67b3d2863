"""`shardyard.log`: a program's own numbers, as curves of its job.

They are sent twice a second by a thread, to the rank's trainer process. Outside a job nothing is sent. Needs only the standard library.
"""

import atexit
import json
import operator
import os
import socket
import sys
import threading
from array import array
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import count, groupby
from typing import Any, Final, NamedTuple, SupportsFloat, cast

from .. import unix_socket
from ..messages.metric_block import check_name, check_step, packed
from .launcher_restarts import launcher_restarts
from .report_socket import socket_name

#: It needs torch, which a program of the user's own need not have.
_TELEMETRY: Final = f"{__name__.partition('.workers.')[0]}.strategies.telemetry.current"
#: Seconds between two messages.
FLUSH_S: Final = 0.5
#: Maximum number of values that wait to be sent. Further ones are dropped, so that a program never waits for its telemetry.
MOST_WAITING: Final = 200_000
#: Seconds for one message.
_SEND_S: Final = 5.0


def log(values: Mapping[str, SupportsFloat], step: int | None = None, *, per_rank: bool = False) -> None:
    """Log numbers of a step: `shardyard.log({"accuracy": 0.9}, step=3)`.

    `values`: name → number, or a tensor of one element, whose value a GPU is waited for. `step`: None counts the calls of this process.
    Values of several ranks at one step are one point, with their mean, lowest and highest. `per_rank`: a curve for each rank instead.
    A step that is logged again after a restart by the job, or on one node by torchrun, replaces the earlier one.
    Raises ValueError, TypeError for what is no number.

    In a model of a training job the step is the one that is trained, and its micro-batches and ranks are one mean.
    """
    if _in_training(values, step, per_rank):
        return
    _of_this_process().add(values, step, f"/rank{os.environ.get('RANK', '0')}" if per_rank else "")


def _in_training(values: Mapping[str, SupportsFloat], step: int | None, per_rank: bool) -> bool:
    """Log into the step of Shardyard's own loop, if this process runs it: then its module is loaded. Raises ValueError."""
    telemetry = sys.modules.get(_TELEMETRY)
    if telemetry is None or not telemetry.training():
        return False
    if step is not None or per_rank:
        raise ValueError("a model logs means of the step that is trained: leave out step and per_rank")
    for name, value in values.items():
        telemetry.log(name, value)
    return True


def end() -> None:
    """Send what this process has logged, at the end of its work. It is also called at the process's exit, unless the process is killed."""
    _of_this_process().end()


class _Call(NamedTuple):
    """Names, step and values of one call."""

    names: tuple[str, ...]
    step: int
    values: "array[float]"


class MetricLog:
    """The values that wait to be sent. Any thread may add some, and a signal handler at any line of a call that it interrupts."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a new process: what its parent logged is the parent's to send."""
        self._lock = threading.RLock()  # a signal handler's call may interrupt one of its thread that has it
        self._checked: tuple[str, ...] = ()  # the names of the last call, kept once for all calls that have them
        self._steps = count()
        self._calls: list[_Call] = []
        self._waiting = self._dropped = 0
        self._connection: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()

    def add(self, values: Mapping[str, SupportsFloat], step: int | None, suffix: str) -> None:
        names = tuple(values) if not suffix else tuple(f"{name}{suffix}" for name in values)
        numbers = array("d", cast("Iterable[float]", values.values()))  # which converts as `float` does
        with self._lock:
            known = self._checked
            if names == known:
                names = known
            else:
                for name in names:
                    check_name(name)
                self._checked = names
            at = next(self._steps) if step is None else operator.index(step)
            check_step(at)
            if step is not None:
                self._steps = count(at + 1)
            if socket_name(os.environ) is None:
                return
            if self._waiting + len(names) > MOST_WAITING:
                self._dropped += len(names)
                return
            self._calls.append(_Call(names, at, numbers))
            self._waiting += len(names)
            ended = self._ending.is_set() and self._thread is not None and not self._thread.is_alive()
            if self._thread is None:
                self._begin(threading.Thread(target=self._send_all, name="shardyard metrics", daemon=True))
        if ended:  # by a function that the program has registered with atexit
            self._send()

    def _begin(self, thread: threading.Thread) -> None:
        """Start the thread that sends, unless a signal handler has started one meanwhile."""
        if self._thread is not None:
            return
        self._thread = thread
        thread.start()
        atexit.register(self.end)
        # Processes that multiprocessing has forked run no functions of atexit.
        if (util := sys.modules.get("multiprocessing.util")) is not None:
            util.Finalize(None, self.end, exitpriority=0)

    def end(self) -> None:
        """Send what waits, and stop."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(_SEND_S)

    def _send_all(self) -> None:
        while not self._ending.wait(FLUSH_S):
            self._send()
        self._send()

    def _send(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, []
            waiting, dropped = self._waiting, self._dropped
            self._waiting = self._dropped = 0
        if dropped:
            _warn(f"{dropped:,} logged values were dropped, because they came faster than they could be sent")
        if not calls:
            return
        try:
            self._connected().sendall(json.dumps(_blocks(calls)).encode() + b"\n")
        except OSError as error:
            _warn(f"{waiting:,} logged values could not be sent: {error}")
            self._connection = None

    def _connected(self) -> socket.socket:
        if self._connection is None:
            self._connection = socket.socket(socket.AF_UNIX)
            self._connection.settimeout(_SEND_S)
            unix_socket.connect(self._connection, f"\0{socket_name(os.environ)}", _SEND_S)
            hello = {"pid": os.getpid(), "metrics": True, "restarts": launcher_restarts(os.environ)}
            self._connection.sendall(json.dumps(hello).encode() + b"\n")
        return self._connection


def _blocks(calls: Iterable[_Call]) -> list[dict[str, Any]]:
    """Calls as blocks of JSON: calls with the same names, one after the other, are one."""
    found: list[dict[str, Any]] = []
    for names, same in groupby(calls, key=lambda call: call.names):
        steps: list[int] = []
        values = array("d")
        for call in same:
            steps.append(call.step)
            values.extend(call.values)
        found.append({"names": names, "steps": steps, "values": packed(values)})
    return found


def _warn(text: str) -> None:
    sys.stderr.write(f"shardyard: {text}\n")


@cache
def _of_this_process() -> MetricLog:
    return MetricLog()
