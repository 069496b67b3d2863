import json

import pytest

from shardyard.workers.messages.rendezvous import RankAssignment


def test_coords_survive_their_way_as_json() -> None:
    coords = RankAssignment(3, 8, 1, "127.0.0.1", 4242, generation=2, interface="lo", device="cuda", timeout_s=5.0)
    assert not coords.copied
    assert RankAssignment.from_json(json.loads(json.dumps(coords.to_json()))) == coords


def test_where_replicas_are_survives_its_way_as_json() -> None:
    coords = RankAssignment(0, 8, 0, "127.0.0.1", 4242, segments=(3, 4), holder=5, replicas=((6, 1 << 40), (7, 0)))
    assert coords.copied
    assert RankAssignment.from_json(json.loads(json.dumps(coords.to_json()))) == coords


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError):
        RankAssignment.from_json({"rank": 0, "colour": "blue"})
