import asyncio
import contextlib
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.rank import log_pipe
from shardyard.workers.rank.log_lines import MAX_LINE
from shardyard.workers.rank.log_pipe import Lines, Logs


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


async def test_a_long_message_is_copied_once(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    lines, part = Lines(reader), b"x" * (32 << 10)
    for _ in range(64):
        os.write(writer, part)
        assert lines.read_now() == []
    tracemalloc.start()
    try:
        os.write(writer, part)
        assert lines.read_now() == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(part), "what was read before stays where it is"
    os.write(writer, b"y\nnext\nth")
    assert lines.read_now() == [part * 65 + b"y", b"next"] and lines.rest == b"th"


async def test_what_is_in_the_pipe_is_read_at_once(pipe: tuple[int, int]) -> None:
    """Also while another reader waits for more."""
    reader, writer = pipe
    lines = Lines(reader)
    waiting = asyncio.create_task(lines.read())
    await asyncio.sleep(0)
    os.write(writer, b"one\ntwo\nth")
    assert (lines.read_now(), lines.rest) == ([b"one", b"two"], b"th")
    assert (lines.read_now(), lines.rest) == ([], b"th")
    os.write(writer, b"ree\n")
    assert await waiting == [b"three"]
    os.close(writer)
    assert lines.read_now() == []
    assert await lines.read() is None


async def test_a_line_without_end_is_cut(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    lines = Lines(reader, longest=10)
    os.write(writer, b"x" * 25)
    assert await lines.read() == [b"x" * 25]


async def test_a_carriage_return_ends_a_line_of_a_log_and_not_of_messages(pipe: tuple[int, int]) -> None:
    for longest, wanted in ((MAX_LINE, [[b"10%"], [b"end"]]), (None, [[], [b"10%\rend"]])):
        lines = Lines(pipe[0], longest)
        os.write(pipe[1], b"10%\r")
        found = [await lines.read()]
        os.write(pipe[1], b"end\n")
        assert [*found, await lines.read()] == wanted


async def test_a_writer_faster_than_its_reader_does_not_stop_what_else_the_actor_does() -> None:
    """Its heartbeats, pulls and stops."""
    with Path("/dev/zero").open("rb") as always_full:  # noqa: ASYNC230 (it never blocks)
        lines = Lines(always_full.fileno(), longest=MAX_LINE)

        async def read() -> None:
            for _ in range(20):
                await lines.read()

        reading, turns = asyncio.create_task(read()), 0
        while not reading.done():
            turns += 1
            await asyncio.sleep(0)
    assert turns >= 20


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


def test_lines_of_a_source_that_waits_have_room_of_their_own_and_are_never_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_pipe, "PUT_BYTES", 10)
    spool = Spool(2000)
    logs = Logs(0, spool)
    while not spool.half_full:
        logs.add("stdout", [b"x" * 100])
    assert logs.has_room, "whatever the rank prints"
    for text in (b"first", b"second"):
        logs.put("exec", [text])
    assert not logs.has_room
    spool.take(spool.last - 1)
    assert logs.has_room, "one of them is taken"
    [last] = spool.take(0)
    assert last["data"]["lines"] == ["second"]
    while not spool.full:
        spool.add("step", {"text": "x" * 100})
    spool.take(spool.acknowledged + 1)
    while not spool.full:
        spool.add("step", {"text": "x" * 100})
    assert not logs.has_room, "the spool has no room"
