"""From what every rank says to one culprit."""

from collections.abc import Sequence
from typing import Any

import pytest

from shardyard.workers.messages.rank_status import BACKGROUND
from shardyard.workers.supervisor.policies.hang import Examination, diagnose, evidence, hung, limit_s

WORLD = (0, 1, 2, 3)
COMPUTES = ("main", ("loop.py:1 in run", "llama.py:40 in forward"))
WAITS = ("main", ("loop.py:1 in run", "torch/_ops.py:9 in __call__"))
RECEIVES = ("main", ("loop.py:1 in run", "torch/distributed/pipelining/schedules.py:400 in _wait_batch_p2p"))


def rank(number: int, stack: Any = WAITS, groups: Sequence[tuple[Any, ...]] = (), **more: Any) -> Examination:
    """`groups`: (name, ranks, entered) or (name, ranks, entered, op, seq)."""
    keys = ("group", "ranks", "entered", "op", "seq")
    collectives = [dict(zip(keys, group, strict=False)) for group in groups]
    stacks = [{"thread": stack[0], "frames": stack[1]}] if stack else []
    facts = {"state": "S", "phase": "step", "step": 7, "idle_s": 40.0, "stacks": stacks, "collectives": collectives}
    return Examination.of(number, facts | more)


def waits(number: int, group: str = "world", ranks: tuple[int, ...] = WORLD, op: str = "all_reduce") -> Examination:
    return rank(number, WAITS, [(group, ranks, 58, op, 58)])


def test_a_rank_that_never_enters_the_collective_is_named_with_its_group() -> None:
    found = [waits(0), waits(1), rank(2, COMPUTES, [("world", WORLD, 57)]), waits(3)]
    verdict = diagnose(found)
    assert verdict.rank == 2
    assert "its step 7 at llama.py:40 in forward" in verdict.message
    assert "ranks 0, 1, 3 wait for it in all_reduce 58 of the world group (ranks 0–3)" in verdict.message


def test_a_stopped_process_is_the_culprit_whatever_the_others_do() -> None:
    found = [waits(0), Examination.of(1, {"state": "T"}), waits(2), waits(3)]
    verdict = diagnose(found)
    assert verdict.rank == 1 and "stopped" in verdict.message and verdict.waiting is not None
    assert verdict.waiting.group == "world"


def test_who_waits_for_another_is_no_culprit() -> None:
    """0 and 1 wait for 2 in the tensor group of 2 and …, which itself waits for 3 on the data axis."""
    found = [
        waits(0, "tensor", (0, 2)),
        waits(1, "data", (1, 3)),
        rank(2, WAITS, [("tensor", (0, 2), 57), ("data", (2, 3), 9, "all_gather", 9)]),
        rank(3, COMPUTES, [("data", (1, 3), 57), ("data", (2, 3), 8)]),
    ]
    verdict = diagnose(found)
    assert verdict.rank == 3 and verdict.waiting is not None and 3 in verdict.waiting.ranks


def test_a_rank_of_a_pipeline_is_found_by_its_stack() -> None:
    found = [rank(0, RECEIVES), rank(1, RECEIVES), rank(2, COMPUTES), rank(3, RECEIVES)]
    assert diagnose(found).rank == 2


def test_a_rank_that_cannot_answer_holds_the_lock() -> None:
    found = [waits(0), waits(1), waits(2), Examination.of(3, {"state": "R"})]
    verdict = diagnose(found)
    assert verdict.rank == 3 and "interpreter" in verdict.message


def test_different_collectives_of_the_same_number() -> None:
    found = [waits(0), waits(1, op="broadcast"), waits(2), waits(3)]
    verdict = diagnose(found)
    assert verdict.rank == 1 and "entered broadcast 58" in verdict.message and "all_reduce" in verdict.message


def test_ranks_that_wait_for_each_other() -> None:
    other = rank(1, WAITS, [("world", WORLD, 57), ("tensor", (0, 1), 4, "all_gather", 4)])
    verdict = diagnose([waits(0), other, waits(2), waits(3)])
    assert verdict.rank == 1 and "another order" in verdict.message


def test_messages_alone_accuse_no_rank() -> None:
    assert diagnose([rank(number, RECEIVES) for number in WORLD]).rank is None


def test_a_thread_that_writes_a_checkpoint_waits_for_no_rank() -> None:
    writes = {"thread": f"{BACKGROUND} checkpoint", "frames": ["torch/distributed/distributed_c10d.py:9 in gather"]}
    stuck = {"stacks": [{"thread": "main", "frames": COMPUTES[1]}, writes]}
    assert diagnose([rank(0, RECEIVES), rank(1, **stuck), rank(2, RECEIVES)]).rank == 1


def test_equal_stacks_are_kept_once() -> None:
    found = [waits(number) for number in range(999)] + [rank(999, COMPUTES)]
    kept = evidence(found)
    assert [len(entry["ranks"]) for entry in kept["stacks"]] == [1, 999]
    assert kept["waiting"][0]["seq"] == 58 and len(kept["waiting"]) == 1


@pytest.mark.parametrize(
    ("idle_s", "phase", "expected"), [(1, "step", True), (31, "step", False), (31, "checkpoint", True)]
)
def test_slow_phases_have_more_time(idle_s: float, phase: str, expected: bool) -> None:
    assert rank(0, idle_s=idle_s, phase=phase).moves(30, 600) is expected


def test_one_that_neither_gets_on_nor_waits_ends_the_patience() -> None:
    saves = rank(0, COMPUTES, phase="checkpoint")
    assert not hung([saves, waits(1), waits(2)], 30, 600)
    assert hung([saves, waits(1), rank(2, COMPUTES)], 30, 600)
    assert hung([saves, waits(1), Examination.of(2, {"state": "T"})], 30, 600)
    assert hung([waits(0), waits(1), waits(2)], 30, 600)
    assert not hung([waits(0), rank(1, COMPUTES, idle_s=1)], 30, 600)


def test_the_limit_follows_the_median_step() -> None:
    assert limit_s(30, []) == 30
    assert limit_s(30, [1, 1, 100]) == 30
    assert limit_s(30, [10, 12, 11]) == 55
