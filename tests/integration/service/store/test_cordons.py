"""A cordon that is requested again is the same one."""

from typing import Any

import pytest
from sqlalchemy.engine import RowMapping

from shardyard.service.store import cordons
from shardyard.service.store.engine import Store

CORDON = {"node": "node-1", "by_hand": True, "actor": "ann", "message": "a fan is broken"}


async def begun(store: Store, seconds: float | None, **changes: Any) -> RowMapping:
    async with store.write() as tx:
        return await cordons.begin(tx, {**CORDON, **changes}, seconds)


async def test_a_request_that_is_repeated_moves_the_end_of_its_cordon(store: Store) -> None:
    first, again = await begun(store, 3600.0), await begun(store, 3600.0)
    assert again["since"] == first["since"] and again["until"] >= first["until"]
    assert (await begun(store, 3630.0))["until"] > again["until"] + 29
    async with store.read() as tx:
        [row] = await cordons.history(tx, 10)
    assert row["since"] == first["since"] and row["ended_at"] is None


async def test_an_open_cordon_that_is_requested_again_stays(store: Store) -> None:
    first = await begun(store, None)
    assert await begun(store, None) == first


@pytest.mark.parametrize(
    ("before", "seconds", "changes"),
    [
        (3600.0, 3800.0, {}),
        (3600.0, 3500.0, {}),
        (3600.0, None, {}),
        (None, 3600.0, {}),
        (None, None, {"actor": "ben"}),
        (None, None, {"message": "a disk is broken"}),
    ],
)
async def test_another_cordon_ends_the_one_in_force(
    before: float | None, seconds: float | None, changes: dict[str, str], store: Store
) -> None:
    first = await begun(store, before)
    later = await begun(store, seconds, **changes)
    async with store.read() as tx:
        newest, oldest = await cordons.history(tx, 10)
    assert (newest, oldest["since"]) == (later, first["since"]) and oldest["ended_at"] is not None
