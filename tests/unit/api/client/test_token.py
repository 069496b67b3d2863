"""The environment's token goes to no process of another user of this machine. What else a client sends: the integration tests."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from harness.http_server import http_server

from shardyard.api import peer, pidfile
from shardyard.api.client import ApiError, AsyncClient, Client
from shardyard.api.client.streams import Streams

TOKEN = "t" * 40
FOREIGN = 54_321


@dataclass
class Server:
    """Answers on a port of the loopback, and notes what it gets. `end` also ends the connections, as a restart does."""

    port: int = 0
    got: list[str | None] = field(default_factory=list)
    keeps: bool = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving() -> Iterator[Server]:
    it = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            it.got.append(self.headers["Authorization"])
            self.send_response(200)
            self.send_header("Content-Length", "28")
            if not it.keeps:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b'{"items": [], "next": null}\n')

        def log_message(self, *_: object) -> None:
            pass

    with http_server(Handler) as it.port:
        yield it


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("SHARDYARD_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("SHARDYARD_TOKEN", TOKEN)
    for name in ("SHARDYARD_TOKEN_PATH", "SHARDYARD_URL"):
        monkeypatch.delenv(name, raising=False)
    with serving() as it:
        monkeypatch.setattr(pidfile, "DEFAULT_URL", it.url)
        yield it


@contextmanager
def owned(by: int, port: int, tmp_path: Path) -> Iterator[list[int]]:
    """The kernel says that the port's listener is this user's. Yields the tables' reads."""
    table = tmp_path / "tcp"
    table.write_text(f"sl\n0: 0100007F:{port:04X} 00000000:0000 0A 0:0 00:0 0 {by} 0 1 1 0 100\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peer, "_TABLES", (table,))
        reads, rows = list[int](), peer._rows
        patch.setattr(peer, "_rows", lambda of: (reads.append(of), rows(of))[1])
        yield reads


async def test_another_users_process_gets_nothing(server: Server, tmp_path: Path) -> None:
    with owned(FOREIGN, server.port, tmp_path):
        with Client() as client, pytest.raises(ApiError) as refused:
            client.jobs()
        async with AsyncClient() as other:
            with pytest.raises(ApiError):
                await other.jobs()
        async with Streams() as streams:
            with pytest.raises(ApiError) as closed:
                async with streams.port("job", 0, 80):
                    pass
    assert server.got == []
    assert refused.value.code == closed.value.code == "foreign_listener"
    assert str(server.port) in refused.value.detail and f"user {FOREIGN} " in refused.value.errors[0].message
    assert "SHARDYARD_URL" in str(refused.value.errors[0].remedy)


@pytest.mark.parametrize("by", ["argument", "variable"])
def test_who_names_the_address_has_chosen_who_gets_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """As at a container that runs as another user in the host's network."""
    if by == "variable":
        monkeypatch.setenv("SHARDYARD_URL", server.url)
    with owned(FOREIGN, server.port, tmp_path) as reads, Client(server.url if by == "argument" else None) as client:
        client.jobs()
    assert server.got == [f"Bearer {TOKEN}"] and reads == []


@pytest.mark.parametrize("user", [0, os.geteuid(), None])
def test_the_users_own_and_roots_get_the_token(server: Server, tmp_path: Path, user: int | None) -> None:
    """None: the tables have no such row, as in a container's network."""
    with owned(FOREIGN if user is None else user, server.port if user is not None else 1, tmp_path) as reads:
        with Client() as client:
            for _ in range(3):
                client.jobs()
        assert server.got == [f"Bearer {TOKEN}"] * 3 and len(reads) == 1, "once for a connection"


def test_it_is_asked_with_each_connection(server: Server, tmp_path: Path) -> None:
    server.keeps = False
    with Client() as client:
        client.jobs()
        with owned(FOREIGN, server.port, tmp_path), pytest.raises(ApiError):
            client.jobs()
    assert len(server.got) == 1


def test_the_owner_of_the_tokens_file_gets_it(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "given"
    file.write_text(TOKEN)
    file.chmod(0o640)
    monkeypatch.delenv("SHARDYARD_TOKEN")
    monkeypatch.setenv("SHARDYARD_TOKEN_PATH", str(file))
    with owned(FOREIGN, server.port, tmp_path):
        with Client() as client, pytest.raises(ApiError):
            client.jobs()
        if os.geteuid() == 0:  # only root can give a file away
            os.chown(file, FOREIGN, -1)
            with Client() as client:
                client.jobs()
            assert server.got == [f"Bearer {TOKEN}"]


def test_a_client_without_the_environments_token_asks_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHARDYARD_TOKEN")
    with owned(FOREIGN, server.port, tmp_path) as reads, Client() as client:
        client.jobs()
    assert server.got == [None] and reads == []


def test_no_proxy_gets_the_token_for_a_server_of_this_machine(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where `control.json` of an earlier version has the address of all interfaces, which `NO_PROXY` does not have."""
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    with serving() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        for url in (f"http://0.0.0.0:{server.port}", server.url):
            with Client(url) as client:
                client.jobs()
    assert server.got == [f"Bearer {TOKEN}"] * 2 and proxy.got == []
