"""A question of a program to its rank's trainer process, and the answer. Needs only the standard library."""

import json
import os
import socket
from typing import Any, Final

#: Seconds for the trainer process to take a request, and to carry it out.
HELLO_S: Final = 60.0
ANSWER_S: Final = 7200.0


def answer(name: str, request: dict[str, Any], handles: tuple[int, ...] = ()) -> dict[str, Any]:
    """What the trainer process at the socket `name` answers. `handles`: descriptors for it. Raises OSError, ValueError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(HELLO_S)
        connection.connect(f"\0{name}")
        connection.sendall(json.dumps({"pid": os.getpid(), "request": True}).encode() + b"\n")
        with connection.makefile("rb") as answers:
            if not answers.readline():
                raise ConnectionError("the connection ended")
            connection.settimeout(ANSWER_S)
            content = json.dumps(request).encode() + b"\n"
            sent = socket.send_fds(connection, [content], handles)  # perhaps a part
            connection.sendall(content[sent:])
            line = answers.readline()
    if not line:
        raise ConnectionError("the connection ended")
    found: dict[str, Any] = json.loads(line)
    return found
