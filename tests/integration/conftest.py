"""Databases for the integration tests: SQLite files, and databases of the session's PostgreSQL server."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from harness.postgres import Postgres

from shardyard.service.store.engine import Store
from shardyard.service.store.schema import upgrade


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind; whoever asks for it runs once on both."""
    if request.param == "sqlite":
        yield f"sqlite+aiosqlite:///{tmp_path}/shardyard.db"
        return
    server: Postgres = request.getfixturevalue("postgres")
    url = server.new_database()
    yield url
    server.drop(url)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    """An open store with the newest schema, on each kind of database."""
    await upgrade(database_url)
    opened = Store(database_url)
    yield opened
    await opened.close()
