"""A question of a program to its rank's trainer process, and the answer. Needs only the standard library."""

import json
import os
import socket
import time
from typing import Any, BinaryIO, Final

from .. import unix_socket

#: Seconds for the trainer process to take a request, and to carry it out.
HELLO_S: Final = 60.0
ANSWER_S: Final = 7200.0
#: Seconds before another connection.
AGAIN_S: Final = 0.1


def answer(name: str, request: dict[str, Any], handles: tuple[int, ...] = ()) -> dict[str, Any]:
    """What the trainer process at the socket `name` answers. `handles`: descriptors for it. Raises OSError, ValueError.

    A connection whose first line comes late, on a node that stands still, is closed there. Before its greeting no request was read, so
    another one is made.
    """
    deadline = time.monotonic() + HELLO_S
    while True:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(HELLO_S)
            unix_socket.connect(connection, f"\0{name}", deadline - time.monotonic())
            with connection.makefile("rb") as answers:
                if _is_greeted(connection, answers):
                    return _answered(connection, answers, request, handles)
        if time.monotonic() > deadline:
            raise ConnectionError("the connection ended")
        time.sleep(AGAIN_S)


def _is_greeted(connection: socket.socket, answers: BinaryIO) -> bool:
    try:
        connection.sendall(json.dumps({"pid": os.getpid(), "request": True}).encode() + b"\n")
        return bool(answers.readline())
    except (BrokenPipeError, ConnectionResetError):
        return False


def _answered(
    connection: socket.socket, answers: BinaryIO, request: dict[str, Any], handles: tuple[int, ...]
) -> dict[str, Any]:
    connection.settimeout(ANSWER_S)
    content = json.dumps(request).encode() + b"\n"
    sent = socket.send_fds(connection, [content], handles)
    if sent < len(content):  # to send nothing fails where the other side has answered already, and closed
        connection.sendall(content[sent:])
    line = answers.readline()
    if not line:
        raise ConnectionError("the connection ended")
    found: dict[str, Any] = json.loads(line)
    return found
