"""Buckets of steps are stored with each batch, on both databases."""

from typing import Any

import pytest
from sqlalchemy import event

from shardyard.service.dispatch.admission import admit
from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.queries import curves
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.store import leases
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.store.rollups import WIDTHS
from shardyard.service.store.tables import rollups as rollups_table

from ..gang_events import AT_ONCE, event_batch, state, step
from ..queries.test_curves import bounds


async def test_a_batch_makes_its_buckets_by_statements_that_were_built_before(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    """To build them took longer than all else in a batch."""
    _, lease = placed
    said = event_batch(state("starting"), state("running"), *(step(n, 1.0) for n in range(1, 5)))
    await ingest(store, lease, 1, said[:4])
    executed: list[Any] = []

    def note(_connection: Any, statement: Any, *_: Any) -> None:
        if getattr(statement, "table", None) is rollups_table:
            executed.append(statement)

    event.listen(store._engines.writing.sync_engine, "before_execute", note)
    await ingest(store, lease, 1, said[4:5])
    await ingest(store, lease, 1, said[5:])
    assert len(executed) == 2 * len(WIDTHS)
    assert all(first is second for first, second in zip(executed, executed[len(WIDTHS) :], strict=False))


async def test_a_step_that_is_trained_again_is_gone_from_its_buckets(
    store: Store, settings: Settings, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    await ingest(
        store, lease, 1, event_batch(state("starting"), state("running"), *(step(n, 9.0) for n in range(1, 101)))
    )
    await ingest(store, lease, 1, event_batch(state("failed", "rank_lost"), first=103), AT_ONCE)
    async with store.write() as tx:
        await leases.release(tx, [lease.token])
    (second,) = (await admit(store, settings, "a", None)).leases
    await ingest(
        store, second, 2, event_batch(state("starting"), state("running"), *(step(n, 1.0) for n in range(41, 101)))
    )
    read = await curves.curves(store, job.id, ["loss"], buckets=4)
    assert read.width == 64
    assert bounds(read) == [(1, 1.0, 9.0), (65, 1.0, 1.0)]
    assert read.series["loss"].mean == [pytest.approx((40 * 9 + 24) / 64, rel=1e-5), 1.0]
