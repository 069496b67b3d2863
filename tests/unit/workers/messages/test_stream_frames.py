"""Frames of a stream: every byte in order, bounded, and an end of both directions where one fails."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.messages import stream_frames
from shardyard.workers.messages.stream_frames import (
    CONTROL,
    DATA,
    MOST_FRAME,
    Stream,
    connected,
    read_control,
    until_ended,
)


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Stream, Stream]]:
    """Both ends of a connection."""
    accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result(Stream(reader, writer))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server, asyncio.timeout(PATIENCE_S):
        one = await connected(*server.sockets[0].getsockname())
        other = await accepted
        yield one, other
        one.abort()
        other.abort()


async def test_frames_arrive_whole_and_in_order_and_long_content_takes_several() -> None:
    content = bytes(range(256)) * 400
    async with pair() as (one, other):
        sending = asyncio.create_task(one.send(DATA, content))
        parts = [await other.read() for _ in range(-(-len(content) // MOST_FRAME))]
        await sending
        assert all(part is not None and part[0] == DATA and len(part[1]) <= MOST_FRAME for part in parts)
        assert b"".join(part[1] for part in parts if part) == content
        await other.control({"exit": 3})
        assert await one.read() == (CONTROL, b'{"exit": 3}')
        one.put(DATA, b"")
        assert await other.read() == (DATA, b"")
        one.close()
        assert await other.read() is None


async def test_a_length_beyond_the_bound_is_refused_before_its_bytes_come() -> None:
    async with pair() as (one, other):
        one._writer.write(struct.pack("!BI", DATA, MOST_FRAME + 1))
        with pytest.raises(ValueError, match="may have"):
            await other.read()


async def test_half_a_frame_is_the_connections_end() -> None:
    async with pair() as (one, other):
        one._writer.write(struct.pack("!BI", DATA, 10) + b"half")
        one.close()
        assert await other.read() is None


async def test_a_connection_with_data_that_its_other_side_does_not_take_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the machine of the other side has vanished with data in flight. Without this the kernel retries for 15 minutes."""
    monkeypatch.setattr(stream_frames, "PEER_S", 0.5)
    async with pair() as (one, _):
        with pytest.raises(OSError, match="timed out"):
            while True:
                await one.send(DATA, bytes(MOST_FRAME))


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b'{"a": 1}', {"a": 1}), (b"[1]", {}), (b"\xff", {}), (b"", {}), (b"null", {}), (b"[" * MOST_FRAME, {})],
    ids=["object", "list", "no text", "nothing", "null", "too deep"],
)
def test_what_is_no_object_is_an_empty_one(content: bytes, expected: dict[str, int]) -> None:
    assert read_control(content) == expected


async def test_both_directions_end_with_the_lasting_one_and_with_a_failure_of_either() -> None:
    ended: list[str] = []

    async def forever(name: str) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(name)

    async def nothing() -> None:
        return

    async def fails() -> None:
        raise ConnectionResetError

    async with asyncio.timeout(PATIENCE_S):
        await until_ended(nothing(), forever("other"))
        await until_ended(fails(), forever("other of a failure"))
        await until_ended(forever("lasting"), fails())
        waiting = asyncio.create_task(until_ended(forever("cancelled"), nothing()))
        _, pending = await asyncio.wait({waiting}, timeout=0.1)
        assert pending
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert ended == ["other", "other of a failure", "lasting", "cancelled"]
