"""From a status of NCCL's RAS subsystem, as JSON and as text, to a report."""

import json
from typing import Any

import pytest
from harness.ras_server import HEALTHY, HERE, TEXT, communicator, gone, process, status

from shardyard.workers.messages.nccl_report import LaunchCount, MissingRank, NcclRank, RasReport, UnequalLaunches
from shardyard.workers.rank.nccl_status import NotAStatus, read_json, read_text

WORLD = [process(rank, 100 + rank, AllReduce=58, AllGather=9) for rank in range(4)]


def who(rank: int, pid: int | None = None) -> NcclRank:
    return NcclRank(rank, HERE, 100 + rank if pid is None else pid)


def read(*communicators: dict[str, Any], pid: int = 100) -> RasReport | None:
    return read_json(status(*communicators).decode(), {HERE, "10.0.0.1"}, pid)


def test_two_communicators_whose_ranks_have_launched_equally_much() -> None:
    pair = communicator("0xb", process(0, 100, AllGather=3), process(1, 101, AllGather=3))
    assert read(communicator("0xa", *WORLD), pair) == RasReport("2.29.1", 2)


def test_a_rank_that_lags_is_listed_with_its_communicator_and_the_kind_of_collective() -> None:
    lagging = process(2, 102, AllReduce=57, AllGather=9)
    equal = communicator("0xb", process(0, 100), process(1, 102))
    report = read(communicator("0xa", *WORLD[:2], lagging, WORLD[3]), equal)
    counts = (LaunchCount(57, 1, (who(2),)), LaunchCount(58, 3, (who(0), who(1), who(3))))
    assert report == RasReport("2.29.1", 2, (UnequalLaunches("0xa", "AllReduce", counts),))


def test_messages_differ_between_healthy_ranks_and_are_not_compared() -> None:
    report = read(communicator("0xa", process(0, 100, SendRecv=3), process(1, 101, SendRecv=8)))
    assert report == RasReport("2.29.1", 1)


@pytest.mark.parametrize(
    ("missing", "how"),
    [
        (gone(3, 103), "unresponsive"),
        (gone(3, 103, dead=True), "dead"),
        (gone(3, 103, unresponsive=False), "absent"),
    ],
)
def test_a_missing_rank(missing: dict[str, Any], how: Any) -> None:
    report = read(communicator("0xa", *WORLD[:3], missing=[missing]))
    assert report == RasReport("2.29.1", 1, (), (MissingRank("0xa", who(3), how),))


def test_the_status_of_another_job_is_no_report() -> None:
    """A process id of this node may be one of another node, and the other way round."""
    elsewhere = [one | {"host": "10.9.9.9"} for one in WORLD]
    assert read(communicator("0xa", *WORLD), pid=999) is None
    assert read(communicator("0xa", *elsewhere)) is None
    assert read(communicator("0xa", *WORLD[1:], missing=[gone(0, 100)])), (
        "its own process may be the one that is missed"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "OK\n",
        "[]",
        "{}",
        "[" * 100_000,
        '{"communicators": 3}',
        '{"communicators": [{"hash": "0xa"}]}',
        '{"communicators": [null]}',
        json.dumps({"communicators": [communicator("0xa", WORLD[0] | {"pid": "many"})]}),
        json.dumps({"communicators": [communicator("0xa", WORLD[0] | {"pid": float("inf")})]}),
        json.dumps({"communicators": [communicator("0xa", WORLD[0] | {"collective_counts": [1]})]}),
        json.dumps({"communicators": [communicator("0xa", missing=[gone(0, 1) | {"status": "gone"}])]}),
        status(communicator("0xa", *WORLD)).decode()[:-200],
    ],
)
def test_what_is_no_status_is_refused(text: str) -> None:
    with pytest.raises(NotAStatus):
        read_json(text, {HERE}, 100)


def test_the_text_of_a_version_without_json() -> None:
    """Counts of messages and other states than counts are left out."""
    counts = (LaunchCount(57, 1, (who(2),)), LaunchCount(58, 2))
    assert read_text(TEXT) == RasReport(
        "2.27.7",
        0,
        (UnequalLaunches("27a079b828ff1a75", "AllReduce", counts),),
        (MissingRank("", NcclRank(-1, HERE, 103), "unresponsive"),),
    )


def test_the_text_of_the_first_versions() -> None:
    """They count all kinds of collectives together. A group of several ranks is followed by a line for each."""
    text = (
        TEXT.replace("2.27.7", "2.24.3")
        .replace("AllReduce operation", "collective operation")
        .replace("  2 ranks have launched up to operation 58\n", "  26 ranks have launched up to operation 58\n")
        .replace(
            "  Rank 2 has launched up to operation 57 -- GPU 2 managed by process 102 on node 127.0.0.1\n",
            "  2 ranks have not launched any operations\n"
            "  Rank 2 -- GPU 2 (NVML 6) managed by process 102 on node 127.0.0.1\n"
            "  Rank 1 -- [process information not found]\n",
        )
        .replace("INCOMPLETE\n  Missing communicator data from 1 job", "DEAD\n  1 job")
    )
    report = read_text(text)
    assert report is not None and [one.how for one in report.missing] == ["dead"]
    (unequal,) = report.unequal
    assert unequal.op == "collective"
    assert unequal.counts == (LaunchCount(0, 2, (who(2), NcclRank(1))), LaunchCount(58, 26))


def test_a_text_that_finds_nothing_is_no_report() -> None:
    """It lists no process, so that it may be about another job."""
    assert read_text(HEALTHY) is None
    for text in ("", "HTTP/1.1 400 Bad Request", "[]"):
        with pytest.raises(NotAStatus):
            read_text(text)
