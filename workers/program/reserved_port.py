"""A port for a process that is still to start, such as torchrun, which imports torch before it listens."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port(host: str = "") -> Iterator[int]:
    """A free port, which the kernel gives to no other process until the end.

    A process that names it and sets SO_REUSEADDR, as torch's store does, can listen on it, since nothing listens here.
    """
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.bind((host, 0))
        yield own.getsockname()[1]
