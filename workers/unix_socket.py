"""Connects to a UNIX socket of this node. Waits for room where more clients connect at once than its backlog takes.

Imports only the standard library, of Python 3.8 or newer: users' own interpreters run this file, too.
"""

from __future__ import annotations

import socket
import time

#: Clients that may connect before a listener accepts, as far as the kernel allows (net.core.somaxconn): all ranks of a node may at once.
BACKLOG = 4096
#: Seconds between two tries.
_TRY_S = 0.05


def connect(client: socket.socket, address: str, seconds: float) -> None:
    """Connect a client. Raises OSError: BlockingIOError where there was no room for these seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            client.connect(address)
            return
        except BlockingIOError:  # the kernel waits for room only where the socket has no time-out
            if time.monotonic() >= deadline:
                raise
        time.sleep(_TRY_S)
