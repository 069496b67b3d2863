"""What the flight recorders and NCCL's RAS report together: a table of (recorders, RAS) → verdict."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from harness.examinations import COMPUTES, WORLD, rank, recorded

from shardyard.workers.messages.nccl_report import LaunchCount, MissingRank, NcclRank, RasReport, UnequalLaunches
from shardyard.workers.supervisor.policies.diagnosis import Verdict, diagnose
from shardyard.workers.supervisor.policies.examination import Examination
from shardyard.workers.supervisor.policies.witness import join, witness_of

IN_TOLIST = [{"thread": "MainThread", "frames": ["loop.py:1 in run", "grad_clip.py:35 in sum"], "call": "tolist"}]
LOADS = [{"thread": "MainThread", "frames": ["loop.py:1 in run", "loader.py:88 in read"], "call": "read"}]
LAUNCHES = [{"thread": "MainThread", "frames": ["loop.py:1 in run", "llama.py:40 in forward"], "call": "linear"}]


BARRIER = [
    {"thread": "MainThread", "frames": ["loop.py:1 in run", "distributed_c10d.py:4000 in barrier"], "call": "wait"}
]


def processes(found: Sequence[Examination]) -> list[Examination]:
    """As actors on CUDA report them: with the process id and the addresses of the node."""
    return [replace(one, pid=100 + one.rank, hosts=("127.0.0.1", "10.0.0.1")) for one in found]


def without_recorders(*stacks: Any) -> list[Examination]:
    return [rank(number, stack=None, stacks=stack) for number, stack in enumerate(stacks)]


def silent(found: list[Examination], number: int) -> list[Examination]:
    """The process of this rank does not answer, and is not stopped: it may be in a call of a driver that does not return."""
    return [Examination.of(one.rank, {"state": "D"}) if one.rank == number else one for one in found]


def who(number: int) -> NcclRank:
    return NcclRank(number, "10.0.0.1", 100 + number)


def counts(*launched: int, name: str = "0xa", op: str = "AllReduce") -> UnequalLaunches:
    """By rank."""
    by_count = {count: [who(at) for at, one in enumerate(launched) if one == count] for count in sorted(set(launched))}
    return UnequalLaunches(name, op, tuple(LaunchCount(n, len(those), tuple(those)) for n, those in by_count.items()))


def ras(*unequal: UnequalLaunches, **missing: Any) -> RasReport:
    """`missing`: how → the rank."""
    gone = tuple(MissingRank("0xa", who(number), how) for how, number in missing.items())  # type: ignore[arg-type]
    return RasReport("2.29.1", 2, unequal, gone)


LAGS = ras(counts(58, 58, 57, 58))
HEALTHY = ras()
TEXT_OF_MANY = UnequalLaunches("0xa", "AllReduce", (LaunchCount(57, 3, (who(2),)), LaunchCount(58, 1, (who(0),))))
LOADER = without_recorders(IN_TOLIST, IN_TOLIST, LOADS, IN_TOLIST)
QUEUES_FULL = without_recorders(LAUNCHES, LAUNCHES, LAUNCHES, LAUNCHES)
ALL_IN_TOLIST = without_recorders(IN_TOLIST, IN_TOLIST, IN_TOLIST, IN_TOLIST)
NEVER, NETWORK = recorded("never_enqueued"), recorded("network")
NETWORK_AND_LOADER = [*NETWORK[:2], replace(NETWORK[2], stacks=LOADER[2].stacks), NETWORK[3]]
CHAIN = ras(counts(58, 58, 57, 58), counts(4, 4, 3, 3, name="0xb", op="AllGather"))

TABLE: dict[str, tuple[list[Examination], RasReport | None, int | None, str]] = {
    # Without an answer all is as the recorders have it.
    "recorder names, no witness": (NEVER, None, 2, ""),
    "recorder names none, no witness": (NETWORK, None, None, ""),
    "no recorder, no witness": (LOADER, None, None, ""),
    # A recorder's word stands, whatever RAS says.
    "recorder names, RAS confirms": (NEVER, LAGS, 2, "points at it, too"),
    "recorder names, RAS says healthy": (NEVER, HEALTHY, 2, ""),
    "recorder names, RAS counts for another": (NEVER, ras(counts(57, 58, 58, 58)), 2, ""),
    "recorder names, RAS misses another": (NEVER, ras(dead=1), 2, "points at rank 1"),
    "recorder names none, RAS has counts": (NETWORK, LAGS, None, ""),
    "recorder names none, RAS has one that lags": (NETWORK_AND_LOADER, LAGS, None, ""),
    "recorder names none, RAS misses one": (NETWORK, ras(unresponsive=3), None, "points at rank 3"),
    "stopped, no recorder, RAS counts for another": (
        [*LOADER[:3], Examination.of(3, {"state": "T"})],
        LAGS,
        3,
        "points at rank 2",
    ),
    # Without recorders RAS may name a rank.
    "no recorder, RAS has one that lags": (LOADER, LAGS, 2, "57 launched by rank 2"),
    "no recorder, one lags because it waits for another": (LOADER, CHAIN, 2, "57 launched by rank 2"),
    "no recorder, the one that lags elsewhere is ahead": (
        LOADER,
        ras(counts(58, 57, 57, 58), counts(3, 4, 3, 4, name="0xb")),
        2,
        "57 launched by ranks 1, 2",
    ),
    "no recorder, RAS says healthy": (LOADER, HEALTHY, None, ""),
    "no recorder, all hosts wait for their devices": (ALL_IN_TOLIST, LAGS, None, "points at rank 2"),
    "no recorder, all queues are full": (QUEUES_FULL, LAGS, None, "points at rank 2"),
    "no recorder, two lag": (LOADER, ras(counts(58, 57, 57, 58)), None, "points at ranks 1, 2"),
    "no recorder, other kinds": (LOADER, ras(counts(58, 58, 57, 58), counts(1, 1, 2, 1, op="Broadcast")), None, ""),
    "no recorder, text lists some of those that lag": (LOADER, ras(TEXT_OF_MANY), None, "points at rank 2"),
    "no recorder, a dead rank that does not answer": (silent(ALL_IN_TOLIST, 1), ras(dead=1), 1, "considered dead"),
    "no recorder, a silent rank, another lags": (silent(LOADER, 1), ras(*LAGS.unequal, unresponsive=1), 1, "rank 1"),
    "no recorder, a missing rank that answers": (ALL_IN_TOLIST, ras(unresponsive=1), None, "points at rank 1"),
    "no recorder, two missing": (silent(ALL_IN_TOLIST, 1), ras(unresponsive=1, dead=3), None, "points at ranks 1, 3"),
    "no recorder, one has left its communicator": (silent(ALL_IN_TOLIST, 1), ras(absent=1), None, ""),
}


@pytest.mark.parametrize("case", TABLE)
def test_a_verdict_of_two_witnesses(case: str) -> None:
    found, report, named, words = TABLE[case]
    found = processes(found)
    alone = diagnose(found)
    verdict = join(alone, found, witness_of(report, found))
    assert verdict.rank == named, verdict
    assert words in verdict.message and verdict.waiting == alone.waiting
    assert alone.rank in (None, verdict.rank), "no name is taken back"
    if not words:
        assert verdict == alone


@pytest.mark.parametrize("dumps", ["never_enqueued", "other_op", "device_late", "lone_message", "device_of_one"])
@pytest.mark.parametrize("report", [HEALTHY, ras(counts(1, 2, 2, 2)), ras(dead=0, unresponsive=1), CHAIN])
def test_a_recorder_that_names_a_rank_is_never_overruled(dumps: str, report: RasReport) -> None:
    found = processes(recorded(dumps))
    alone = diagnose(found)
    assert alone.rank is not None and join(alone, found, witness_of(report, found)).rank == alone.rank


def test_the_evidence_is_in_ranks_of_the_gang() -> None:
    found = processes(LOADER)
    report = ras(counts(58, 58, 57, 58), dead=3)
    assert witness_of(report, found).evidence == [
        "NCCL's RAS: rank 3 is considered dead",
        "NCCL's RAS: AllReduce of communicator 0xa: 57 launched by rank 2, 58 launched by ranks 0, 1, 3",
    ]
    assert witness_of(ras(TEXT_OF_MANY), found).evidence == [
        "NCCL's RAS: AllReduce of communicator 0xa: 57 launched by rank 2 and 2 others, 58 launched by rank 0"
    ]
    assert witness_of(HEALTHY, found).evidence == [
        "NCCL's RAS: all ranks of its 2 communicators have launched equally much"
    ]
    assert witness_of(None, found).evidence == []
    many = ras(*(counts(58, 58, 57, 58, name=hex(number)) for number in range(99)))
    assert len(witness_of(many, found).evidence) == 16


@pytest.mark.parametrize(
    "moved",
    [lambda one: replace(one, host="10.0.0.2"), lambda one: replace(one, pid=999), lambda one: replace(one, pid=-1)],
    ids=["another node", "another process", "an unknown process"],
)
def test_processes_of_another_job_are_left_out(moved: Callable[[NcclRank], NcclRank]) -> None:
    """A text may be about another job, since it does not list all processes."""
    found = processes(LOADER)
    (unequal,) = LAGS.unequal
    theirs = tuple(replace(count, listed=tuple(moved(one) for one in count.listed)) for count in unequal.counts)
    report = RasReport("2.27.7", 0, (replace(unequal, counts=theirs),), (MissingRank("", moved(who(1)), "dead"),))
    assert witness_of(report, found) == witness_of(None, found)


def test_without_recorders_a_host_that_waits_for_its_device_is_not_to_blame() -> None:
    """Its device may wait for another rank. One that waits for nothing is named, as one on CPUs is."""
    hosts = (IN_TOLIST, IN_TOLIST, IN_TOLIST, BARRIER)
    verdict = diagnose(processes(without_recorders(*hosts)))
    assert verdict.rank is None and "ranks 0–2" in verdict.message
    assert diagnose(processes(without_recorders(IN_TOLIST, LOADS, IN_TOLIST, BARRIER))).rank == 1
    assert diagnose(without_recorders(*hosts)).rank == 0
    verdict = diagnose(processes(ALL_IN_TOLIST))
    assert verdict == Verdict(None, "no flight recorder says whether the devices of ranks 0–3 wait for another rank")


def test_without_recorders_the_only_rank_of_a_gang_is_to_blame_for_its_device() -> None:
    """The last one of several that is alive is not: its device may wait for one that is gone."""
    alone = processes(without_recorders(IN_TOLIST))
    assert diagnose(alone).rank == 0 and diagnose(alone, 1).rank == 0
    assert diagnose(alone, 4).rank is None and diagnose(processes(without_recorders(LOADS)), 4).rank == 0


def test_on_gloo_no_process_is_known() -> None:
    """An actor on CPUs reports no process, so that no answer is about its rank."""
    found = [rank(number, COMPUTES, [("world", WORLD, 57)]) for number in WORLD]
    assert witness_of(LAGS, found) == witness_of(None, found)
