"""One poller for all watchers, and only while there are some."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from itertools import count

import pytest
from harness.patience import PATIENCE_S

from shardyard.api.http import watch_hub as stream
from shardyard.api.http.watch_hub import EventStream, Hub, Watch
from shardyard.service.database_errors import DatabaseError, DatabaseUnreachable, SchemaTooNew
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.live_tail import Tail, TailItem
from shardyard.service.states import State


class Positions:
    """Positions that a test moves, and how often they were asked for."""

    def __init__(self) -> None:
        self.value: dict[str, int] = {}
        self.asked: list[tuple[str, ...]] = []
        self.broken = False
        self._news = asyncio.Condition()

    async def __call__(self, jobs: Collection[str]) -> dict[str, int]:
        async with self._news:
            self.asked.append(tuple(sorted(jobs)))
            self._news.notify_all()
        if self.broken:
            self.broken = False
            raise ConnectionError("the database is away")
        return {job: self.value.get(job, 0) for job in jobs}

    async def looked(self, times: int = 2) -> None:
        """Until they were asked for so many times from now on: at the second, what the first found has been rung."""
        wanted = len(self.asked) + times
        async with asyncio.timeout(PATIENCE_S), self._news:
            await self._news.wait_for(lambda: len(self.asked) >= wanted)


async def test_only_the_watchers_of_a_job_that_moved_are_rung() -> None:
    positions = Positions()
    hub = Hub(positions, 0.01)
    async with hub.watch("a") as a, hub.watch("b") as b:
        assert await a.wait(PATIENCE_S)  # the first look is news
        assert await b.wait(PATIENCE_S)
        a.clear()
        b.clear()
        positions.value["a"] = 1
        await positions.looked()
        assert await a.wait(0)
        assert not await b.wait(0)


async def test_one_query_for_all_and_none_without_readers() -> None:
    positions = Positions()
    hub = Hub(positions, 0)
    assert not hub.polling
    async with hub.watch("a"), hub.watch("a"), hub.watch("b"):
        assert hub.watched == 3
        await positions.looked()
        assert set(positions.asked) == {("a", "b")}
    assert hub.watched == 0
    assert not hub.polling
    asked = len(positions.asked)
    for _ in range(20):  # a poller that lived would ask at each turn of the loop
        await asyncio.sleep(0)
    assert len(positions.asked) == asked


async def test_the_poller_ends_though_its_query_loses_the_cancellation() -> None:
    """The answer has come in the same moment, or the error of a connection that the driver closed comes instead."""
    asked = asyncio.Event()

    async def loses(jobs: Collection[str]) -> dict[str, int]:
        asked.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        return {}

    before = asyncio.all_tasks()
    async with Hub(loses, 0).watch("a"):
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        (poller,) = asyncio.all_tasks() - before
    assert await asyncio.wait({poller}, timeout=PATIENCE_S) == ({poller}, set())


async def test_the_poller_outlives_a_database_that_is_away() -> None:
    positions = Positions()
    positions.broken = True
    hub = Hub(positions, 0.01)
    async with hub.watch("a") as watch:
        assert await watch.wait(PATIENCE_S)


async def _sent(stream: EventStream, disconnect: asyncio.Event, known: list[bytes] | None = None) -> list[bytes]:
    """What the stream sends until it ends; a list that is given grows meanwhile."""
    sent: list[bytes] = [] if known is None else known

    async def receive() -> dict[str, str]:
        await disconnect.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.body":
            sent.append(bytes(message["body"]))  # type: ignore[call-overload]

    await stream({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)  # type: ignore[arg-type]
    return sent


async def test_a_stream_sends_everything_and_ends_after_the_final_state() -> None:
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


async def test_a_stream_reads_at_once_what_came_while_it_read_and_then_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It clears its bell before it reads: cleared afterwards, news that came meanwhile are lost; never cleared, it never waits."""
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.0)  # it waits for no time
    wait, rung = Watch.wait, list[bool]()

    async def noted(watch: Watch, seconds: float) -> bool:
        rung.append(await wait(watch, seconds))
        return rung[-1]

    monkeypatch.setattr(Watch, "wait", noted)
    positions, read = Positions(), list[Tail]()
    nothing, item = Tail([], Cursor(), State.RUNNING, False), TailItem("step", 1.0, {"step": 1}, Cursor(0, 1, 0))
    answers = [
        nothing,  # from before the step, which the poller sees while this answer is on its way
        Tail([item], Cursor(0, 1, 0), State.RUNNING, False),
        Tail([], Cursor(0, 1, 1), State.RUNNING, False),  # up to date
        Tail([], Cursor(0, 1, 1), State.SUCCEEDED, True),
    ]  # its cursor moves on with each answer: of the same place the hub would give out the read before

    async def slow(cursor: Cursor) -> Tail:
        read.append(answers[len(read)])
        if read[-1] is nothing:
            positions.value["a"] = 1
            await positions.looked()
        return read[-1]

    sent = await _sent(EventStream(Hub(positions, 0), "a", slow, Cursor()), asyncio.Event())
    reported = [word for text in sent for word in ("event: step", "heartbeat", "event: end") if word in text.decode()]
    assert reported[-3:] == ["event: step", "heartbeat", "event: end"]
    assert rung == [True, False], "after the first answer it was rung, and after the third it waited in vain"


async def test_news_that_a_stream_does_not_carry_keep_no_heartbeat_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat comes after the time since the last byte, however often the bell rings meanwhile."""
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.05)
    positions, numbers, sent = Positions(), count(1), list[bytes]()

    async def of_other_streams(cursor: Cursor) -> Tail:
        """News that comes while it is read: the bell has rung before the stream waits."""
        number = positions.value["a"] = next(numbers)
        await positions.looked()
        ends = sum(b"heartbeat" in text for text in sent) == 2
        return Tail([], Cursor(0, 0, number), State.SUCCEEDED if ends else State.RUNNING, ends)

    watching = _sent(EventStream(Hub(positions, 0), "a", of_other_streams, Cursor()), asyncio.Event(), sent)
    await asyncio.wait_for(watching, PATIENCE_S)
    assert [text.split(b"\n")[0] for text in sent[1:3]] == [b": heartbeat"] * 2 and b"event: end" in sent[3]


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

    positions, gone = Positions(), asyncio.Event()
    hub = Hub(positions, 0.01)
    watching = asyncio.create_task(_sent(EventStream(hub, "a", read, Cursor()), gone))
    await positions.looked()
    assert hub.watched == 1
    gone.set()
    await asyncio.wait_for(watching, PATIENCE_S)
    assert hub.watched == 0
    assert not hub.polling


async def test_closing_ends_streams_without_an_end_event() -> None:
    async def read(cursor: Cursor) -> Tail:
        return Tail([], cursor, State.RUNNING, False)

    positions = Positions()
    hub = Hub(positions, 0.01)
    watching = asyncio.create_task(_sent(EventStream(hub, "a", read, Cursor()), asyncio.Event()))
    await positions.looked()
    hub.close()
    sent = await asyncio.wait_for(watching, PATIENCE_S)
    assert b"event: end" not in b"".join(sent)
