"""A PostgreSQL database is migrated while processes of an earlier version use it."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest
from harness.patience import PATIENCE_S
from harness.postgres import Postgres
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.service.database_errors import SchemaTooNew
from shardyard.service.store import revision, schema
from shardyard.service.store.engine import Store
from shardyard.service.store.schema import upgrade

from .test_migrations import downgraded
from .test_revision import unchecked

EARLIER = "0041"
JOBS = ("job-a", "job-b")
_JOB = """
INSERT INTO jobs (id, name, state, labels, spec, layout, batch, world_size, tensor, wanted_device, max_restarts, actor, created_at, steps)
VALUES (:job, 'n', 'running', '{}', '{}', '', '', 1, 1, 'cpu', 3, 'x', 0, 1)
"""
_TRACE = (
    "INSERT INTO traces (job_id, id, attempt, steps, state, actor, asked_at) VALUES (:job, 't', 1, 1, 'done', 'x', 0)"
)
_MIGRATED = "SELECT count(*) FROM information_schema.columns WHERE table_name = 'jobs' AND column_name = 'duration_s'"
#: A statement of the migration takes several times as long as PostgreSQL waits before it looks for a deadlock.
_SLOW = [
    "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.4); RETURN NEW; END $$",
    "CREATE TRIGGER slow BEFORE UPDATE ON traces FOR EACH ROW EXECUTE FUNCTION slow()",
    "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = 100', current_database()); END $$",
]

#: Limits of a database that are shorter than the migration's waits.
_LIMITED = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT s.name FROM pg_settings s WHERE s.name IN
        ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
    LOOP EXECUTE format('ALTER DATABASE %I SET %I = 500', current_database(), name); END LOOP;
END $$
"""
_WAITING = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE relation = 'jobs'::regclass AND NOT granted)"


@pytest.fixture
def earlier_url(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database of an earlier version. Stores are those of that version."""

    def refuse_misfit(found: str | None) -> None:
        if found != EARLIER:
            raise SchemaTooNew

    monkeypatch.setattr(revision, "refuse_misfit", refuse_misfit)
    monkeypatch.setattr(revision, "CHECK_S", schema.SETTLE_S / 10)
    url = postgres.new_database()
    yield url
    postgres.drop(url)


async def store_batch(tx: AsyncConnection, job: str) -> None:
    """Locks what `ingest` locks, in its order."""
    await tx.execute(text("SELECT log_pos FROM jobs WHERE id = :job FOR UPDATE"), {"job": job})
    await tx.execute(text("SELECT cursor FROM attempts WHERE job_id = :job"), {"job": job})
    await tx.execute(text("UPDATE jobs SET log_pos = log_pos + 1 WHERE id = :job"), {"job": job})
    assert not (await tx.execute(text(_MIGRATED))).scalar_one()


async def store_batches(store: Store, job: str, stored: list[str], begun: asyncio.Event) -> None:
    """Until the schema is another."""
    with suppress(SchemaTooNew):
        while True:
            async with store.write() as tx:
                await store_batch(tx, job)
            stored.append(job)
            if set(stored) == set(JOBS):
                begun.set()


async def store_late(store: Store, stored: list[str]) -> None:
    """In a transaction that passes the check as the migration begins, and uses a table some time later."""
    with suppress(SchemaTooNew):
        async with store.write() as tx:
            await asyncio.sleep(schema.SETTLE_S / 2)
            await store_batch(tx, JOBS[0])
        stored.append(JOBS[0])


async def read(store: Store) -> None:
    """Until the schema is another: transactions that read tables in another order than the migration changes them."""
    with suppress(SchemaTooNew):
        while True:
            async with store.read() as tx:
                await tx.execute(text("SELECT id FROM traces"))
                await tx.execute(text("SELECT id FROM jobs"))


async def test_a_migration_waits_for_running_transactions_and_later_ones_wait_for_it(earlier_url: str) -> None:
    """None of them ends by a deadlock, none writes into the new schema, and what was stored until then is kept."""
    async with unchecked(earlier_url) as tx:
        await tx.run_sync(partial(downgraded, EARLIER))
        for job in JOBS:
            await tx.execute(text(_JOB), {"job": job})
            await tx.execute(text(_TRACE), {"job": job})
        for statement in _SLOW:
            await tx.execute(text(statement))
    late, *stores = opened = [Store(earlier_url) for _ in range(3)]
    stored: list[str] = []
    begun = asyncio.Event()
    try:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            for store in stores:
                tasks.create_task(read(store))
                for job in JOBS:
                    tasks.create_task(store_batches(store, job, stored, begun))
            await begun.wait()
            await late.check()
            tasks.create_task(store_late(late, stored))
            await upgrade(earlier_url)
    finally:
        for store in opened:
            await store.close()
    async with unchecked(earlier_url) as tx:
        counts = (await tx.execute(text("SELECT id, log_pos FROM jobs"))).all()
        version = (await tx.execute(text("SELECT version_num FROM alembic_version"))).scalar_one()
    assert {row.id: row.log_pos for row in counts} == {job: stored.count(job) for job in JOBS}
    assert version == revision.known_revisions()[-1]


async def test_no_limit_of_the_database_or_of_the_url_ends_a_migration(
    earlier_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer_s = 0.7  # than each of them
    monkeypatch.setattr(schema, "SETTLE_S", longer_s)
    async with unchecked(earlier_url) as tx:
        await tx.run_sync(partial(downgraded, EARLIER))
        await tx.execute(text(_LIMITED))
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks, unchecked(earlier_url) as tx:
        await tx.execute(text("LOCK TABLE jobs"))
        tasks.create_task(upgrade(f"{earlier_url}&options=-c%20lock_timeout%3D500ms"))
        while not (await tx.execute(text(_WAITING))).scalar_one():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(longer_s)
    async with unchecked(earlier_url) as tx:
        assert (await tx.execute(text(_MIGRATED))).scalar_one()
