"""When a gang hangs, and what its incident keeps."""

import pytest
from harness.examinations import COMPUTES, rank, recorded, waits

from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.supervisor.policies.diagnosis import Verdict, diagnose
from shardyard.workers.supervisor.policies.examination import Examination
from shardyard.workers.supervisor.policies.hang import (
    MOST_STACKS,
    MOST_STEPS,
    Progress,
    collectives_timeout_s,
    evidence,
    hung,
    limit_s,
)


def test_equal_stacks_are_kept_once() -> None:
    found = [waits(number) for number in range(999)] + [rank(999, COMPUTES)]
    kept = evidence(found, None)
    assert [len(entry["ranks"]) for entry in kept["stacks"]] == [1, 999]
    assert kept["waiting"][0]["seq"] == 58 and len(kept["waiting"]) == 1


def test_the_accused_ranks_stack_and_its_collective_are_kept_whatever_else_is_left_out() -> None:
    """Each rank is at a place of its own, and in a collective of its own group."""
    groups = [(number, 20) for number in range(20)]
    found = [
        rank(n, ("main", (f"llama.py:{n} in forward",)), [("g", groups[n], 5, "all_reduce", 5)]) for n in range(20)
    ]
    verdict = Verdict(19, "it is slow", found[19].waiting[0])
    kept = evidence(found, verdict)
    assert len(kept["stacks"]) == len(kept["waiting"]) == MOST_STACKS
    assert kept["stacks"][0]["ranks"] == kept["waiting"][0]["ranks"] == [19]


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


def test_ranks_that_are_ready_first_wait_for_the_one_that_makes_the_data() -> None:
    """No collective is on record then."""
    frames = ("build.py:90 in allocate", "shardyard/workers/ready_ranks.py:33 in wait_for_all")
    ready = [rank(number, ("MainThread", frames), phase="start", idle_s=900) for number in (1, 2)]
    makes = {idle_s: rank(0, COMPUTES, phase="start", idle_s=idle_s) for idle_s in (1, 900)}
    assert not hung([makes[1], *ready], 30, 600)
    assert hung([makes[900], *ready], 30, 600) and diagnose([makes[900], *ready]).rank == 0


def test_the_limit_follows_the_median_step() -> None:
    assert limit_s(30, []) == 30
    assert limit_s(30, [1, 1, 100]) == 30
    assert limit_s(30, [10, 12, 11]) == 55


def test_one_long_step_is_one_of_many_however_many_ranks_report_it() -> None:
    progress = Progress(30)
    for step in range(11):
        for _ in range(64):
            progress.stepped(step, 100.0 if step == 10 else 1.0)
    assert progress.limit_s == 30
    for step in range(11, 11 + MOST_STEPS):
        progress.stepped(step, 10.0)
    assert progress.limit_s == 50


def test_a_rank_that_waits_for_its_device_alone_ends_the_patience() -> None:
    assert hung(recorded("in_tolist"), 30, 600)
    assert hung(recorded("network"), 30, 600)


def test_messages_are_evidence_too() -> None:
    kept = evidence(recorded("lone_message"), None)
    assert {
        "group": "pipeline",
        "members": [0, 1, 2, 3],
        "seq": 14,
        "op": "recv from rank 0",
        "ranks": [1],
    }.items() <= (kept["waiting"][0].items())
    assert any("in a call of tolist" in one["stack"] for one in kept["stacks"])


@pytest.mark.parametrize(
    ("device", "hang_timeout_s", "expected"),
    [
        ("cpu", 30.0, 600.0),
        ("cpu", 7200.0, 600.0),
        ("cuda", None, 600.0),
        ("cuda", 30.0, 3600.0),
        ("cuda", 7200.0, 14400.0),
    ],
)
def test_torchs_watchdog_comes_after_the_verdict(device: str, hang_timeout_s: float | None, expected: float) -> None:
    spec = GangSpec("shardyard-a-1", {}, 2, device=device, hang_timeout_s=hang_timeout_s)
    assert collectives_timeout_s(spec) == expected
