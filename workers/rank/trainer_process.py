"""The actor's side of a trainer process: forks it, exchanges messages with it, signals it, and closes its descriptors."""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any, Final

from ..forkserver.client import connect
from ..forkserver.protocol import Request, kill
from ..forkserver.protocol import request as ask
from ..messages.rank_status import STACKS_SIGNAL
from ..process_memory import MemorySampler, resident
from ..process_stat import state_of
from ..snapshot.replication import notifier_pair
from .log_lines import MAX_LINE
from .log_pipe import Lines
from .recordings import Recordings

#: Seconds for a trainer to report its status.
EXAMINE_S: Final = 2.0


class TrainerProcess:
    """The actor's side of one trainer process: its control socket, its pipes, and the connection to the fork server that forked it."""

    def __init__(
        self, fork: socket.socket, control: socket.socket, stdout: int, stderr: int, notifier: socket.socket
    ) -> None:
        self._fork = fork
        self._control = control
        self.notifier = notifier
        self.replication: asyncio.Task[None] | None = None
        self.replies = Lines(fork.fileno())
        self.messages = Lines(control.fileno())
        self.logs = {"stdout": Lines(stdout, MAX_LINE), "stderr": Lines(stderr, MAX_LINE)}
        self._sending: asyncio.Task[None] | None = None  # of the newest message
        self.pid: int | None = None
        self.end_ordered = False  # by force, before it had ended
        self.requested_at = time.monotonic()
        self._examining: set[asyncio.Future[dict[str, Any]]] = set()
        self.gone = asyncio.Event()
        self.recordings = Recordings(self.send, self.gone)
        self.memory = MemorySampler(lambda: resident(self.pid))

    def post(self, message: dict[str, Any]) -> "asyncio.Task[None]":
        """Send a run, a stop request or a release, after the messages before it and each of them whole. A trainer that is gone is no error.

        Does not wait: a trainer that does not read yet, as it is still to be forked, takes only a few of them.
        """
        line = json.dumps(message).encode() + b"\n"
        self._sending = asyncio.get_running_loop().create_task(self._send(line, self._sending))
        return self._sending

    async def send(self, message: dict[str, Any]) -> None:
        """Post a message and wait until it is sent. A caller that gives up the wait does not cut it."""
        await asyncio.shield(self.post(message))

    async def _send(self, line: bytes, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await before
        if not self.gone.is_set():
            with contextlib.suppress(ConnectionError):
                await asyncio.get_running_loop().sock_sendall(self._control, line)

    def kill(self, number: int = signal.SIGKILL) -> None:
        with contextlib.suppress(OSError):
            kill(self._fork, number)

    @property
    def forking(self) -> bool:
        """Whether the process is not forked yet. A new fork server first imports what trainers need, which takes up to a minute."""
        return self.pid is None and not self.gone.is_set()

    @property
    def state(self) -> str | None:
        """The process's state in /proc (`T`: stopped); None if it has ended."""
        if self.pid is None or self.gone.is_set():
            return None
        return state_of(self.pid)

    async def examine(self) -> dict[str, Any]:
        """The trainer's status (`Heartbeat.status`); empty if it does not answer within `EXAMINE_S`."""
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._examining.add(answer)
        try:
            self.post({"examine": True})
            async with asyncio.timeout(EXAMINE_S):
                return await answer
        except TimeoutError:
            return {}
        finally:
            self._examining.discard(answer)

    def take_status(self, status: dict[str, Any]) -> None:
        """The trainer has reported its status: to all that examine it now, as the hang watchdog and a profile may at the same time."""
        for answer in self._examining:
            if not answer.done():
                answer.set_result(status)

    def write_stacks(self) -> None:
        """Make the trainer write its main thread's stack to its log. A stopped one writes it when SIGCONT continues it."""
        if self.pid is not None and not self.gone.is_set():
            with contextlib.suppress(OSError):
                # To the main thread: one that is stopped may have any of its threads take a signal of the process.
                ctypes.CDLL(None).tgkill(self.pid, self.pid, STACKS_SIGNAL)
                os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Close all descriptors. The fork server kills a trainer whose connection ends."""
        if self._sending is not None and not self._sending.done():
            self._sending.cancel()  # and with it those that it waits for
            self._sending.get_loop().remove_writer(self._control)
        for lines in self.logs.values():
            os.close(lines.fd)
        self._control.close()
        self._fork.close()
        self.notifier.close()


def fork_trainer(root: Path, owner: int, request: Request, more: list[int]) -> TrainerProcess:
    """Ask the node's fork server, started if need be, for a trainer. Raises OSError, ForkError. Does not wait for imports.

    `more`: descriptors of its snapshot memory, and of rank 0's listening socket.
    """
    fork = connect(root, owner, dict(os.environ))
    ours, theirs = socket.socketpair()
    notifier, trainers_end = notifier_pair()
    stdout, out = os.pipe()
    stderr, err = os.pipe()
    try:
        ask(fork, request, [theirs.fileno(), out, err, trainers_end.fileno(), *more])
    except OSError:
        for fd in (stdout, stderr):
            os.close(fd)
        ours.close()
        notifier.close()
        fork.close()
        raise
    finally:
        theirs.close()
        trainers_end.close()
        os.close(out)
        os.close(err)
    fork.setblocking(False)
    ours.setblocking(False)
    notifier.setblocking(False)
    return TrainerProcess(fork, ours, stdout, stderr, notifier)
