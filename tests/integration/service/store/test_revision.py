"""A database of another schema is neither read nor written, at the start and under a process that runs."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness.databases import migrated_sqlite
from harness.patience import PATIENCE_S
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.api.cli.main import run
from shardyard.service.database_errors import (
    DatabaseError,
    SchemaDamaged,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
    SchemaUnknown,
)
from shardyard.service.dispatch.dispatcher import Dispatcher
from shardyard.service.queries import jobs
from shardyard.service.settings import Settings
from shardyard.service.store import revision
from shardyard.service.store.engine import Store, parse, writing_engine
from shardyard.service.store.schema import upgrade

from ...inprocess_cluster import InProcessCluster
from ..conftest import Submit

NEWEST = revision.known_revisions()[-1]
MISFITS: list[tuple[str | None, type[DatabaseError]]] = [
    ("0010", SchemaTooOld),
    ("9999", SchemaTooNew),
    ("1975ea83b712", SchemaUnknown),
    (None, SchemaMissing),
]


@asynccontextmanager
async def unchecked(url: str) -> AsyncIterator[AsyncConnection]:
    """A transaction as another program opens it."""
    engine = writing_engine(parse(url))
    try:
        async with engine.begin() as tx:
            yield tx
    finally:
        await engine.dispose()


async def stamp(url: str, found: str | None) -> None:
    async with unchecked(url) as tx:
        await tx.execute(text("DELETE FROM alembic_version"))
        if found is not None:
            await tx.execute(text("INSERT INTO alembic_version VALUES (:found)"), {"found": found})


async def contents(url: str) -> list[tuple[Any, ...]]:
    """What a wrongly served database would have been given first."""
    async with unchecked(url) as tx:
        rows = [list(await tx.execute(text(f"SELECT * FROM {name}"))) for name in ("jobs", "events", "nodes")]
    return [tuple(row) for table in rows for row in table]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each transaction asks the database for its revision."""
    monkeypatch.setattr(revision, "CHECK_S", 0.0)


@pytest.mark.usefixtures("at_once")
async def test_nothing_is_read_or_written_until_the_schema_fits_again(
    store: Store, database_url: str, submit: Submit, settings: Settings
) -> None:
    job = await submit()
    before = await contents(database_url)
    for found, kind in MISFITS:
        await stamp(database_url, found)
        with pytest.raises(kind) as refused:
            await submit()
        with pytest.raises(kind):
            await jobs.list_jobs(store)
        if kind in (SchemaTooOld, SchemaTooNew):
            assert str(found) in refused.value.message and NEWEST in refused.value.message
        assert "shardyard" in str(refused.value.remedy).lower()
    await stamp(database_url, NEWEST)
    assert await contents(database_url) == before
    assert (await jobs.get_job(store, job.id)).id == job.id
    await submit()


async def test_the_database_is_asked_once_a_second_at_most(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def counted(tx: AsyncConnection) -> str | None:
        asked.append(tx)
        return NEWEST

    monkeypatch.setattr(revision, "stored_revision", counted)
    monkeypatch.setattr(revision, "CHECK_S", 3600.0)
    for _ in range(20):
        await jobs.list_jobs(store)
    assert len(asked) == 1


async def test_an_answer_that_waited_for_a_migration_is_not_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be that of before the migration."""
    asked = []

    async def waited(tx: AsyncConnection) -> str | None:
        asked.append(tx)
        await asyncio.sleep(0.1)
        return NEWEST

    monkeypatch.setattr(revision, "stored_revision", waited)
    monkeypatch.setattr(revision, "CHECK_S", 0.05)
    for _ in range(2):
        await store.check()
    assert len(asked) == 2


async def test_a_column_that_a_migration_has_just_removed_is_no_damage(
    store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revision, "CHECK_S", 3600.0)
    await jobs.list_jobs(store)
    async with unchecked(database_url) as tx:
        await tx.execute(text("ALTER TABLE jobs RENAME COLUMN batch TO lot"))
    with pytest.raises(SchemaDamaged):
        await jobs.list_jobs(store)
    await stamp(database_url, "9999")
    with pytest.raises(SchemaTooNew):
        await jobs.list_jobs(store)


async def test_a_schema_of_none_of_our_revisions_is_not_migrated(database_url: str) -> None:
    for found, kind in (("9999", SchemaTooNew), ("1975ea83b712", SchemaUnknown)):
        await stamp(database_url, found)
        with pytest.raises(kind):
            await upgrade(database_url)
        async with unchecked(database_url) as tx:
            assert (await tx.execute(text("SELECT version_num FROM alembic_version"))).scalars().all() == [found]


@contextmanager
def sqlite_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    monkeypatch.delenv("SHARDYARD_DATABASE_URL", raising=False)
    monkeypatch.setenv("SHARDYARD_DATA_DIR", str(folder))
    yield Settings()


@pytest.mark.parametrize("command", ["api", "dispatcher", "migrate"])
def test_a_process_does_not_start_on_a_newer_schema(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite_settings(tmp_path, monkeypatch) as settings:
        migrated_sqlite(settings.database)
        asyncio.run(stamp(settings.database, "9999"))
        assert run([command]) == 1
        said = capsys.readouterr().err
    assert "9999" in said and NEWEST in said and "Traceback" not in said


@pytest.mark.parametrize("command", ["api", "dispatcher"])
def test_a_process_does_not_start_without_a_database(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite_settings(tmp_path, monkeypatch):
        assert run([command]) == 1
    assert "shardyard migrate" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("at_once")
async def test_a_dispatcher_pauses_while_the_schema_does_not_fit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(data_dir=tmp_path, poll_s=0.01, nodes_s=0.01, stray_gangs_s=0.01, lease_s=0.03)
    migrated_sqlite(settings.database)
    store, cluster = Store(settings.database), _Counting()
    dispatching = asyncio.create_task(Dispatcher(store, settings, cluster).run())
    try:
        await cluster.seen(1)
        await stamp(settings.database, "9999")
        before = await contents(settings.database)
        await cluster.seen(cluster.times + 5)
        assert await contents(settings.database) == before  # seen_at too
        await stamp(settings.database, NEWEST)
        async with asyncio.timeout(PATIENCE_S):
            while await contents(settings.database) == before:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        dispatching.cancel()
        await asyncio.gather(dispatching, return_exceptions=True)
        await store.close()
    failures = [record for record in caplog.records if record.levelname == "ERROR"]
    assert ["schema_too_new" in record.getMessage() and record.exc_info is None for record in failures] == [True]


class _Counting(InProcessCluster):
    """Counts how often its nodes were looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    async def nodes(self) -> list[Any]:
        self.times += 1
        return list(await super().nodes())

    async def seen(self, times: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.times < times:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
