"""One poller for all watchers, and only while there are some."""

import asyncio
from collections.abc import Collection

import pytest
from harness.patience import PATIENCE_S

from shardyard.api import stream
from shardyard.api.stream import EventStream, Hub
from shardyard.service.errors import DatabaseError, DatabaseUnreachable, SchemaTooNew
from shardyard.service.records import Cursor, Tail, TailItem
from shardyard.service.states import State


class Positions:
    """Positions that a test moves, and how often they were asked for."""

    def __init__(self) -> None:
        self.value: dict[str, int] = {}
        self.asked: list[tuple[str, ...]] = []
        self.broken = False

    async def __call__(self, jobs: Collection[str]) -> dict[str, int]:
        self.asked.append(tuple(sorted(jobs)))
        if self.broken:
            self.broken = False
            raise ConnectionError("the database is away")
        return {job: self.value.get(job, 0) for job in jobs}


async def test_only_the_watchers_of_a_job_that_moved_are_rung() -> None:
    positions = Positions()
    hub = Hub(positions, 0.01)
    async with hub.watch("a") as a, hub.watch("b") as b:
        assert await a.wait(1)  # the first look is news
        assert await b.wait(1)
        a.clear()
        b.clear()
        positions.value["a"] = 1
        assert await a.wait(1)
        assert not await b.wait(0.05)


async def test_one_query_for_all_and_none_for_nobody() -> None:
    positions = Positions()
    hub = Hub(positions, 0.01)
    assert not hub.polling
    async with hub.watch("a"), hub.watch("a"), hub.watch("b"):
        assert hub.watched == 3
        await asyncio.sleep(0.05)
        assert set(positions.asked) == {("a", "b")}
    assert hub.watched == 0
    assert not hub.polling
    asked = len(positions.asked)
    await asyncio.sleep(0.05)
    assert len(positions.asked) == asked


async def test_the_poller_outlives_a_database_that_is_away() -> None:
    positions = Positions()
    positions.broken = True
    hub = Hub(positions, 0.01)
    async with hub.watch("a") as watch:
        assert await watch.wait(3)


async def test_news_while_reading_are_not_lost() -> None:
    positions = Positions()
    hub = Hub(positions, 0.01)
    async with hub.watch("a") as watch:
        assert await watch.wait(1)
        watch.clear()
        positions.value["a"] = 1  # a reader that cleared before reading hears of it afterwards
        await asyncio.sleep(0.05)
        assert await watch.wait(0)


async def _sent(stream: EventStream, disconnect: asyncio.Event) -> list[bytes]:
    sent: list[bytes] = []

    async def receive() -> dict[str, str]:
        await disconnect.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.body":
            sent.append(bytes(message["body"]))  # type: ignore[call-overload]

    await stream({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)  # type: ignore[arg-type]
    return sent


async def test_a_stream_tells_everything_and_ends_after_the_final_state() -> None:
    items = [TailItem("step", 1.0, {"step": n, "loss": float("nan")}, Cursor(0, n, 0)) for n in (1, 2)]
    answers = [
        Tail(items[:1], Cursor(0, 1, 0), State.RUNNING, False),
        Tail(items[1:], Cursor(0, 2, 0), State.SUCCEEDED, True),
    ]

    async def read(cursor: Cursor) -> Tail:
        return answers.pop(0)

    hub = Hub(Positions(), 0.01)
    text = b"".join(await _sent(EventStream(hub, "a", read, Cursor()), asyncio.Event())).decode()
    assert text.count("event: step") == 2
    assert 'data: {"step":1,"loss":null,"ts":1.0}\nid: 0.1.0\n' in text
    assert text.index("id: 0.2.0") < text.index("event: end")
    assert hub.watched == 0


async def test_a_stream_outlives_a_database_that_cannot_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_AWAY_S", 0.0)
    item = TailItem("step", 1.0, {"step": 1}, Cursor(0, 1, 0))
    answers: list[Tail | DatabaseError] = [
        DatabaseUnreachable(),
        SchemaTooNew(),
        Tail([item], Cursor(0, 1, 0), State.SUCCEEDED, True),
    ]

    async def read(cursor: Cursor) -> Tail:
        answer = answers.pop(0)
        if isinstance(answer, DatabaseError):
            raise answer
        return answer

    text = b"".join(await _sent(EventStream(Hub(Positions(), 0.01), "a", read, Cursor()), asyncio.Event())).decode()
    assert text.count("event: step") == 1 and text.endswith("id: 0.1.0\n\n") and "event: end" in text


async def test_a_watcher_that_leaves_frees_everything() -> None:
    async def read(cursor: Cursor) -> Tail:
        return Tail([], cursor, State.RUNNING, False)

    hub, gone = Hub(Positions(), 0.01), asyncio.Event()
    watching = asyncio.create_task(_sent(EventStream(hub, "a", read, Cursor()), gone))
    await asyncio.sleep(0.05)
    assert hub.watched == 1
    gone.set()
    await asyncio.wait_for(watching, 2)
    assert hub.watched == 0
    assert not hub.polling


async def test_closing_ends_streams_without_an_end_event() -> None:
    async def read(cursor: Cursor) -> Tail:
        return Tail([], cursor, State.RUNNING, False)

    hub = Hub(Positions(), 0.01)
    watching = asyncio.create_task(_sent(EventStream(hub, "a", read, Cursor()), asyncio.Event()))
    await asyncio.sleep(0.05)
    hub.close()
    sent = await asyncio.wait_for(watching, 2)
    assert b"event: end" not in b"".join(sent)


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
        told = await asyncio.wait_for(asyncio.gather(*watching), PATIENCE_S)
    assert {b"".join(sent) for sent in told} == {b"".join(told[0])}
    assert [b"".join(told[0]).count(f'"step":{n},'.encode()) for n in (1, 2, 3)] == [1, 1, 1]
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
