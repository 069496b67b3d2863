"""What the Python processes of a rank's program report of themselves: their status, and why they failed.

`python_agent/sitecustomize.py` is the other side.
"""

import contextlib
import errno
import json
import math
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import psutil

from ..messages.collective_record import GroupRecord
from ..messages.metric_block import MetricBlock, checked
from ..messages.rank_event import FailedEvent
from ..messages.rank_status import PROGRAM
from ..trainer.recorded_groups import newest_s, read_dump
from ..unix_socket import BACKLOG
from .agent_messages import MOST_HELLO, checked_answer, checked_failure, checked_hello, checked_restarts
from .artifact_uploads import ArtifactUploads
from .process_failures import ProcessFailures
from .rank_request import AGAIN_S
from .recorders import Recorders

#: Seconds for a process to answer. The actor waits for 2 s (`rank/trainer_process.py`).
ANSWER_S: Final = 1.5
#: Seconds for the first line of a connection.
HELLO_S: Final = 2.0
#: Seconds to take what a program had sent before its end. All of it is here by then, so only a node that stands still takes long.
END_S: Final = 60.0
#: Seconds to carry out what it had asked for.
ASKED_S: Final = 2.0
#: Maximum bytes of a line: of the dumps of two recorders with 2,000 collectives each.
MOST_BYTES: Final = 64 << 20
#: Errors of a process that has no room for one more connection, and seconds until the next try.
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NO_ROOM_S: Final = 0.2
#: How a program ended, for the trainer processes that wait for it: when it failed, by the node's `time.monotonic`; infinity if it did not.
_FAILED_AT: Final = struct.Struct("d")
#: Struct of SO_PEERCRED: process, user, group.
_PEER: Final = struct.Struct("3i")

#: Seconds for which a request that is carried out counts as progress.
REQUEST_S: Final = 3600.0

Status = dict[str, Any]
#: Answers a request about checkpoints, with the descriptors that came with it.
OnRequest = Callable[[dict[str, Any], list[int]], dict[str, Any]]
#: Takes what a process logs, and how often its launcher had started the ranks again.
OnLogged = Callable[[list[MetricBlock], int], None]


class _Followed(NamedTuple):
    """A connection whose messages a thread takes. `end_s`: seconds for them when the program has ended."""

    thread: threading.Thread
    connection: socket.socket
    end_s: float


class Agents:
    """The connections of a program's processes. A thread accepts them; the control thread asks; the main thread ends both."""

    def __init__(
        self,
        on_metrics: OnLogged,
        on_request: OnRequest | None = None,
        artifacts: ArtifactUploads | None = None,
        numbered: Sequence[int] = (),
    ) -> None:
        """The first two are called on threads of their connections: `on_metrics` with what processes log, `on_request` with their requests.

        `artifacts`: takes the files that they log. `numbered`: the gang's ranks in the order of the program's; empty: they are the same.
        """
        self._on_metrics, self._on_request, self._artifacts = on_metrics, on_request, artifacts
        self._numbered = numbered
        self.recorders = Recorders()
        self._requests: dict[int, float] = {}  # thread → when the request began that it carries out
        self._waiting: list[socket.socket] = []  # other ranks' trainer processes, whose program this one has started
        self._followed: list[_Followed] = []
        self._ended_at: float | None = None  # the program
        self.name = f"shardyard-{secrets.token_hex(16)}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind("\0" + self.name)
        self._listener.listen(BACKLOG)
        self._connections: dict[int, socket.socket] = {}  # by the process's id
        self._drivers: dict[int, socket.socket] = {}  # of Ray, which join no group
        self._failures = ProcessFailures()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, name="reports of the program", daemon=True)
        self._thread.start()

    def failures(self, at: float, main: int | None = None) -> dict[int, FailedEvent]:
        """The exceptions that can be why the program ended at this time, by the ids of their processes, in order.

        `main`: the program's main process. Call it when the program has ended: nothing is accepted any more.
        """
        self.finish()
        return self._failures.causes(at, main)

    def release(self, failed_at: float | None) -> None:
        """Let the trainer processes go that wait for the program's end (`failure_time`). `failed_at`: when it failed; None: it did not."""
        for connection in self._waiting:
            with contextlib.suppress(OSError), connection:
                connection.sendall(_FAILED_AT.pack(math.inf if failed_at is None else failed_at))

    def finish(self) -> None:
        """When the program has ended: take what it had sent. Nothing is accepted any more.

        A process that outlives the program may hold its connection. So the receiving end is shut down: what was sent before is still
        read, and then the connection ends.
        """
        if self._ended_at is None:
            self._ended_at = time.monotonic()
            self._listener.shutdown(socket.SHUT_RD)
        self._thread.join(max(0.0, self._ended_at + END_S - time.monotonic()))
        for one in list(self._followed):
            with contextlib.suppress(OSError):  # it has ended
                one.connection.shutdown(socket.SHUT_RD)
        for one in list(self._followed):
            one.thread.join(max(0.0, self._ended_at + one.end_s - time.monotonic()))

    def status(self, pid: int) -> Status:
        """Phase, stacks and collectives of the program, as a trainer's `Heartbeat.status`. `pid`: its main process, which is asked first.

        A program that is in no group counts as at work, whatever it does: its phase has no age. One that has joined a group and does not
        answer has no phase.
        """
        with self._lock:
            known = {one: connection for one, connection in self._connections.items() if psutil.pid_exists(one)}
            drivers = {one: connection for one, connection in self._drivers.items() if psutil.pid_exists(one)}
        deadline = time.monotonic() + ANSWER_S
        answer = _first_answer(known, pid)
        if known and answer is None:
            return {}
        no_group = {"stacks": [], "dumps": [], "groups": {}, "joined": False}
        found = facts_of(self._of_gang(answer) if answer else no_group)
        if answer is not None and self._is_saving():
            found |= {"idle_s": 0.0}
        of_driver = _first_answer(drivers, pid, deadline)
        return found if of_driver is None else found | {"stacks": [*found["stacks"], *of_driver["stacks"]]}

    def _of_gang(self, answer: dict[str, Any]) -> dict[str, Any]:
        """A process's answer, with the gang's ranks in the groups."""
        known = dict(enumerate(self._numbered))
        groups = {name: [known.get(rank, rank) for rank in ranks] for name, ranks in answer["groups"].items()}
        return answer | {"groups": groups}

    def close(self) -> None:
        self.finish()
        self.recorders.close()
        followed = (one.connection for one in self._followed)
        for connection in (
            self._listener,
            *self._waiting,
            *self._connections.values(),
            *self._drivers.values(),
            *followed,
        ):
            connection.close()

    def _accept(self) -> None:
        """Accept connections until the listener is shut down, and all that had come before have been taken."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    return
                time.sleep(_NO_ROOM_S)
                continue
            try:
                self._take(connection)
            except (OSError, ValueError, KeyError, TypeError, RuntimeError):  # also where no thread can be started
                connection.close()

    def _take(self, connection: socket.socket) -> None:
        """The first line of a connection says which process it is, and why it failed or that it can be asked."""
        _, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if user != os.getuid():
            raise PermissionError
        line, rest = _line(connection, bytearray(), time.monotonic() + HELLO_S, MOST_HELLO)
        pid, hello = checked_hello(line)
        if "failed" in hello:
            failure = self._failures.add(pid, checked_failure(hello["failed"]))
            if failure is None:
                connection.close()
            else:
                self._follow(connection, partial(failure.wait, connection), ASKED_S)
            return
        if "waits" in hello:
            self._waiting.append(connection)
            return
        if "metrics" in hello:
            take = partial(self._take_metrics, connection, rest, checked_restarts(hello))
            self._follow(connection, take, END_S)
            return
        if "request" in hello:
            self._follow(connection, partial(self._take_request, connection), ASKED_S)
            return
        if "artifacts" in hello:
            if self._artifacts is None:
                raise ValueError
            self._follow(connection, partial(self._artifacts.serve, connection), ASKED_S)
            return
        if "records" in hello:
            self.recorders.add(pid, connection)
            return
        known = self._drivers if "driver" in hello else self._connections
        with self._lock:
            for other in [one for one in known if one == pid or not psutil.pid_exists(one)]:
                known.pop(other).close()
            known[pid] = connection

    def _follow(self, connection: socket.socket, take: Callable[[], None], end_s: float) -> None:
        """Take what a process logs or asks, on a thread, until one of both has ended."""

        def follow() -> None:
            with connection:
                take()

        connection.settimeout(None)
        thread = threading.Thread(target=follow, name="reports", daemon=True)
        thread.start()
        self._followed = [one for one in self._followed if one.thread.is_alive()]
        self._followed.append(_Followed(thread, connection, end_s))

    def _take_metrics(self, connection: socket.socket, buffer: bytearray, restarts: int) -> None:
        """Take the lines of a process that logs, until it ends. A line that is not understood is left out."""
        with contextlib.suppress(OSError):
            while True:
                *lines, rest = buffer.split(b"\n")
                for line in lines:
                    try:
                        blocks = [checked(block) for block in json.loads(line)]
                    except (ValueError, TypeError, KeyError, RecursionError):
                        continue
                    self._on_metrics(blocks, restarts)
                buffer = rest
                _receive(connection, buffer)

    def _take_request(self, connection: socket.socket) -> None:
        """Answer the one request of a connection. Its descriptors come with it, so it is read after the process has been greeted."""
        handles: list[int] = []
        try:
            connection.sendall(b"{}\n")
            part, handles, _flags, _address = socket.recv_fds(connection, 1 << 16, 1)
            line = bytearray(part)
            while not line.endswith(b"\n"):
                _receive(connection, line)
            request = json.loads(line)
            if isinstance(request, dict):
                connection.sendall(json.dumps(self._answer(request, handles)).encode() + b"\n")
        except (OSError, ValueError, RecursionError):
            return  # the process reads that the connection has ended
        finally:
            for handle in handles:
                os.close(handle)

    def _answer(self, request: dict[str, Any], handles: list[int]) -> dict[str, Any]:
        if self._on_request is None:
            return {"error": "this job saves no checkpoints."}
        self._requests[threading.get_ident()] = time.monotonic()
        try:
            return self._on_request(request, handles)
        finally:
            del self._requests[threading.get_ident()]

    def _is_saving(self) -> bool:
        """Whether a process waits for its checkpoint, which is no hang: other ranks may wait for it in a collective."""
        return any(time.monotonic() - began < REQUEST_S for began in list(self._requests.values()))


def failure_time(name: str, stays: Callable[[], bool], look_s: float) -> float | None:
    """Wait, while `stays`, for the end of a program that the trainer process at this socket has started.

    Returns when it failed, by `time.monotonic`; None if it did not.

    A connection that ends without an answer was closed because its first line came late, on a node that stands still: another one waits.
    """
    while stays():
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect("\0" + name)
            except ConnectionError:
                return None  # it is gone, which its own actor reports
            if answer := _end(connection, stays, look_s):
                failed_at: float = _FAILED_AT.unpack(answer)[0]
                return failed_at if math.isfinite(failed_at) else None
        time.sleep(AGAIN_S)
    return None


def _end(connection: socket.socket, stays: Callable[[], bool], look_s: float) -> bytes:
    """How the program has ended; nothing if the connection has, or it need not be waited for any more."""
    with contextlib.suppress(ConnectionError):
        connection.sendall(json.dumps({"pid": os.getpid(), "waits": True}).encode() + b"\n")
        connection.settimeout(look_s)
        while stays():
            with contextlib.suppress(TimeoutError):
                return connection.recv(_FAILED_AT.size)
    return b""


@contextmanager
def listening(
    on_metrics: OnLogged,
    on_request: OnRequest | None = None,
    artifacts: ArtifactUploads | None = None,
    numbered: Sequence[int] = (),
) -> Iterator[Agents]:
    """Agents that are closed at the end."""
    with contextlib.closing(Agents(on_metrics, on_request, artifacts, numbered)) as agents:
        yield agents


def facts_of(answer: Mapping[str, Any]) -> Status:
    """Phase, stacks and collectives of a process's answer. Its age is that of the newest collective that began or ended.

    One that has destroyed its groups is at work, as before it joined one: what it does now ends no collective.
    """
    records: list[GroupRecord] = []
    ages: list[float] = []
    for dump in answer["dumps"]:
        with contextlib.suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # another format
            records += read_dump(dump, answer["groups"], on_gloo=any(record.nccl for record in records))
            ages += [] if (age := newest_s(dump)) is None else [age]
    return {
        "phase": PROGRAM,
        "step": 0,
        "idle_s": min(ages, default=0.0) if answer["joined"] else 0.0,
        "stacks": answer["stacks"],
        "collectives": [record.to_json() for record in records],
    }


def _first_answer(known: Mapping[int, socket.socket], pid: int, deadline: float | None = None) -> dict[str, Any] | None:
    """The answer of the first process that gives one. `pid`: the process that is asked first. `deadline`: None gives each its time."""
    answers = (
        _send(known[one], deadline or time.monotonic() + ANSWER_S)
        for one in sorted(known, key=lambda one: (one != pid, one))
    )
    return next((answer for answer in answers if answer is not None), None)


def _send(connection: socket.socket, deadline: float) -> dict[str, Any] | None:
    """A process's answer; None if it is gone or does not answer in time. Late answers to earlier questions are left out."""
    question = time.monotonic_ns()
    try:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        connection.sendall(b"%d\n" % question)
        buffer = bytearray()
        while True:
            line, buffer = _line(connection, buffer, deadline, MOST_BYTES)
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
                answer = json.loads(line)
                if answer["asked"] == question:
                    return checked_answer(answer)
    except OSError:
        return None


def _receive(connection: socket.socket, buffer: bytearray, most: int = MOST_BYTES) -> None:
    """Append what has arrived. Raises OSError, also for more than `most` bytes."""
    part = connection.recv(1 << 16)
    buffer += part
    if not part or len(buffer) > most:
        raise ConnectionError


def _line(connection: socket.socket, buffer: bytearray, deadline: float, most: int) -> tuple[bytes, bytearray]:
    """The next line of what is in the buffer and arrives until the deadline, and what came after it. Raises OSError."""
    while b"\n" not in buffer:
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        connection.settimeout(left)
        _receive(connection, buffer, most)
    line, _, rest = buffer.partition(b"\n")
    return bytes(line), bytearray(rest)
