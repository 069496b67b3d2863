"""Dumps of both flight recorders become the same records."""

import json
from typing import Any

import pytest
from harness.examinations import DUMPS

from shardyard.workers.messages.rank_status import BACKGROUND
from shardyard.workers.trainer.recorded_groups import KEPT, names, read_dump

WORLD = {"0": [0, 1, 2, 3]}


def entry(name: str, state: str, **more: Any) -> dict[str, Any]:
    fields = {"process_group": ["0", "default_pg"], "profiling_name": name, "state": state, "collective_seq_id": 1}
    return fields | {"p2p_seq_id": 0, "is_p2p": False, "retired": False, "time_created_ns": 0} | more


def dump(name: str, rank: int) -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads((DUMPS / f"{name}.json").read_text())["ranks"][rank]["dump"]
    return recorded


def test_what_the_host_enqueued_ahead_is_not_what_it_waits_in() -> None:
    (record,) = read_dump(dump("host_ahead", 0), WORLD)
    assert (record.group, record.ranks, record.nccl) == ("world", (0, 1, 2, 3), True)
    assert (record.entered, record.seq, record.op, record.size) == (74, 58, "all_reduce", "4096 × Float")
    assert [seq for seq, _, _ in record.recent] == [57, 58] and not record.started


def test_the_begin_of_a_collective_is_known_if_torch_records_it() -> None:
    assert read_dump(dump("network", 0), WORLD)[0].started


def test_the_end_of_a_coalesced_group_is_that_of_its_last_entry() -> None:
    """The others have no events, and stay `scheduled` for ever."""
    single = [entry("nccl:_all_gather_base", "scheduled", input_sizes=[[n]], input_dtypes=["Float"]) for n in (8, 4)]
    last = "nccl:ALLGATHER_coalesced"
    (record,) = read_dump({"entries": [*single, entry(last, "completed")]}, WORLD)
    assert (record.entered, record.op) == (1, "")
    (record,) = read_dump({"entries": [*single, entry(last, "scheduled")]}, WORLD)
    assert (record.seq, record.op, record.size) == (1, "_all_gather_base", "12 × Float")


def test_a_retired_collective_is_done_on_gloo_and_has_timed_out_on_nccl() -> None:
    for name, pending in (("gloo:all_reduce", ""), ("nccl:all_reduce", "all_reduce")):
        (record,) = read_dump({"entries": [entry(name, "scheduled", retired=True)]}, WORLD)
        assert record.op == pending


def test_the_pending_messages_of_a_batch_name_the_other_rank_in_the_world() -> None:
    groups = {"0": [0, 1, 2, 3], "2": [4, 5, 6, 7]}
    (record,) = [one for one in read_dump(dump("lone_message", 1), groups) if one.group == "pipeline"]
    assert [(one.kind, one.peer, one.seq) for one in record.messages] == [("recv", 4, 14), ("send", 6, 15)]
    assert record.messages[0].since_s > record.messages[1].since_s


def test_the_messages_of_one_batch_are_equally_old() -> None:
    one = {"process_group": ["2", "mesh_pipeline"], "is_p2p": True, "p2p_seq_id": 3, "time_created_ns": 10**18}
    batch = [entry(f"nccl:{what}", "started", **one) for what in ("send 0->1", "recv 0<-1")]
    (record,) = read_dump({"entries": batch}, {"2": [4, 5]})
    assert [message.kind for message in record.messages] == ["send", "recv"]
    assert len({message.since_s for message in record.messages}) == 1


def test_gloos_collectives_beside_nccls_are_a_group_of_their_own() -> None:
    """Both have the group's name, and each backend has numbers of its own."""
    (record,) = read_dump({"entries": [entry("gloo:all_reduce", "completed")]}, WORLD, on_gloo=True)
    assert record.group == "world (gloo)" and not record.nccl


def test_background_groups_and_unknown_ones_are_left_out() -> None:
    background = entry("gloo:all_reduce", "scheduled", process_group=["7", BACKGROUND])
    gone = entry("gloo:all_reduce", "scheduled", process_group=["8", "mesh_tensor"])
    recorded = {"entries": [background, gone, entry("gloo:all_reduce", "completed")]}
    assert names(recorded) == {"0", "7", "8"}
    assert [one.group for one in read_dump(recorded, WORLD | {"7": [0, 1]})] == ["world"]


def test_a_few_collectives_before_the_pending_one_are_kept() -> None:
    entries = [entry("nccl:all_reduce", "completed", collective_seq_id=seq) for seq in range(1, 100)]
    (record,) = read_dump({"entries": entries}, WORLD)
    assert [seq for seq, _, _ in record.recent] == list(range(99 - KEPT, 100))


@pytest.mark.parametrize("recorded", [{}, {"entries": []}])
def test_an_empty_recorder_has_no_groups(recorded: dict[str, Any]) -> None:
    assert read_dump(recorded, WORLD) == []
