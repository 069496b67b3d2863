import socket

import pytest

from shardyard.workers.messages.rendezvous import Reservation
from shardyard.workers.supervisor import node_loss
from shardyard.workers.supervisor.node_loss import _answers, lost_nodes
from shardyard.workers.supervisor.ranks.members import Member


async def test_a_port_that_is_listened_on_answers_and_one_that_is_only_held_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        assert await _answers("127.0.0.1", listening.getsockname()[1])
        assert not await _answers("127.0.0.1", held.getsockname()[1])


async def test_with_a_dead_node_all_others_of_the_gang_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four nodes b and d died, of which only b's rank is accused, and Ray notices d later. c lives."""
    members = [
        Member(n, reservation=Reservation(n, node, "host", None, None, 1, 1, ())) for n, node in enumerate("abcd")
    ]
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        here, refuses = listening.getsockname(), held.getsockname()
        seen = [{"a": here, "c": here, "d": refuses}, {"a": here, "c": here}]
        monkeypatch.setattr(node_loss, "_living", lambda: seen.pop(0))
        monkeypatch.setattr(node_loss, "RETRY_S", 0.0)
        assert [one.node for one in await lost_nodes(members, {1})] == ["b", "d"] and seen == []
        monkeypatch.setattr(node_loss, "_living", lambda: {"a": here, "b": here, "c": here})
        assert await lost_nodes(members, {1}) == [], "no other node is asked"
