"""The kernel says whose connection it is."""

import os
import socket
import subprocess

import pytest

from shardyard.api.http.peer import user_of


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


def test_no_peer_known() -> None:
    assert user_of(None, ("127.0.0.1", 1)) is None
    assert user_of(("192.0.2.7", 80), ("127.0.0.1", 1)) is None
