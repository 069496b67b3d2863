"""The processes of a rank's program that can record themselves, and the orders to them. `step_recorder.py` is the other side.

A process connects when it has joined a group of torch.distributed, or made a step of an optimizer of torch. An order goes to the first
that lives.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import psutil

from ..trainer.event_outbox import EmitEvent
from ..trainer.pending_profile import PROFILED, RecordingOrder

#: Seconds for a recording beyond its own: for a step to end before it begins and after it, and for writing it.
PATIENCE_S: Final = 180.0
#: Maximum bytes of an answer.
MOST_ANSWER: Final = 1 << 20
_NONE: Final = (
    "no process of this rank has made a step of an optimizer of torch, or joined a group of torch.distributed, yet; "
    "take stacks or cpu"
)


class Recorders:
    """Any thread may call it."""

    def __init__(self) -> None:
        self._connections: dict[int, socket.socket] = {}  # by the process's id
        self._lock = threading.Lock()
        self._one = threading.Lock()  # held by the thread that has an order carried out

    def add(self, pid: int, connection: socket.socket) -> None:
        """A process that connects. Those that have ended are forgotten: a program may start any number, one after the other."""
        with self._lock:
            for other in [one for one in self._connections if one == pid or not psutil.pid_exists(one)]:
                self._connections.pop(other).close()
            self._connections[pid] = connection

    def record(self, emit: EmitEvent, order: RecordingOrder) -> None:
        """Have an order carried out, on a thread, and emit how it ended: why it failed, or None, and the number of steps."""
        threading.Thread(target=self._record, args=(emit, order), name="profile", daemon=True).start()

    def close(self) -> None:
        with self._lock:
            for connection in self._connections.values():
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads it
                connection.close()

    def _record(self, emit: EmitEvent, order: RecordingOrder) -> None:
        with self._one:
            answer = self._answer(order)
        emit(PROFILED, {"id": order.id, "failed": answer["failed"], "steps": answer["steps"]})

    def _answer(self, order: RecordingOrder) -> dict[str, Any]:
        """Of the first process that lives. One that has ended before it was asked is forgotten."""
        with self._lock:
            known = dict(self._connections)
        for pid, connection in known.items():
            with contextlib.suppress(OSError):
                if psutil.pid_exists(pid):
                    return _asked(connection, order)
            with self._lock:
                if self._connections.get(pid) is connection:
                    self._connections.pop(pid).close()
        return _failed(_NONE)


def _asked(connection: socket.socket, order: RecordingOrder) -> dict[str, Any]:
    """How it ended. Late answers to earlier orders are left out. Raises OSError if the process has ended before."""
    wanted = {"id": order.id, "kind": order.kind, "seconds": order.seconds, "path": order.path}
    deadline = time.monotonic() + order.seconds + PATIENCE_S
    connection.settimeout(PATIENCE_S)
    connection.sendall(json.dumps(wanted).encode() + b"\n")
    buffer = b""
    try:
        while (left := deadline - time.monotonic()) > 0 and len(buffer) <= MOST_ANSWER:
            connection.settimeout(left)
            part = connection.recv(1 << 16)
            if not part:
                return _failed("its process ended")
            *lines, buffer = (buffer + part).split(b"\n")
            for line in lines:
                answer = json.loads(line)
                if answer["id"] == order.id:
                    return _checked(answer)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return _failed("its process did not answer")


def _checked(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Raises KeyError, TypeError: a program may send anything."""
    failed, steps = answer["failed"], answer["steps"]
    if not isinstance(failed, str | None) or not isinstance(steps, int):
        raise TypeError
    return {"failed": failed, "steps": steps}


def _failed(why: str) -> dict[str, Any]:
    return {"failed": why, "steps": 0}
