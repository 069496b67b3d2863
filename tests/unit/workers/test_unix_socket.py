"""Clients of a full backlog: a rank's processes, and the first ones of a node's ranks, may all connect at once."""

import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers import unix_socket
from shardyard.workers.program import artifact_log, rank_request
from shardyard.workers.program.metric_log import MetricLog
from shardyard.workers.program.python_agent import sitecustomize
from shardyard.workers.program.report_socket import SOCKET


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Name of a socket whose backlog is full until a client has tried; then the next one is accepted, and its lines are answered."""
    tried, sleep = threading.Event(), time.sleep
    name = f"shardyard-{secrets.token_hex(8)}"
    with ExitStack() as open_, socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind("\0" + name)
        listener.listen(0)
        first.connect("\0" + name)

        def slept(seconds: float) -> None:
            tried.set()
            sleep(seconds)

        def serve() -> None:
            if tried.wait(PATIENCE_S):
                open_.enter_context(listener.accept()[0])
                connection = open_.enter_context(listener.accept()[0])
                with connection.makefile("rb") as lines, suppress(ConnectionError):
                    for _ in lines:
                        connection.sendall(b"{}\n")

        monkeypatch.setattr(time, "sleep", slept)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield name
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def log_metrics(name: str) -> None:
    MetricLog()._connected().close()


def log_artifacts(name: str) -> None:
    artifact_log._Receiver(name).connection.close()


def report(name: str) -> None:
    sitecustomize._connected(name, {"driver": True}).close()


@pytest.mark.parametrize("connect", [log_metrics, log_artifacts, report, lambda name: rank_request.answer(name, {})])
def test_each_client_of_a_rank_waits_for_room(
    crowded: str, connect: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SOCKET, crowded)
    connect(crowded)


def test_a_client_that_finds_no_room_in_its_time_gives_up() -> None:
    with ExitStack() as open_:
        listener, first, late = (open_.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(3))
        listener.bind("")  # a name that the kernel chooses
        listener.listen(0)
        first.connect(listener.getsockname())
        late.settimeout(PATIENCE_S)
        with pytest.raises(BlockingIOError):
            unix_socket.connect(late, listener.getsockname(), 0.0)
