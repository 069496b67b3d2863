"""Each way in which a SQLite file cannot serve has its own error, as it really fails; it passes when its cause has."""

import asyncio
import os
import sqlite3
import subprocess
import threading
from pathlib import Path

import aiosqlite
import pytest
from harness.databases import migrated_sqlite
from harness.disk import SmallDisk
from harness.patience import PATIENCE_S

from shardyard.service.database_errors import (
    DatabaseBusy,
    DatabaseCorrupt,
    DatabaseFull,
    DatabaseMissing,
    DatabaseReadOnly,
)
from shardyard.service.errors import InvalidDatabase
from shardyard.service.store import nodes, sqlite
from shardyard.service.store.engine import Store
from shardyard.service.store.schema import upgrade

from .test_driver_errors import NODE, _content, _replace, opened, read, refused, url_of, write
from .test_log_search import ENDLESS


async def test_a_missing_file_is_neither_served_nor_made(file: Path) -> None:
    async with opened(url_of(file)) as store:
        await refused(store, DatabaseMissing)
        assert not file.parent.exists()
        await upgrade(url_of(file))
        await read(store)
        await write(store)


async def test_a_damaged_page(file: Path) -> None:
    migrated_sqlite(url_of(file))
    content = _content(file)
    _replace(file, content[:4096] + os.urandom(len(content) - 4096))
    async with opened(url_of(file)) as store:
        await refused(store, DatabaseCorrupt)


async def test_a_full_file_can_be_read_and_goes_on_when_there_is_room(file: Path) -> None:
    migrated_sqlite(url_of(file))
    async with opened(url_of(file)) as store:
        async with store.write() as tx:
            pages = (await tx.exec_driver_sql("PRAGMA page_count")).scalar_one()
            await tx.exec_driver_sql(f"PRAGMA max_page_count={pages}")

        async def much(store: Store) -> None:
            async with store.write() as tx:
                await nodes.replace(tx, [{**NODE, "host": "h" * 100_000, "memory_bytes": 1, "seen_at": 0.0}])

        await refused(store, DatabaseFull, much)
        assert isinstance(store.unwritable, DatabaseFull)
        await read(store)
        assert isinstance(store.unwritable, DatabaseFull)
        async with store.write() as tx:
            await tx.exec_driver_sql("PRAGMA max_page_count=1000000")
        await much(store)
        assert store.unwritable is None


async def test_a_disk_that_is_full_or_read_only(small_disk: SmallDisk) -> None:
    url = migrated_sqlite(url_of(small_disk.folder / "shardyard.db"))
    small_disk.fill()
    async with opened(url) as store:
        await refused(store, DatabaseFull, write)
        small_disk.free()
        await write(store)
    _remount(small_disk, "ro")
    async with opened(url) as store:
        await refused(store, DatabaseReadOnly)
    _remount(small_disk, "rw")
    async with opened(url) as store:
        await write(store)


def _remount(disk: SmallDisk, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk.folder)], check=True, timeout=20)


async def test_a_locked_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardyard.service.store.sqlite.BUSY_S", 0)
    migrated_sqlite(url_of(file))
    async with opened(url_of(file)) as first, opened(url_of(file)) as second:
        async with first.write():
            await refused(second, DatabaseBusy, write)
        await write(second)


async def test_a_statement_that_begins_after_it_was_interrupted_is_interrupted_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection's thread comes to it late, as on a busy machine."""
    monkeypatch.setattr(sqlite, "_PATIENCE_S", 0.01)
    gate, interrupted = threading.Event(), asyncio.Event()
    async with aiosqlite.connect(":memory:") as driver:
        interrupt = driver.interrupt

        async def noted() -> None:
            await interrupt()
            interrupted.set()

        monkeypatch.setattr(driver, "interrupt", noted)
        late = asyncio.gather(
            driver._execute(gate.wait), driver.execute_fetchall(ENDLESS["sqlite"]), return_exceptions=True
        )
        await asyncio.sleep(0)
        ending = asyncio.create_task(sqlite._end_reading(driver))
        await interrupted.wait()
        gate.set()
        await asyncio.wait_for(ending, PATIENCE_S)
        _, ended = await late
    assert isinstance(ended, sqlite3.OperationalError) and "interrupted" in str(ended)


@pytest.mark.parametrize(
    "url", ["sqlite+aiosqlite://", "sqlite+aiosqlite:///:memory:", "sqlite+aiosqlite:///file:x?uri=true"]
)
def test_a_database_that_would_be_forgotten_is_refused(url: str) -> None:
    with pytest.raises(InvalidDatabase, match="file"):
        Store(url)
