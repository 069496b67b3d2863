import asyncio
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from shardyard.api.cli.main import run
from shardyard.service.errors import InvalidDatabase
from shardyard.service.store.engine import Store
from shardyard.service.store.revision import known_revisions, stored_revision
from shardyard.service.store.schema import differences, upgrade

from .test_migrations import downgraded
from .test_revision import unchecked


async def test_the_migrations_make_exactly_the_tables_in_code(store: Store) -> None:
    assert await differences(store) == []


async def test_migrating_again_and_at_once_is_harmless(empty_url: str) -> None:
    await asyncio.gather(*(upgrade(empty_url) for _ in range(8)))
    await upgrade(empty_url)
    store = Store(empty_url)
    try:
        assert await differences(store) == []
    finally:
        await store.close()


@pytest.mark.parametrize("url", ["mysql://root@localhost/jobs", "postgresql://root@localhost/jobs", "no url"])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(InvalidDatabase):
        Store(url)


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A port at which `up` cannot listen, so that it ends once the database is ready."""
    monkeypatch.setenv("SHARDYARD_DATA_DIR", str(tmp_path / "data"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield str(server.getsockname()[1])


async def _back(url: str, revision: str) -> None:
    async with unchecked(url) as tx:
        await tx.run_sync(partial(downgraded, revision))


async def _found(url: str) -> str | None:
    async with unchecked(url) as tx:
        return await stored_revision(tx)


def test_up_migrates_a_file_of_its_own_and_no_database_that_others_may_use(
    database_url: str, taken: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    *_, earlier, newest = known_revisions()
    asyncio.run(_back(database_url, earlier))
    monkeypatch.setenv("SHARDYARD_DATABASE_URL", database_url)
    assert run(["up", "--port", taken]) == 1
    said = capsys.readouterr().err
    if database_url.startswith("sqlite"):
        assert "port_taken" in said and asyncio.run(_found(database_url)) == newest
    else:
        assert "schema_too_old" in said and "shardyard migrate" in said
        assert asyncio.run(_found(database_url)) == earlier


def test_up_makes_the_schema_of_an_empty_database(
    empty_url: str, taken: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHARDYARD_DATABASE_URL", empty_url)
    assert run(["up", "--port", taken]) == 1
    assert "port_taken" in capsys.readouterr().err
    assert asyncio.run(_found(empty_url)) == known_revisions()[-1]
