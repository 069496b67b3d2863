import socket

from shardyard.workers.supervisor.node_loss import _answers


async def test_a_port_that_is_listened_on_answers_and_one_that_is_only_held_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        assert await _answers("127.0.0.1", listening.getsockname()[1])
        assert not await _answers("127.0.0.1", held.getsockname()[1])
