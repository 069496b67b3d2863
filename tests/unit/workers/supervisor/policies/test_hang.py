"""When a gang hangs, and what its incident keeps."""

import pytest
from harness.examinations import COMPUTES, rank, recorded, waits

from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.supervisor.policies.diagnosis import diagnose
from shardyard.workers.supervisor.policies.examination import Examination
from shardyard.workers.supervisor.policies.hang import collectives_timeout_s, evidence, hung, limit_s


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


def test_a_rank_that_waits_for_its_device_alone_ends_the_patience() -> None:
    assert hung(recorded("in_tolist"), 30, 600)
    assert hung(recorded("network"), 30, 600)


def test_messages_are_evidence_too() -> None:
    kept = evidence(recorded("lone_message"))
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
