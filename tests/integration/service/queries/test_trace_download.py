"""A trace as a file for Perfetto."""

import gzip
import json

import pytest
from harness.trace_events import trace_events

from shardyard.service.errors import (
    TraceNotFound,
)
from shardyard.service.orders import step_traces
from shardyard.service.queries import trace_download
from shardyard.service.store.engine import Store

from ..traced_gang import TracedGang


async def test_the_file_for_perfetto_holds_every_span_within_its_step(store: Store, gang: TracedGang) -> None:
    one = await step_traces.create(store, gang.job.id, 3, None, "me")
    await gang.emit(*trace_events(one.id))
    pieces = [piece async for piece in await trace_download.document(store, gang.job.name, one.id)]
    document = json.loads(gzip.decompress(b"".join(pieces)))
    slices = [slice_ for slice_ in document["traceEvents"] if slice_["ph"] == "X"]
    reported = [event for kind, event in trace_events(one.id) if kind == "trace"]
    ideal = sum(len(event["pipeline"]["ideal"]) for event in reported)
    assert len(slices) == sum(len(event["spans"]) + 1 for event in reported) + ideal
    steps = {
        (slice_["pid"], slice_["name"]): (slice_["ts"], slice_["ts"] + slice_["dur"])
        for slice_ in slices
        if slice_["cat"] == "step"
    }
    assert len(steps) == 6
    for slice_ in slices:
        mine = [bounds for (rank, _), bounds in steps.items() if rank == slice_["pid"]]
        begin, end = slice_["ts"], slice_["ts"] + slice_["dur"]
        assert any(low - 0.01 <= begin and end <= high + 0.01 for low, high in mine) or slice_["name"][:1].isdigit()
    with pytest.raises(TraceNotFound):
        await trace_download.document(store, gang.job.id, "nothing")
