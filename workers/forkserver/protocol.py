"""The protocol of a connection to the fork server: the client sends one request, then signals; the server sends replies.

A request is its length (four bytes, big-endian) and JSON. Its descriptors come with the length. Signals are single bytes. Replies are
lines of JSON: `{"pid": n}`, later `{"exit": status}` (negative: a signal's number). `{"failed": reason}`
is the only one if the trainer cannot be forked.
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
    """A trainer to fork. With it the client sends the descriptors of its control socket, stdout, stderr, notifier, of its snapshot
    memory (`segments` of them) and, for rank 0, of a listening socket.
    """

    env: dict[str, str]  # the whole environment of the trainer
    cwd: str = "/"
    entry: str = ""  # `module:function` that trains; empty: this package's own loop
    segments: int = 0


def adopt(connection: socket.socket, owner: int) -> None:
    """Give the server another owner. The connection has no other use."""
    send(connection, {"owner": owner})


def request(connection: socket.socket, order: Request, fds: list[int]) -> None:
    """Request a trainer."""
    send(connection, asdict(order), fds)


def kill(connection: socket.socket, number: int = signal.SIGKILL) -> None:
    """Have the server send a signal to the trainer's process group, if that is alive."""
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
        raise ConnectionError("the connection was closed before a request")
    (size,) = struct.unpack("!I", head)
    if size > MAX_REQUEST:
        raise ConnectionError(f"a request of {size} bytes is larger than {MAX_REQUEST}")
    body = bytearray()
    while len(body) < size:
        part = connection.recv(size - len(body))
        if not part:
            raise ConnectionError("the connection was closed in the middle of a request")
        body += part
    message: dict[str, Any] = json.loads(bytes(body))
    return message, fds
