"""A client that a forked process inherits opens connections of its own."""

import multiprocessing
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.api.client import Client


class Server(ThreadingHTTPServer):
    """Answers that it is alive, and notes by which connection it was asked."""

    asked: list[Any]


class Alive(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.client_address)
        self.send_response(200)
        self.send_header("Content-Length", "15")
        self.end_headers()
        self.wfile.write(b'{"status":"ok"}')

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Alive) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join(PATIENCE_S)


def ask(client: Client) -> None:
    with client:
        assert client.alive()


def test_a_forked_process_reads_no_answers_to_its_parent(server: Server) -> None:
    with Client(f"http://127.0.0.1:{server.server_port}") as client:
        assert client.alive()
        child = multiprocessing.get_context("fork").Process(target=ask, args=(client,))
        child.start()
        child.join(PATIENCE_S)
        assert child.exitcode == 0 and client.alive()
    parent, forked, again = server.asked
    assert parent == again != forked
