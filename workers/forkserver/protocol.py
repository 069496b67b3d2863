"""What goes over a connection to the fork server: one request, then signals to it and replies from it.

A request is its length (four bytes, big-endian) and JSON; its descriptors come with the length. Signals are single bytes. Replies are
lines of JSON: `{"pid": n}`, later `{"exit": status}` (negative: a signal's number).
"""

import array
import json
import signal
import socket
import struct
from dataclasses import asdict, dataclass
from typing import Any, Final

MAX_REQUEST: Final = 8 << 20
MAX_FDS: Final = 8


@dataclass(frozen=True)
class Request:
    """A trainer to fork. Beside it travel the descriptors of its control socket, stdout, stderr, notifier, of its snapshot
    memory (`segments` of them) and, for rank 0, of a listening socket.
    """

    env: dict[str, str]  # the whole environment of the trainer
    cwd: str = "/"
    entry: str = ""  # `module:function` that trains; empty: this package's own loop
    segments: int = 0


def adopt(connection: socket.socket, owner: int) -> None:
    """Give the server another owner; the connection is of no other use."""
    send(connection, {"owner": owner})


def request(connection: socket.socket, order: Request, fds: list[int]) -> None:
    """Ask for a trainer."""
    send(connection, asdict(order), fds)


def kill(connection: socket.socket, number: int = signal.SIGKILL) -> None:
    """Send a signal to the trainer's process group, as long as it lives."""
    connection.sendall(bytes([number]))


def reply(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send a reply."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def send(connection: socket.socket, message: dict[str, Any], fds: list[int] | None = None) -> None:
    body = json.dumps(message).encode()
    head = struct.pack("!I", len(body))
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    connection.sendmsg([head], rights)
    connection.sendall(body)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A request and its descriptors. Raises ConnectionError, ValueError."""
    head, fds, _, _ = socket.recv_fds(connection, 4, MAX_FDS)
    if len(head) != 4:
        raise ConnectionError("no request, only a look whether somebody listens")
    (size,) = struct.unpack("!I", head)
    if size > MAX_REQUEST:
        raise ConnectionError(f"a request of {size} bytes")
    body = bytearray()
    while len(body) < size:
        part = connection.recv(size - len(body))
        if not part:
            raise ConnectionError("half a request")
        body += part
    message: dict[str, Any] = json.loads(bytes(body))
    return message, fds
