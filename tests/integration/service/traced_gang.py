"""A gang whose step traces are stored as a dispatcher stores them."""

from typing import Any

from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.queries.live_tail import tail
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.job import Job
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease


class TracedGang:
    """Reports what it is given, as its dispatcher stores it."""

    def __init__(self, store: Store, job: Job, lease: Lease) -> None:
        self.store, self.job, self.lease, self.reported = store, job, lease, 0

    async def emit(self, *said: tuple[str, dict[str, Any]]) -> None:
        batch = [
            {"seq": self.reported + i, "ts": 1000.0 + i, "kind": kind, "data": data}
            for i, (kind, data) in enumerate(said, start=1)
        ]
        for _ in range(2):  # what comes twice is stored once
            await ingest(self.store, self.lease, 1, batch)
        self.reported += len(said)


async def finished_traces(store: Store, job: Job) -> list[dict[str, Any]]:
    items = (await tail(store, job.id, Cursor())).items
    assert "trace" not in {item.kind for item in items}
    return [item.data for item in items if item.kind == "trace_finished"]
