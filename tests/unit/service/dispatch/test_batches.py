"""Every job is read once, however many pages they take, and a step is repeated until nothing is left."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.service.dispatch import batches
from shardyard.service.store.engine import Store


class Transactions:
    """In the place of a store: counts its transactions, of which one is open at a time."""

    def __init__(self) -> None:
        self.begun = 0
        self.is_open = False

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Any]:
        assert not self.is_open
        self.begun, self.is_open = self.begun + 1, True
        yield self
        self.is_open = False

    read = write


@pytest.mark.parametrize("count", [0, 1, 3, 4, 6, 7])
async def test_every_job_is_read_once_between_transactions(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(batches, "JOBS", 3)
    jobs, store = [f"job-{number}" for number in range(count)], Transactions()

    async def find(_: AsyncConnection, *, after: str, limit: int) -> Sequence[str]:
        return [job for job in jobs if job > after][:limit]

    found = []
    async for job in batches.job_ids(cast(Store, store), find):
        assert not store.is_open
        found.append(job)
    assert found == jobs and store.begun == count // 3 + 1


async def test_a_step_is_repeated_until_nothing_is_left() -> None:
    store, left = Transactions(), [True, True, False]

    async def step(_: AsyncConnection) -> bool:
        return left.pop(0)

    await batches.repeat(cast(Store, store), step)
    assert not left and store.begun == 3
