"""The client of NCCL's RAS subsystem against a socket that speaks its protocol."""

import socket
from typing import Any

import pytest
from harness.patience import PATIENCE_S
from harness.ras_server import HERE, TEXT, RasServer, communicator, gone, process, ras_server, status

from shardyard.workers.messages.nccl_report import RasReport
from shardyard.workers.rank import nccl_ras
from shardyard.workers.rank.nccl_ras import ask

WORLD = [process(rank, 100 + rank, AllReduce=58) for rank in range(3)]
OURS = status(communicator("0xa", *WORLD, process(3, 103, AllReduce=57)), communicator("0xb", *WORLD[:2]))
THEIRS = status(communicator("0xc", process(0, 900), process(1, 901)))


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers is not left, however long this process waits for a core; tests of silent ones set their own limit."""
    monkeypatch.setattr(nccl_ras, "GREETING_S", PATIENCE_S)


async def answered(ras: RasServer, pid: int) -> RasReport | None:
    """The report of a server, which answers every connection but its silent ones."""
    return await ask(ras.env, {HERE}, pid, limit_s=PATIENCE_S)


async def test_a_status_as_json() -> None:
    async with ras_server(OURS) as ras:
        report = await answered(ras, 102)
    assert report is not None and (report.version, report.communicators) == ("2.29.1", 2)
    assert [(one.communicator, one.op, one.counts[0].count) for one in report.unequal] == [("0xa", "AllReduce", 57)]
    assert ras.received == [["CLIENT PROTOCOL 2", "TIMEOUT 1", "SET FORMAT json", "VERBOSE STATUS"]]


async def test_a_dead_rank() -> None:
    async with ras_server(status(communicator("0xa", *WORLD, missing=[gone(3, 103, dead=True)]))) as ras:
        report = await answered(ras, 100)
    assert report is not None and [(one.who.pid, one.how) for one in report.missing] == [(103, "dead")]


async def test_a_version_without_json_answers_in_text() -> None:
    async with ras_server(TEXT.encode(), knows_json=False) as ras:
        report = await answered(ras, 100)
    assert report is not None and report.version == "2.27.7" and len(report.unequal) == len(report.missing) == 1


async def test_it_asks_again_until_a_process_of_its_own_job_answers() -> None:
    """Processes of one user share the port: the kernel chooses one for each connection."""
    async with ras_server(THEIRS, THEIRS, OURS) as ras:
        report = await answered(ras, 100)
        assert report is not None and report.communicators == 2 and len(ras.received) == 3
        assert await answered(ras, 999) is None and len(ras.received) == 3 + nccl_ras.ATTEMPTS


async def test_a_stopped_process_that_the_kernel_chooses_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that answers too late is left, too, so that there may be more than two on a busy machine."""
    monkeypatch.setattr(nccl_ras, "GREETING_S", 0.1)
    async with ras_server(OURS, silent=2) as ras:
        assert await answered(ras, 100) is not None and len(ras.received) >= 3


@pytest.mark.parametrize(
    ("answer", "how"),
    [
        (OURS, {"silent": 99}),
        (OURS, {"cuts": True}),
        (b"{" * 5000, {}),
        (b"\xff\x00garbage", {}),
        (b"", {}),
        (OURS[:-100], {}),
        (b"HTTP/1.1 400 Bad Request\r\n", {"knows_json": False}),
        (OURS + b" " * (1 << 20), {}),
        (b"x" * 65536, {"endless": True}),
    ],
    ids=["silent", "cut", "nested", "garbage", "empty", "torn", "other text", "too long", "endless"],
)
async def test_a_failure_is_no_report_within_the_limit(
    answer: bytes, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl_ras, "GREETING_S", 0.02)
    monkeypatch.setattr(nccl_ras, "MOST_BYTES", 1 << 20)
    async with ras_server(answer, **how) as ras:
        assert await ask(ras.env, {HERE}, 100, limit_s=5.0 if how != {"silent": 99} else 0.2) is None
        assert ras.received


async def test_a_status_that_never_ends_in_time_is_no_report() -> None:
    async with ras_server(b" ", endless=True) as ras:
        assert await ask(ras.env, {HERE}, 100, limit_s=0.1) is None


async def test_where_no_process_listens_there_is_no_report() -> None:
    with socket.socket() as free:
        free.bind((HERE, 0))
        address = f"{HERE}:{free.getsockname()[1]}"
        assert await ask({"NCCL_RAS_ADDR": address}, {HERE}, 100) is None
    for strange in ("nonsense", "host:port", f"{HERE}:99999999", ":"):
        assert await ask({"NCCL_RAS_ADDR": strange}, {HERE}, 100) is None


async def test_it_is_not_asked_where_it_is_off() -> None:
    async with ras_server(OURS) as ras:
        assert await ask(ras.env | {"NCCL_RAS_ENABLE": "0"}, {HERE}, 100) is None
        assert ras.received == []
