import json

import pytest

from shardyard.workers.messages.rendezvous import Coords


def test_coords_survive_their_way_as_json() -> None:
    coords = Coords(3, 8, 1, "127.0.0.1", 4242, generation=2, interface="lo", device="cuda", timeout_s=5.0)
    assert Coords.from_json(json.loads(json.dumps(coords.to_json()))) == coords


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError):
        Coords.from_json({"rank": 0, "colour": "blue"})
