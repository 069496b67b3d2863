"""A process that vanishes within a transaction of PostgreSQL holds up others only shortly: they end with an error of the store."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest
from harness.patience import PATIENCE_S
from harness.postgres import Postgres
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.service.database_errors import DatabaseBusy
from shardyard.service.store import leases, postgresql
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from ..conftest import Submit
from .test_revision import unchecked

pytestmark = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)

#: Locks a job's row as another process of the service does, and waits within the transaction.
HOLD = """
import asyncio, sys
from shardyard.service.store import jobs, postgresql
from shardyard.service.store.engine import Store

async def hold(url, job, idle):
    postgresql.LIMITS = postgresql.LIMITS | {"idle_in_transaction_session_timeout": idle}
    async with Store(url).write() as tx:
        print(await jobs.lock(tx, job) is not None, flush=True)
        await asyncio.sleep(3600)

asyncio.run(hold(*sys.argv[1:]))
"""


@contextmanager
def stopped_holder(url: str, job: str, idle: str) -> Iterator[None]:
    """A process that has locked the job's row and does nothing any more, though its connection stays open."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, url, job, idle], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"True\n"
        process.send_signal(signal.SIGSTOP)
        yield
    finally:
        process.kill()
        process.communicate()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = Store(url)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets other limits for stores that are opened from now on."""
    return lambda **limits: monkeypatch.setattr(postgresql, "LIMITS", postgresql.LIMITS | limits)


async def leased(store: Store, submit: Submit) -> tuple[str, str]:
    """A job and the token of its lease."""
    job = (await submit()).id
    async with store.write() as tx:
        assert await leases.take(tx, Lease(job, "token", "me"), 600.0)
    return job, "token"


async def test_a_renewal_that_a_vanished_process_holds_up_ends(
    store: Store, database_url: str, submit: Submit, limit: Callable[..., None]
) -> None:
    job, token = await leased(store, submit)
    limit(lock_timeout="300ms")
    with stopped_holder(database_url, job, idle="0"):
        async with asyncio.timeout(PATIENCE_S), opened(database_url) as other:
            with pytest.raises(DatabaseBusy) as refused:
                async with other.write() as tx:
                    await leases.renew(tx, [token], 600.0)
    assert "lock timeout" in refused.value.detail


async def test_the_server_takes_the_locks_of_a_transaction_that_does_nothing(
    store: Store, database_url: str, submit: Submit, limit: Callable[..., None]
) -> None:
    job, token = await leased(store, submit)
    limit(lock_timeout="0")
    with stopped_holder(database_url, job, idle="300ms"):
        async with asyncio.timeout(PATIENCE_S), opened(database_url) as other, other.write() as tx:
            assert await leases.renew(tx, [token], 600.0) == {token}


async def test_a_transaction_that_did_nothing_for_too_long_ends_with_the_error_of_the_store(
    database_url: str, postgres: Postgres, limit: Callable[..., None]
) -> None:
    limit(idle_in_transaction_session_timeout="200ms")
    async with opened(database_url) as store:
        with pytest.raises(DatabaseBusy) as refused:
            async with store.write() as tx:
                pid = (await tx.execute(text("SELECT pg_backend_pid()"))).scalar_one()
                await asyncio.wait_for(asyncio.to_thread(_ended, postgres, pid), PATIENCE_S)
                await tx.execute(text("SELECT 1"))
        assert "idle-in-transaction" in refused.value.detail
        await store.check()


def _ended(postgres: Postgres, pid: int) -> None:
    with psycopg.connect(postgres.uri, autocommit=True) as server:
        while server.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone():
            server.execute("SELECT pg_sleep(0.05)")


async def shown(tx: AsyncConnection, *names: str) -> list[str]:
    return [(await tx.execute(text(f"SHOW {name}"))).scalar_one() for name in names]


async def parameters(tx: AsyncConnection) -> dict[str, Any]:
    driver = (await tx.get_raw_connection()).driver_connection
    assert driver is not None
    return dict(driver.info.get_parameters())


async def test_every_transaction_has_the_limits_and_every_connection_the_keepalives(store: Store) -> None:
    for transaction in (store.read(), store.write(), store.search(60)):
        async with transaction as tx:
            assert await shown(tx, *postgresql.LIMITS) == ["20s", "1min"]
            given = await parameters(tx)
    expected = {"keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3"}
    expected |= {"tcp_user_timeout": "30000", "connect_timeout": "10"}
    assert expected.items() <= given.items()


async def test_the_server_is_asked_to_probe_clients(store: Store) -> None:
    """On a socket of the file system the settings have no effect and read as 0."""
    sent: list[str] = []
    engine = store._engines.writing.sync_engine
    event.listen(engine, "before_cursor_execute", lambda *given: sent.append(given[2]))
    async with store.write():
        pass
    for name, value in (("idle", 10), ("interval", 5), ("count", 3)):
        assert f"set_config('tcp_keepalives_{name}', '{value}', true)" in sent[0]


async def test_what_the_url_says_wins(database_url: str) -> None:
    more = "&connect_timeout=3&keepalives_idle=7&options=-c%20lock_timeout%3D7s%20-c%20deadlock_timeout%3D2s"
    async with opened(database_url + more) as store, store.write() as tx:
        assert await shown(tx, *postgresql.LIMITS, "deadlock_timeout") == ["7s", "1min", "2s"]
        given = await parameters(tx)
    assert (given["connect_timeout"], given["keepalives_idle"], given["keepalives_count"]) == ("3", "7", "3")


async def test_a_migration_waits_for_locks_as_long_as_it_takes(database_url: str) -> None:
    async with unchecked(database_url) as tx:
        assert await shown(tx, *postgresql.LIMITS) == ["0", "0"]
