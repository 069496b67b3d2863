"""What a rank waits for: another rank, its own device, or nothing."""

from pathlib import Path
from typing import Any

import pytest
from harness.examinations import COMPUTES, RECEIVES, rank, recorded, waits

from shardyard.strategies import pipeline_parallel
from shardyard.workers.supervisor.policies.examination import MESSAGES, Waiting

PIPELINE = Path(pipeline_parallel.__path__[0])

DONE = {"group": "world", "ranks": [0, 1], "entered": 57}
IN_TOLIST = [{"thread": "MainThread", "frames": ["loop.py:1 in run", "grad_clip.py:35 in sum"], "call": "tolist"}]


@pytest.mark.parametrize(
    ("facts", "waits_for_rank", "waits_for_device"),
    [
        ({"stacks": IN_TOLIST, "collectives": [DONE | {"nccl": True}]}, False, True),
        ({"stacks": IN_TOLIST, "collectives": [DONE]}, False, False),
        ({"stacks": IN_TOLIST, "collectives": [DONE | {"nccl": True, "op": "all_reduce", "seq": 57}]}, True, False),
        ({"stacks": [{"thread": "MainThread", "frames": ["torch/cuda/streams.py:9 in synchronize"]}]}, False, False),
    ],
)
def test_a_host_waits_for_its_device_only_where_collectives_run_on_one(
    facts: dict[str, Any], waits_for_rank: bool, waits_for_device: bool
) -> None:
    one = rank(0, stack=None, **facts)
    assert (one.waits, one.in_device_wait) == (waits_for_rank, waits_for_device)
    assert one.is_free == (not waits_for_rank and not waits_for_device)


def test_a_message_of_gloo_is_seen_in_the_stack() -> None:
    assert rank(0, RECEIVES).waits and not rank(0, COMPUTES).waits


@pytest.mark.parametrize(
    "frames",
    [
        ["pipeline_parallel/continuous.py:88 in _run", "pipeline_parallel/neighbours.py:68 in wait"],
        ["pipeline_parallel/forward_only.py:68 in validate", "telemetry/current.py:80 in wait_on"],
        ["pipeline_parallel/tied_weights.py:69 in add_up", "telemetry/current.py:80 in wait_on"],
    ],
)
def test_a_message_of_a_pipeline_is_seen_in_the_stack(frames: list[str]) -> None:
    """Gloo records none, and the wait itself has no frame of Python."""
    assert rank(0, stack=None, stacks=[{"thread": "MainThread", "frames": frames}]).waits


def test_each_message_in_which_a_pipeline_waits_is_known() -> None:
    waits = {path.name for path in PIPELINE.glob("*.py") if "work.wait" in path.read_text()}
    assert waits == {sign.split("/")[1].rstrip(":") for sign in MESSAGES if sign.startswith("pipeline_parallel/")}


def test_a_server_without_requests_waits_and_its_readers_do_not_count() -> None:
    reads = {"thread": "background requests of worker 1", "frames": ["torch/distributed/distributed_c10d.py:9 in recv"]}
    takes = {"thread": "MainThread", "frames": ["data_parallel/inbox.py:50 in take", "current.py:80 in wait_on"]}
    computes = {"thread": "MainThread", "frames": ["loop.py:1 in run", "optimizer.py:40 in step"]}
    assert rank(0, stack=None, stacks=[takes, reads]).waits
    assert not rank(0, stack=None, stacks=[computes, reads]).waits


def test_two_groups_of_one_axis_and_the_same_ranks_are_kept_apart() -> None:
    """Meshes with other parents have axes of the same name."""
    place = {"group": "tensor", "ranks": [0, 1]}
    one = rank(0, collectives=[place | {"name": "3", "entered": 58}, place | {"name": "9", "entered": 2}])
    assert [one.entered(Waiting("tensor", (0, 1), 1, "all_reduce", name=name)) for name in ("3", "9")] == [58, 2]


def test_the_oldest_is_what_it_waits_in() -> None:
    (oldest,) = recorded("host_ahead")[0].oldest
    assert (oldest.seq, str(oldest)) == (58, "all_reduce 58 of the world group (ranks 0–3)")
    assert [wait.op for wait in recorded("lone_message")[1].oldest] == ["recv from rank 0"]
    assert waits(0).oldest[0].seq == 58


def test_what_it_entered_earlier_is_known() -> None:
    at = Waiting("world", (0, 1, 2, 3), 58, "all_reduce", name="0")
    left, usual = recorded("other_op_left")[1], recorded("other_op_left")[0]
    assert (left.what(at), usual.what(at)) == (("broadcast", "4096 × Float"), ("all_reduce", "4096 × Float"))
