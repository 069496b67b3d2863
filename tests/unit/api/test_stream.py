"""One poller for all watchers, and only while there are some."""

import asyncio
from collections.abc import Collection

from shardyard.api.stream import EventStream, Hub
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
