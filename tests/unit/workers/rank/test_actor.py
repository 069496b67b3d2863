import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Iterator

import pytest
from harness.virtual_time import VirtualLoop, run_virtually

from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.rank.actor import MAX_LINE, Lines, Logs, Rank, Trainer
from shardyard.workers.supervisor.policies.hang import Examination, hung


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        with contextlib.suppress(OSError):  # the test may have closed it
            os.close(fd)


async def test_lines_come_whole_and_the_last_without_its_end(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    lines = Lines(reader)
    os.write(writer, b"one\ntw")
    assert await lines.read() == [b"one"]
    waiting = asyncio.create_task(lines.read())
    await asyncio.sleep(0.01)
    os.write(writer, b"o\nrest")
    assert await waiting == [b"two"]
    os.close(writer)
    assert await lines.read() == [b"rest"]
    assert await lines.read() is None


async def test_a_line_without_end_is_cut(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    lines = Lines(reader, longest=10)
    os.write(writer, b"x" * 25)
    assert await lines.read() == [b"x" * 25]


def test_log_lines_are_numbered_over_both_streams_and_made_text() -> None:
    spool = Spool(1 << 20)
    logs = Logs(3, spool)
    logs.add("stdout", [b"caf\xc3\xa9", b"nul\0 bad\xff\r"])
    logs.add("stderr", [b"y" * (MAX_LINE + 1)])
    first, second = (event["data"] for event in spool.take(0))
    assert first == {"rank": 3, "stream": "stdout", "first": 1, "lines": ["café", "nul\ufffd bad\ufffd"]}
    assert (second["first"], [len(line) for line in second["lines"]]) == (3, [MAX_LINE, 1])


def test_lines_are_dropped_while_the_spool_is_half_full_and_then_counted() -> None:
    spool = Spool(2000)
    logs = Logs(0, spool)
    while not spool.half_full:
        logs.add("stdout", [b"x" * 100])
    logs.add("stdout", [b"lost"] * 7)
    spool.take(spool.last)
    logs.add("stdout", [b"kept"])
    notice, kept = (event["data"] for event in spool.take(0))
    assert "7 lines dropped" in notice["lines"][0]
    assert kept["lines"] == ["kept"] and kept["first"] == notice["first"] + 1


async def test_a_trainer_that_its_fork_server_is_still_to_fork_is_no_hang() -> None:
    """On a node that is new to a gang the import may take longer than `policy.hang_timeout_s`."""
    fork, server = socket.socketpair()
    control, _ = socket.socketpair()
    with server, _, contextlib.closing(Trainer(fork, control, *os.pipe(), bell=socket.socket())) as trainer:
        rank = Rank("cpu")
        rank.trainer = trainer
        found = Examination.of(0, await rank.examine())
        assert not hung([found], quick_s=0.0, slow_s=600.0)
        assert hung([found], quick_s=0.0, slow_s=0.0), "not for ever"
        trainer.pid = os.getpid()  # it lives and says nothing
        assert hung([Examination.of(0, await rank.examine())], quick_s=600.0, slow_s=600.0)


@pytest.mark.parametrize(
    ("every_s", "wakes_per_s", "answers_per_s"),
    [(0.25, 6.0, 1.5), (0.02, 2.0, 1.8)],
    ids=["four steps a second", "fifty steps a second"],
)
def test_a_rank_wakes_rarely_for_its_steps_and_tells_each_in_time(
    every_s: float, wakes_per_s: float, answers_per_s: float
) -> None:
    seconds = 30.0

    async def train(loop: VirtualLoop) -> tuple[float, float, float]:
        """Wake-ups and answers per second, and the oldest step at its answer, in seconds."""
        fork, _server = socket.socketpair()
        control, trainer_end = socket.socketpair()
        with (
            _server,
            trainer_end,
            contextlib.closing(Trainer(fork, control, *os.pipe(), bell=socket.socket())) as trainer,
        ):
            rank = Rank("cpu")
            rank.trainer = trainer
            reading = loop.create_task(rank._read_messages(trainer))
            answers, oldest, trained = 0, 0.0, loop.create_task(_train(loop, trainer_end, every_s, seconds))
            after = 0
            while not trained.done():
                events = await rank.pull(after, 1.0)
                after, answers = events[-1]["seq"], answers + 1
                oldest = max(oldest, loop.time() - min(event["ts"] for event in events))
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            return (loop.wakes - trained.result()) / seconds, answers / seconds, oldest

    wakes, answers, oldest = run_virtually(train)
    assert wakes <= wakes_per_s and answers <= answers_per_s
    assert oldest <= 0.7


async def _train(loop: VirtualLoop, control: socket.socket, every_s: float, seconds: float) -> int:
    """Tell steps as a trainer does; returns how often it woke."""
    for step in range(1, int(seconds / every_s) + 1):
        await asyncio.sleep(every_s)
        message = {"kind": "step", "data": {"step": step}, "ts": loop.time()}
        control.send(json.dumps(message).encode() + b"\n")
    return step
