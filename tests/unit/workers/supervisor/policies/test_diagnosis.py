"""From what every rank says to one culprit, or to none."""

import pytest
from harness.examinations import COMPUTES, RECEIVES, WAITS, WORLD, rank, recorded, waits

from shardyard.workers.messages.rank_status import BACKGROUND
from shardyard.workers.supervisor.policies.diagnosis import diagnose
from shardyard.workers.supervisor.policies.examination import Examination


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


@pytest.mark.parametrize("stack", [COMPUTES, ("main", ("loop.py:1 in run", "loader.py:7 in read"))])
def test_where_no_rank_waits_none_is_named(stack: tuple[str, tuple[str, ...]]) -> None:
    verdict = diagnose([rank(number, stack, [("world", WORLD, 57)]) for number in WORLD])
    assert (
        verdict.rank is None and "no rank waits for another one" in verdict.message and stack[1][-1] in verdict.message
    )


def test_a_gang_of_one_is_named() -> None:
    assert diagnose([rank(0, COMPUTES)]).rank == 0


def test_a_tie_names_no_rank() -> None:
    """Of two ranks either may have left the order."""
    found = [
        rank(0, WAITS, [("world", (0, 1), 58, "all_reduce", 58)]),
        rank(1, WAITS, [("world", (0, 1), 57), ("tensor", (0, 1), 4, "all_gather", 4)]),
    ]
    verdict = diagnose(found)
    assert verdict.rank is None and "wait for each other" in verdict.message
    assert "rank 0 waits in all_reduce 58 of the world group" in verdict.message


def test_a_collective_that_all_have_entered_names_no_rank() -> None:
    verdict = diagnose([waits(number) for number in WORLD])
    assert verdict.rank is None and verdict.waiting is not None
    assert "all_reduce 58 of the world group (ranks 0–3)" in verdict.message and "network" in verdict.message


@pytest.mark.parametrize(
    ("dumps", "named", "parts"),
    [
        (
            "never_enqueued",
            2,
            ["loader.py:88 in read", "ranks 0, 1, 3 wait for it in all_reduce 58 of the world group"],
        ),
        ("other_op", 1, ["entered broadcast 58", "the others have entered all_reduce 58 with 4096 × Float"]),
        ("other_op_left", 1, ["entered broadcast 58", "the others have entered all_reduce 58"]),
        ("other_size", 1, ["all_reduce 58 with 8192 × Float", "all_reduce 58 with 4096 × Float"]),
        ("device_late", 3, ["its device has not begun it", "ranks 0–2 wait for it there"]),
        ("device_of_one", 2, ["its host waits for its own device at /app/strategies/grad_clip.py:35"]),
        (
            "lone_message",
            0,
            ["loader.py:88 in read", "rank 1 waits for it in a recv from rank 0 of the pipeline group"],
        ),
        ("network", None, ["all_reduce 58 of the world group (ranks 0–3)", "the network or a device hangs"]),
        ("host_ahead", None, ["all_reduce 58 of the world group (ranks 0–3)", "the network or a device hangs"]),
        ("network_of_a_pair", None, ["_all_gather_base 400 of the tensor group (ranks 0, 1)"]),
        ("stuck_message", None, ["ranks 1, 2 have both entered their message of the pipeline group"]),
        ("crossed_messages", None, ["ranks 1, 2 wait for each other", "rank 1 waits in a recv from rank 2"]),
        ("in_tolist", None, ["every rank waits for its own device"]),
    ],
)
def test_recorded_hangs_on_nccl(dumps: str, named: int | None, parts: list[str]) -> None:
    verdict = diagnose(recorded(dumps))
    assert verdict.rank == named, verdict
    for part in parts:
        assert part in verdict.message
