"""Readers that ask for the same at once share one read."""

import asyncio

from harness.patience import PATIENCE_S

from shardyard.api.http.watch_hub import EventStream, Hub
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.live_tail import Tail, TailItem
from shardyard.service.states import State

from .test_watch_hub import Positions, _sent


async def test_watchers_at_the_same_place_share_one_read() -> None:
    positions, asked = Positions(), list[Cursor]()

    async def read(cursor: Cursor) -> Tail:
        """As many items as the job has steps by now."""
        asked.append(cursor)
        step = positions.value.get("a", 0)
        await asyncio.sleep(0.02)  # all watchers are rung meanwhile
        items = [TailItem("step", 1.0, {"step": n}, Cursor(0, n, 0)) for n in range(cursor.step + 1, step + 1)]
        return Tail(items, items[-1].cursor if items else cursor, State.RUNNING, step == 3)

    positions.value["a"] = 1
    hub = Hub(positions, 0.01)
    async with hub.watch("a") as first:
        assert await first.wait(PATIENCE_S)  # from now on the poller knows the job
        watching = [
            asyncio.create_task(_sent(EventStream(hub, "a", read, Cursor()), asyncio.Event())) for _ in range(50)
        ]
        for step in (2, 3):
            await asyncio.sleep(0.1)
            positions.value["a"] = step
        reported = await asyncio.wait_for(asyncio.gather(*watching), PATIENCE_S)
    assert {b"".join(sent) for sent in reported} == {b"".join(reported[0])}
    assert [b"".join(reported[0]).count(f'"step":{n},'.encode()) for n in (1, 2, 3)] == [1, 1, 1]
    assert len(asked) < 25  # of several hundred


async def test_a_read_from_before_the_news_is_not_shared_after_them() -> None:
    positions, begun, slow_begun, goes_on = Positions(), list[int](), asyncio.Event(), asyncio.Event()

    async def read(cursor: Cursor) -> Tail:
        begun.append(positions.value.get("a", 0))
        if len(begun) == 1:
            slow_begun.set()
            await goes_on.wait()  # slow: the job moves on meanwhile
        return Tail([TailItem("step", 1.0, {"step": begun[-1]}, cursor)], cursor, State.RUNNING, True)

    hub = Hub(positions, 0.01)
    async with hub.watch("a") as watch:
        assert await watch.wait(PATIENCE_S)
        slow = asyncio.create_task(hub.batch("a", Cursor(), None, read))
        await asyncio.wait_for(slow_begun.wait(), PATIENCE_S)
        watch.clear()
        positions.value["a"] = 1
        assert await watch.wait(PATIENCE_S)
        fresh = await hub.batch("a", Cursor(), None, read)
        goes_on.set()
        await slow
    assert begun == [0, 1] and b'"step":1' in fresh.text


async def test_a_read_that_fails_is_forgotten() -> None:
    answers: list[Tail | Exception] = [ConnectionError("away"), Tail([], Cursor(), State.RUNNING, True)]

    async def read(cursor: Cursor) -> Tail:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    hub = Hub(Positions(), 0.01)
    async with hub.watch("a") as watch:
        assert await watch.wait(PATIENCE_S)
        failed = await asyncio.gather(*(hub.batch("a", Cursor(), None, read) for _ in range(3)), return_exceptions=True)
        assert [type(error) for error in failed] == [ConnectionError] * 3
        assert (await hub.batch("a", Cursor(), None, read)).done


async def test_nothing_is_kept_of_a_job_without_watchers() -> None:
    positions, begun = Positions(), list[Cursor]()
    positions.value["a"] = 1

    async def read(cursor: Cursor) -> Tail:
        begun.append(cursor)
        return Tail([TailItem("step", 1.0, {"step": 1}, cursor)], cursor, State.RUNNING, True)

    hub = Hub(positions, 0.01)
    async with hub.watch("b") as other:
        assert await other.wait(PATIENCE_S)
        for _ in range(2):
            async with hub.watch("a") as watch:
                assert await watch.wait(PATIENCE_S)
                await hub.batch("a", Cursor(), None, read)
                await hub.batch("a", Cursor(), None, read)
    assert len(begun) == 2
