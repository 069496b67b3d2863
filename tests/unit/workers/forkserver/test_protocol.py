import os
import socket
from collections.abc import Iterator

import pytest

from shardyard.workers.forkserver.protocol import MAX_REQUEST, Request, adopt, receive, request


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    client, server = socket.socketpair()
    with client, server:
        yield client, server


def test_a_request_arrives_with_its_descriptors(ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends
    order = Request({"COLOUR": "blue"}, "/tmp", "module:function", 1)
    reader, writer = os.pipe()
    request(client, order, [writer])
    os.close(writer)
    message, (given,) = receive(server)
    assert Request(**message) == order
    os.write(given, b"it is open")
    os.close(given)
    assert os.read(reader, 100) == b"it is open"
    os.close(reader)


def test_a_new_owner_needs_no_descriptor(ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends
    adopt(client, 7)
    assert receive(server) == ({"owner": 7}, [])


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0", b"\0\0\0\4{", (MAX_REQUEST + 1).to_bytes(4, "big")],
    ids=["none", "cut", "half", "too long"],
)
def test_what_is_no_request_is_refused(ends: tuple[socket.socket, socket.socket], content: bytes) -> None:
    client, server = ends
    client.sendall(content)
    client.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionError):
        receive(server)
