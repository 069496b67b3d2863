"""A fault crosses to its gang as JSON, and only JSON of a fault is read."""

import json

import pytest

from shardyard.workers.messages.fault_request import OF_A_RANK, Fault


def test_json_keeps_every_field() -> None:
    for fault in (Fault("fault-1", "slow-rank", 3, 50.0, 2.0), Fault("fault-2", "kill-supervisor")):
        assert Fault.from_json(json.loads(json.dumps(fault.to_json()))) == fault


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"id": "fault-1"}, "missing"),
        ({"id": "fault-1", "kind": "kill-rank", "speed": 3}, "speed"),
        ({"id": "fault-1", "kind": "melt-rank"}, "melt-rank"),
    ],
)
def test_json_of_something_else_is_refused(wrong: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Fault.from_json(wrong)


def test_faults_of_a_rank_are_those_that_name_one() -> None:
    assert {"kill-rank", "kill-actor", "hang-rank", "slow-rank"} == OF_A_RANK
