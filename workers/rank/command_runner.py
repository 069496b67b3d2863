"""Runs users' commands beside a rank: in its working folder, with its variables; what they print is in the rank's log.

Rules that it keeps: one id runs once, however often it is requested; one command at a time, and beside it a gate for streams
(`stream_gate.py`) for each access token of the API servers; it ends with its time limit, with the rank's process, and with this actor, and
leaves no process (`exec_guard.py`). Secrets in its output are masked. A command that prints faster than the log takes it waits. Needs
neither Ray nor torch.
"""

import asyncio
import contextlib
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from ..messages.exec_request import GATE, GATE_STREAM, STREAM, Exec, ExecEnd
from ..program.report_socket import RAY_NODE, RAY_ROLE, SOCKET
from . import process_tree
from .idempotent_tasks import IdempotentTasks
from .log_lines import LogLines
from .secret_mask import SecretMask

#: Seconds between two looks at whether the rank has ended.
POLL_S: Final = 0.2
#: Gates of a rank at the same time. One of an older access token may have a kept shell, and stays then.
MOST_GATES: Final = 3
#: Parts of the output that are read between two looks at the time.
_AT_ONCE: Final = 16
_GUARD: Final = Path(__file__).with_name("exec_guard.py")


class Log(Protocol):
    """The rank's log (`log_pipe.Logs`)."""

    @property
    def has_room(self) -> bool: ...

    def put(self, stream: str, lines: list[bytes]) -> None: ...


#: Adds lines to the log; returns whether there is room for more.
AddLines = Callable[[list[bytes]], bool]


class Place(NamedTuple):
    """A rank to run beside. `pid`: the process of its trainer. `gone`: whether that has ended. `env`: the trainer's variables.

    `address`: the node's IP address, at which a gate listens.
    """

    pid: int
    program: bool
    mask: SecretMask
    gone: Callable[[], bool]
    env: Mapping[str, str]
    address: str = "127.0.0.1"


class CommandRunner:
    """The commands of one rank."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._tasks, self._gates = IdempotentTasks[ExecEnd](), IdempotentTasks[ExecEnd](MOST_GATES)

    async def run(self, order: Exec, place: Place | None) -> ExecEnd | None:
        """Run a command, or wait for the one of this id; returns how it ended. None: it has not run, and there is no place for it now."""
        tasks = self._gates if order.command[0] == GATE else self._tasks
        return await tasks.run(order.id, None if place is None else partial(self._run, order, place))

    async def _run(self, order: Exec, place: Place) -> ExecEnd:
        loop = asyncio.get_running_loop()
        stream = GATE_STREAM if order.command[0] == GATE else STREAM

        async def added(lines: list[bytes]) -> bool:
            self._log.put(stream, lines)
            return self._log.has_room

        def add(lines: list[bytes]) -> bool:
            """Add lines on the loop's thread; returns whether there is room for more."""
            return asyncio.run_coroutine_threadsafe(added(lines), loop).result()

        try:
            return await asyncio.to_thread(run, order, place, add)
        except OSError as error:
            return ExecEnd(f"the command could not be started beside the rank: {error.strerror or error}")
        except Exception as error:  # noqa: BLE001  (the outermost call of the task: without an end the order is requested again for ever)
            return ExecEnd(f"the command failed beside the rank: {type(error).__name__}: {error}")


def run(order: Exec, place: Place, add: AddLines) -> ExecEnd:
    """Run a command to its end, and pass on what it prints. Raises OSError."""
    beside = _main_process(place)
    folder = Path(f"/proc/{beside}/cwd").readlink()
    command = [sys.executable, "-I", "-S", str(_GUARD), *_argv(order, place)]
    guard = subprocess.Popen(
        command,
        cwd=folder,
        env=place.env if beside == place.pid else _environment(beside) or place.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    )
    assert guard.stdout is not None and guard.stdin is not None
    why, is_open = None, True
    with guard, contextlib.closing(_Output(guard.stdout.fileno(), place.mask, add)) as output:
        deadline = time.monotonic() + order.seconds
        while guard.poll() is None:
            if is_open:
                is_open = output.read(POLL_S)
            else:
                time.sleep(POLL_S)
            if why is None and (why := _reason_to_end(order, place, deadline)) is not None:
                guard.stdin.close()  # which makes the guard kill everything
        output.read_rest()
    status = guard.returncode if guard.returncode >= 0 else 128 - guard.returncode
    return ExecEnd(f"exit status {status}", status) if why is None else ExecEnd(why)


def _argv(order: Exec, place: Place) -> tuple[str, ...]:
    """The program that a command names, and its arguments."""
    name, *given = order.command
    if name != GATE:
        return order.command
    return (sys.executable, "-I", "-m", f"{__package__}.stream_gate", place.address, *given)


def _reason_to_end(order: Exec, place: Place, deadline: float) -> str | None:
    if place.gone():
        return "the rank's process ended before the command"
    if time.monotonic() >= deadline:
        return f"the command did not end within {order.seconds} s"
    return None


def _main_process(place: Place) -> int:
    """The process whose folder and variables count: the trainer, or the program that it runs.

    The trainer starts a Ray job's node, and then its driver, if the rank has it. What the node starts may have set its title, and has
    no variables then.
    """
    children = process_tree.children(place.pid) if place.program else []
    started = (pid for pid in children if not _is_of_ray_node(pid))
    return next(started, children[0] if children else place.pid)


def _is_of_ray_node(pid: int) -> bool:
    with contextlib.suppress(OSError):  # it has ended
        return _environment(pid).get(RAY_ROLE) == RAY_NODE
    return False


def _environment(pid: int) -> Mapping[str, str]:
    """The variables with which a process was started, but for that by which it reports: what a command does is not the program's.

    Empty of a process that has set its title (`setproctitle`), which may overwrite them.
    """
    pairs = os.fsdecode(Path(f"/proc/{pid}/environ").read_bytes()).split("\0")
    found = dict(pair.partition("=")[::2] for pair in pairs if "=" in pair)
    return {name: value for name, value in found.items() if name != SOCKET}


class _Output:
    """Lines of a pipe, as they come, without secrets."""

    def __init__(self, descriptor: int, mask: SecretMask, add: AddLines) -> None:
        self._descriptor, self._mask, self._add = descriptor, mask, add
        self._lines = LogLines()
        os.set_blocking(descriptor, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(descriptor, selectors.EVENT_READ)

    def read(self, wait_s: float) -> bool:
        """Pass on some of what has arrived, after waiting for it, or for room; False at the end of the pipe."""
        if not self._add([]):
            time.sleep(wait_s)
        elif self._selector.select(wait_s):
            return self._read(while_room=True)
        return True

    def read_rest(self) -> None:
        """Pass on what is in the pipe, where there is room or not: no more than a pipe holds."""
        self._read(while_room=False)

    def _read(self, *, while_room: bool) -> bool:
        for _ in range(_AT_ONCE):
            try:
                part = os.read(self._descriptor, 1 << 16)
            except BlockingIOError:
                return True
            if not part:
                return False
            if not self._take(part) and while_room:
                break
        return True

    def _take(self, part: bytes) -> bool:
        """Pass on the lines that are whole; returns whether there is room for more."""
        return self._add(self._lines.take(part, self._mask))

    def close(self) -> None:
        if last := self._lines.end():
            self._add(last)
        self._selector.close()
