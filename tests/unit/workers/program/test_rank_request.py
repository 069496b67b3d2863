"""A request to the trainer process arrives also on a node that stands still. With its real other side: test_agents.py."""

import json
import secrets
import socket
import threading
from collections.abc import Callable

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.program import rank_request


def serving(serve: Callable[[socket.socket], None]) -> tuple[str, threading.Thread]:
    """A socket's name, and the thread that serves it."""
    name, listener = f"shardyard-{secrets.token_hex(8)}", socket.socket(socket.AF_UNIX)
    listener.bind("\0" + name)
    listener.listen()
    listener.settimeout(PATIENCE_S)

    def run() -> None:
        with listener:
            serve(listener)

    thread = threading.Thread(target=run)
    thread.start()
    return name, thread


def test_a_connection_that_was_closed_before_its_greeting_is_made_again() -> None:
    taken: list[dict[str, object]] = []

    def serve(listener: socket.socket) -> None:
        for late in (True, True, False):
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                if not late:
                    lines.readline()
                    connection.sendall(b"{}\n")
                    taken.append(json.loads(lines.readline()))
                    connection.sendall(b'{"step": 3}\n')

    name, thread = serving(serve)
    assert rank_request.answer(name, {"newest": {}}) == {"step": 3}
    thread.join(PATIENCE_S)
    assert taken == [{"newest": {}}]


def test_a_request_that_may_have_been_read_is_not_made_again() -> None:
    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as lines:
            lines.readline()
            connection.sendall(b"{}\n")
            lines.readline()

    name, thread = serving(serve)
    with pytest.raises(ConnectionError):
        rank_request.answer(name, {"newest": {}})
    thread.join(PATIENCE_S)
    with pytest.raises(ConnectionRefusedError):
        rank_request.answer(name, {"newest": {}})


def test_who_is_never_greeted_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_request, "HELLO_S", 0.3)
    ends = threading.Event()

    def serve(listener: socket.socket) -> None:
        listener.settimeout(0.1)
        while not ends.is_set():
            try:
                listener.accept()[0].close()
            except TimeoutError:
                continue

    name, thread = serving(serve)
    try:
        with pytest.raises(ConnectionError, match="ended"):
            rank_request.answer(name, {"newest": {}})
    finally:
        ends.set()
        thread.join(PATIENCE_S)
