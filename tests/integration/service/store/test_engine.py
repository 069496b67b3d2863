"""Reads, writes and searches have connections of their own: none waits for another kind, and each sees what was committed before it."""

import asyncio

import pytest
from harness.patience import PATIENCE_S
from harness.postgres import Postgres
from sqlalchemy import text

from shardyard.service.database_errors import DatabaseReadOnly
from shardyard.service.store import nodes
from shardyard.service.store.engine import Store

NODE = {"host": "here", "alive": True, "cpu": 1.0, "gpu": 0.0, "cpu_used": 0.0, "gpu_used": 0.0}


async def put(store: Store, name: str) -> None:
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "id": name, "memory_bytes": 1, "seen_at": 0.0}])


async def names(store: Store) -> list[str]:
    async with store.read() as tx:
        return [row["id"] for row in await nodes.all_nodes(tx)]


async def test_no_writer_waits_for_a_read_and_each_sees_what_was_committed_before_it(store: Store) -> None:
    await put(store, "a")
    async with asyncio.timeout(PATIENCE_S), store.read() as tx:
        assert [row["id"] for row in await nodes.all_nodes(tx)] == ["a"]
        await put(store, "b")
        assert await names(store) == ["b"]
        async with store.search(60) as searching:
            assert [row["id"] for row in await nodes.all_nodes(searching)] == ["b"]


async def test_one_read_is_of_one_moment(store: Store) -> None:
    """A job's cursor and its curve, which are read one after the other, belong together."""
    await put(store, "a")
    async with asyncio.timeout(PATIENCE_S), store.read() as tx:
        assert [row["id"] for row in await nodes.all_nodes(tx)] == ["a"]
        await put(store, "b")
        assert [row["id"] for row in await nodes.all_nodes(tx)] == ["a"]
    assert await names(store) == ["b"]


async def test_a_write_is_seen_once_it_is_committed_and_never_before(store: Store) -> None:
    with pytest.raises(RuntimeError):
        async with asyncio.timeout(PATIENCE_S), store.write() as tx:
            await nodes.replace(tx, [{**NODE, "id": "a", "memory_bytes": 1, "seen_at": 0.0}])
            assert await names(store) == []
            raise RuntimeError
    assert await names(store) == []
    for number in range(20):
        await put(store, f"n{number}")
        assert await names(store) == [f"n{number}"]


async def test_a_cancelled_write_leaves_nothing_and_holds_nothing(store: Store) -> None:
    begun = asyncio.Event()

    async def write() -> None:
        async with store.write() as tx:
            await nodes.replace(tx, [{**NODE, "id": "a", "memory_bytes": 1, "seen_at": 0.0}])
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(write())
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with asyncio.timeout(PATIENCE_S):
        await put(store, "b")
    assert await names(store) == ["b"]


async def test_what_only_reads_cannot_write_on_sqlite(store: Store) -> None:
    if store.dialect == "sqlite":
        with pytest.raises(DatabaseReadOnly):
            async with store.read() as tx:
                await tx.execute(text("DELETE FROM nodes"))


async def test_a_write_that_is_given_up_within_a_statement_holds_no_lock(store: Store) -> None:
    """As when its task is cancelled: a cursor with more rows to give is still referred to."""
    if store.dialect != "sqlite":
        return
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "id": name, "memory_bytes": 1, "seen_at": 0.0} for name in ("a", "b")])
    with pytest.raises(RuntimeError):
        async with store.write() as tx:
            driver = (await tx.get_raw_connection()).driver_connection
            assert driver is not None
            cursor = await driver.execute("UPDATE nodes SET cpu = 2 RETURNING id")
            await tx.invalidate()
            raise RuntimeError
    async with asyncio.timeout(PATIENCE_S):
        await put(store, "c")
    assert await names(store) == ["c"]
    del cursor


async def test_a_connection_that_a_cancelled_task_left_in_a_query_is_replaced(postgres: Postgres) -> None:
    """It fails the pool's ping as a misuse of the driver, which SQLAlchemy does not take for a lost connection."""
    url = postgres.new_database()
    store = Store(url)
    try:
        async with store._engines.reading.connect() as tx:
            driver = (await tx.get_raw_connection()).driver_connection
        assert driver is not None
        driver.pgconn.send_query(b"SELECT 1")
        async with store._engines.reading.connect() as tx:
            assert (await tx.execute(text("SELECT 2"))).scalar_one() == 2
    finally:
        await store.close()
        postgres.drop(url)
