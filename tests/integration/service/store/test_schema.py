import asyncio

import pytest

from shardyard.service.errors import InvalidDatabase
from shardyard.service.store.engine import Store
from shardyard.service.store.schema import differences, upgrade


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
