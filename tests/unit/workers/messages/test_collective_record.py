import json

import pytest

from shardyard.workers.messages.collective_record import GroupRecord, PendingMessage


def test_a_record_survives_the_way_to_the_supervisor() -> None:
    message = PendingMessage("recv", 3, 14, 2.5)
    record = GroupRecord("pipeline", (1, 3), 9, "all_reduce", 8, "4 × Float", recent=((8, "all_reduce", ""),))
    for one in (record, GroupRecord("world", (0, 1), messages=(message,), nccl=True)):
        assert GroupRecord.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValueError, match="has no field"):
        GroupRecord.from_json({"group": "world", "ranks": [0], "unknown": 1})
