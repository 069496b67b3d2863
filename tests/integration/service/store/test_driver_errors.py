"""Each way in which a database cannot serve has its own error, as it really fails; it passes when its cause has. SQLite: `test_sqlite`."""

import contextlib
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from harness.databases import migrated_sqlite
from harness.disk import SmallDisk
from harness.postgres import Postgres
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError

from shardyard.service.database_errors import (
    DatabaseBusy,
    DatabaseCorrupt,
    DatabaseDenied,
    DatabaseError,
    DatabaseFull,
    DatabaseMissing,
    DatabaseReadOnly,
    DatabaseUnreachable,
    SchemaDamaged,
    SchemaMissing,
)
from shardyard.service.errors import InvalidDatabase
from shardyard.service.queries import jobs
from shardyard.service.store import nodes
from shardyard.service.store.engine import Store
from shardyard.service.store.schema import upgrade

NODE = {"id": "n1", "host": "here", "alive": True, "cpu": 1.0, "gpu": 0.0, "cpu_used": 0.0, "gpu_used": 0.0}


async def read(store: Store) -> None:
    await jobs.list_jobs(store)


async def write(store: Store) -> None:
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])


async def refused(store: Store, kind: type[DatabaseError], *ways: Callable[[Store], Awaitable[None]]) -> None:
    """Each of the ways fails as `kind` itself, with a message and a remedy that name no secret."""
    for way in ways or (read, write):
        with pytest.raises(DatabaseError) as error:
            await way(store)
        assert type(error.value) is kind, repr(error.value.__cause__)
        assert error.value.message and error.value.remedy
        assert "secret" not in error.value.message + error.value.detail


@contextlib.asynccontextmanager
async def opened(url: Any) -> Any:
    store = Store(url if isinstance(url, str) else url.render_as_string(hide_password=False))
    try:
        yield store
    finally:
        await store.close()


def url_of(file: Path) -> str:
    return f"sqlite+aiosqlite:///{file}".replace("%", "%25").replace("?", "%3F").replace("#", "%23")


async def test_what_is_no_database(file: Path) -> None:
    migrated_sqlite(url_of(file))
    good = _content(file)
    async with opened(url_of(file)) as store:
        await write(store)
        _replace(file, b"secret" * 2000)
        await refused(store, DatabaseCorrupt)
        with pytest.raises(DatabaseCorrupt):
            await upgrade(url_of(file))
        _replace(file, b"")
        await refused(store, SchemaMissing)
        _replace(file, None)
        await refused(store, DatabaseMissing)
        os.mkdir(file)  # noqa: PTH102
        await refused(store, DatabaseDenied)
        os.rmdir(file)  # noqa: PTH106
        _replace(file, good)
        await read(store)
        await write(store)


def _content(file: Path) -> bytes:
    return file.read_bytes()


def _replace(file: Path, content: bytes | None) -> None:
    """Another file at the same path, as when a backup is put back."""
    for part in file.parent.glob(f"{file.name}*"):
        part.unlink()
    if content is not None:
        file.write_bytes(content)


async def test_a_table_that_was_dropped(store: Store) -> None:
    async with store.write() as tx:
        await tx.execute(text("DROP TABLE cordons"))
        await tx.execute(text("DROP TABLE nodes"))

    async def nodes_of(store: Store) -> None:
        async with store.read() as tx:
            await nodes.all_nodes(tx)

    await refused(store, SchemaDamaged, nodes_of, write)


async def test_a_database_without_tables(empty_url: str) -> None:
    if empty_url.startswith("sqlite"):
        _replace(Path(str(make_url(empty_url).database)), b"")
    async with opened(empty_url) as store:
        await refused(store, SchemaMissing)


async def test_a_statement_at_fault_is_no_fault_of_the_database(store: Store) -> None:
    with pytest.raises(IntegrityError):
        async with store.write() as tx:
            await tx.execute(text("INSERT INTO nodes (id) VALUES ('n1')"))


@pytest.fixture
def role(postgres: Postgres) -> Iterator[str]:
    """A role that must show a password, which is `secret`."""
    rules = Path(_asked(postgres, "SHOW hba_file"))
    before = rules.read_text()
    _execute(postgres, "CREATE ROLE weak LOGIN PASSWORD 'secret'")
    rules.write_text(f"local all weak scram-sha-256\n{before}")
    _execute(postgres, "SELECT pg_reload_conf()")
    yield "weak"
    rules.write_text(before)
    _execute(postgres, "SELECT pg_reload_conf()")
    _execute(postgres, "DROP OWNED BY weak")
    _execute(postgres, "DROP ROLE weak")


def _execute(postgres: Postgres, *statements: str) -> None:
    with psycopg.connect(postgres.uri, autocommit=True) as server:
        for statement in statements:
            server.execute(statement)  # type: ignore[call-overload]


def _asked(postgres: Postgres, question: str) -> str:
    with psycopg.connect(postgres.uri, autocommit=True) as server:
        [found] = server.execute(question).fetchone() or [""]  # type: ignore[call-overload]
    return str(found)


@pytest.fixture
async def migrated(postgres: Postgres) -> Any:
    """The URL of a database of PostgreSQL with the newest schema."""
    url = postgres.new_database()
    yield make_url(url)
    postgres.drop(url)


async def test_postgresql_refuses(migrated: Any, role: str, postgres: Postgres) -> None:
    weak = migrated.set(username=role, password="secret")
    cases: list[tuple[Any, type[DatabaseError]]] = [
        (migrated.set(host="127.0.0.1", port=1, query={}), DatabaseUnreachable),
        (migrated.set(host="no-such-host.invalid", query={}), DatabaseUnreachable),
        (migrated.set(query={"host": "/nowhere"}), DatabaseUnreachable),
        (weak.set(password="not secret"), DatabaseDenied),
        (migrated.set(username="role-of-no-such-name"), DatabaseDenied),
        (weak, DatabaseDenied),  # of its tables
        (migrated.set(database="no_such_database"), DatabaseMissing),
    ]
    for url, kind in cases:
        async with opened(url) as store:
            await refused(store, kind)
    with pytest.raises(DatabaseMissing, match="exist"):
        await upgrade(cases[-1][0].render_as_string(hide_password=False))
    _execute(postgres, f"ALTER ROLE {role} CONNECTION LIMIT 0")
    async with opened(weak) as store:
        await refused(store, DatabaseBusy)


async def test_postgresql_that_may_only_be_read(migrated: Any, postgres: Postgres) -> None:
    _execute(postgres, f"ALTER DATABASE {migrated.database} SET default_transaction_read_only = on")
    async with opened(migrated) as store:
        await refused(store, DatabaseReadOnly, write)
        await read(store)
        assert isinstance(store.unwritable, DatabaseReadOnly)
        # As after a failover, where older connections are to the server that was the primary.
        _execute(postgres, f"ALTER DATABASE {migrated.database} RESET default_transaction_read_only")
        await refused(store, DatabaseReadOnly, write)
        await write(store)
        assert store.unwritable is None


async def test_a_connection_that_breaks(migrated: Any, postgres: Postgres) -> None:
    async with opened(migrated) as store:

        async def broken(store: Store) -> None:
            async with store.write() as tx:
                pid = (await tx.execute(text("SELECT pg_backend_pid()"))).scalar_one()
                _execute(postgres, f"SELECT pg_terminate_backend({pid})")
                await nodes.all_nodes(tx)

        await refused(store, DatabaseUnreachable, broken)
        await write(store)


def _place_of(postgres: Postgres, disk: SmallDisk) -> Path:
    """A folder on the disk that the server's user owns."""
    server = Path(_asked(postgres, "SHOW data_directory")).stat()
    place = disk.folder / "space"
    place.mkdir(mode=0o700)
    for folder in (disk.folder, place):
        os.chown(folder, server.st_uid, server.st_gid)
    return place


async def test_a_full_disk_of_postgresql(migrated: Any, postgres: Postgres, small_disk: SmallDisk) -> None:
    place = _place_of(postgres, small_disk)
    _execute(postgres, f"CREATE TABLESPACE small LOCATION '{place}'")
    try:
        async with opened(migrated) as store:
            async with store.write() as tx:
                await tx.execute(text("ALTER TABLE nodes SET TABLESPACE small"))
            small_disk.fill()

            async def much(store: Store) -> None:
                for _ in range(3):
                    async with store.write() as tx:
                        rows = [
                            {**NODE, "id": str(n), "host": os.urandom(2000).hex(), "memory_bytes": 1, "seen_at": 0.0}
                            for n in range(50)
                        ]
                        await nodes.replace(tx, rows)

            await refused(store, DatabaseFull, much)
            await read(store)
            small_disk.free()
            await much(store)
            async with store.write() as tx:
                await tx.execute(text("ALTER TABLE nodes SET TABLESPACE pg_default"))
    finally:
        _execute(postgres, "CHECKPOINT", "DROP TABLESPACE small")
        shutil.rmtree(place, ignore_errors=True)


def test_postgresql_without_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidDatabase, match="psycopg") as refusal:
        Store("postgresql+psycopg://someone@host/name")
    assert "shardyard[postgres]" in str(refusal.value.remedy)
