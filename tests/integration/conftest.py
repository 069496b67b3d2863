"""Databases for the integration tests: SQLite files, and databases of the session's PostgreSQL server."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from harness.databases import migrated_sqlite
from harness.postgres import Postgres

from shardyard.service.store.engine import Store


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of each kind with the newest schema and nothing in it; a test that asks for it runs once on both."""
    if request.param == "sqlite":
        yield migrated_sqlite(f"sqlite+aiosqlite:///{tmp_path}/shardyard.db")
        return
    server: Postgres = request.getfixturevalue("postgres")
    url = server.new_database()
    yield url
    server.drop(url)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    """An open store with the newest schema, on each kind of database."""
    opened = Store(database_url)
    yield opened
    await opened.close()
