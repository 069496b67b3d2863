"""The kernel says whose connection it is."""

import os
import socket
import struct
import subprocess
from pathlib import Path

import pytest

from shardyard.api import peer
from shardyard.api.peer import CLOSED, listeners, user_of


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_our_own_connection_is_ours(family: socket.AddressFamily, host: str) -> None:
    with socket.socket(family) as listener:
        try:
            listener.bind((host, 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        listener.listen()
        with socket.create_connection(listener.getsockname()[:2]) as sender:
            ends = sender.getsockname()[:2], sender.getpeername()[:2]
            assert user_of(*ends) == os.geteuid()
            assert user_of(ends[1], ("192.0.2.1", 1)) is None


def test_an_ipv4_address_of_an_ipv6_socket() -> None:
    with socket.socket(socket.AF_INET) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        try:
            sender = socket.socket(socket.AF_INET6)
        except OSError:
            pytest.skip("this machine has no IPv6")
        with sender:
            sender.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
            accepted, client = listener.accept()
            with accepted:
                assert user_of(client, accepted.getsockname()) == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_users_connection_is_theirs() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        host, port = listener.getsockname()
        command = ["bash", "-c", f"exec 3<>/dev/tcp/{host}/{port}; echo in; read"]
        other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=65534)
        try:
            assert other.stdout is not None and other.stdout.readline() == "in\n"
            accepted, client = listener.accept()
            with accepted:
                assert user_of(client, accepted.getsockname()) == 65534
        finally:
            other.communicate("go\n", timeout=60)


@pytest.mark.parametrize("reset", [False, True])
def test_a_closed_connection_is_not_roots_and_not_of_another_machine(reset: bool) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as sender:
            accepted, client = listener.accept()
            if reset:
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with accepted:
            assert user_of(client, listener.getsockname()) == CLOSED


def _table(path: Path, *rows: tuple[str, str, str, int]) -> Path:
    lines = [f"0: {local} {remote} {state} 0:0 00:0 0 {user} 0 1 1 0 100" for local, remote, state, user in rows]
    path.write_text("\n".join(["  sl  local_address", *lines]) + "\n")
    return path


@pytest.mark.parametrize(
    ("theirs", "ours", "found"),
    [
        ([("01", 7)], [("01", 3)], 7),
        ([("05", 0)], [("08", 3)], CLOSED),
        ([("06", 0)], [], CLOSED),
        ([], [("01", 3)], None),
        ([], [("08", 3)], CLOSED),
        ([], [], CLOSED),
    ],
)
def test_whose_a_connection_is(
    theirs: list[tuple[str, int]],
    ours: list[tuple[str, int]],
    found: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By its two sockets: 05 and 06 are those of a client that has closed it, 08 that of a server that has seen this."""
    client, server = "0100007F:C350", "0100007F:20D0"
    rows = [(client, server, *row) for row in theirs] + [(server, client, *row) for row in ours]
    table = _table(tmp_path / "tcp", (server, "00000000:0000", "0A", 3), *rows)
    monkeypatch.setattr(peer, "_TABLES", (table, tmp_path / "absent"))
    assert user_of(("127.0.0.1", 50000), ("127.0.0.1", 8400)) == found
    monkeypatch.setattr(peer, "_TABLES", (tmp_path / "absent",))
    assert user_of(("127.0.0.1", 50000), ("127.0.0.1", 8400)) is None


def test_the_interface_in_an_address_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = "000080FE000000000000000001000000"
    row = (f"{ours}:C350", f"{ours}:20D0", "01", 7)
    monkeypatch.setattr(peer, "_TABLES", (_table(tmp_path / "tcp6", row),))
    assert user_of(("fe80::1%eth0", 50000), ("fe80::1%eth0", 8400)) == 7


def test_no_peer_known() -> None:
    assert user_of(None, ("127.0.0.1", 1)) is None
    assert user_of(("192.0.2.7", 80), ("127.0.0.1", 1)) is None


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_our_own_listener_is_ours(family: socket.AddressFamily, host: str) -> None:
    with socket.socket(family) as listener:
        try:
            listener.bind((host, 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        port = listener.getsockname()[1]
        assert listeners(host, port) == set(), "it does not listen yet"
        listener.listen()
        for name in (host, "localhost"):
            assert listeners(name, port) == {os.geteuid()}
        for name in ("192.0.2.1", "shardyard.example.com"):
            assert listeners(name, port) == set()


def test_the_listener_of_an_address_comes_before_one_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def table(name: str, *rows: tuple[str, str, int]) -> Path:
        return _table(tmp_path / name, *((local, "00000000:0000", state, user) for local, state, user in rows))

    any6, own6 = "0" * 32, "0" * 24 + "01000000"
    for rows4, rows6, found in (
        ([("0100007F:20D0", "0A", 7)], [], {"127.0.0.1": {7}, "::1": set(), "localhost": {7}}),
        ([("0100007F:20D0", "01", 7)], [], {"127.0.0.1": set()}),
        ([("0100007F:20D1", "0A", 7)], [], {"127.0.0.1": set()}),
        ([("00000000:20D0", "0A", 7)], [], {"127.0.0.1": {7}, "::1": set()}),
        ([], [(f"{any6}:20D0", "0A", 8)], {"127.0.0.1": {8}, "::1": {8}}),
        ([("0100007F:20D0", "0A", 7)], [(f"{any6}:20D0", "0A", 8)], {"127.0.0.1": {7}, "localhost": {7, 8}}),
        ([], [(f"{own6}:20D0", "0A", 8)], {"127.0.0.1": set(), "::1": {8}}),
    ):
        monkeypatch.setattr(peer, "_TABLES", (table("tcp", *rows4), table("tcp6", *rows6)))
        assert {host: listeners(host, 8400) for host in found} == found, (rows4, rows6)
    monkeypatch.setattr(peer, "_TABLES", (tmp_path / "absent",))
    assert listeners("127.0.0.1", 8400) == set()
