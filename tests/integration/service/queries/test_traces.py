"""Summaries and spans of step traces, on both databases."""

import pytest
from harness.trace_events import crowded_trace_part, trace_events, trace_part

from shardyard.service.errors import (
    TraceNotFound,
)
from shardyard.service.orders import step_traces
from shardyard.service.queries import traces as trace_reading
from shardyard.service.queries.traces import Window
from shardyard.service.store.engine import Store
from shardyard.service.store.tables import attempts, jobs
from shardyard.workers.messages.trace_request import traced_ranks

from ..traced_gang import TracedGang


async def test_the_summary_names_the_slowest_rank_and_the_bubble(store: Store, gang: TracedGang) -> None:
    one = await step_traces.create(store, gang.job.id, 3, None, "me")
    *parts, end = trace_events(one.id)
    for kind, event in list(parts):
        if event["rank"] == 1:
            slowed = trace_part(one.id, 1, event["step"], slower_ms=50)
            parts[parts.index((kind, event))] = (kind, slowed)
    await gang.emit(*parts, end)
    found = await trace_reading.summary(store, gang.job.id, one.id)
    assert [step.step for step in found.steps] == [5, 6, 7] and found.step is None
    assert (found.slowest_rank, found.slower_by_s) == (1, pytest.approx(0.05))
    assert (found.bubble_measured, found.bubble_simulated) == (0.205, 0.2)
    for rank in found.ranks:
        assert sum(rank.sums.values()) == pytest.approx(rank.seconds)
        assert rank.busy_s + rank.wait_s == pytest.approx(rank.seconds)
        assert (rank.pipeline, rank.place) == (0, rank.rank)
    of_one = await trace_reading.summary(store, gang.job.id, one.id, step=6)
    assert of_one.step == 6 and of_one.ranks[1].sums["other"] == pytest.approx(0.05)
    with pytest.raises(TraceNotFound) as refused:
        await trace_reading.summary(store, gang.job.id, one.id, step=8)
    assert (refused.value.field, refused.value.remedy) == ("step", "Its steps: 5, 6, 7.")


async def test_a_trace_is_of_the_layout_that_its_ranks_had(store: Store, gang: TracedGang) -> None:
    """Four ranks in two pipelines of two stages; while they save for the change of layout, the job has two ranks already."""
    async with store.write() as tx:
        await tx.execute(attempts.update().values(devices=4))
    one = await step_traces.create(store, gang.job.id, 1, None, "me")
    stages = {rank: ("trace", trace_part(one.id, rank, 5)) for rank in range(4)}
    for rank, (_, part) in stages.items():
        part["pipeline"]["place"] = rank // 2
    async with store.write() as tx:
        await tx.execute(jobs.update().values(world_size=2, state="resharding"))
    assert one.parts_wanted == 4
    await gang.emit(*stages.values())
    found = await trace_reading.summary(store, gang.job.id, one.id)
    assert [(rank.pipeline, rank.place) for rank in found.ranks] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert found.trace.parts == found.trace.parts_wanted == 4


async def test_ranks_of_a_pipeline_of_more_ranks_than_are_traced_are_in_one(store: Store, gang: TracedGang) -> None:
    """64 of 65 × 64 ranks are traced, none of them at the end of its pipeline."""
    layout = {"pipeline": 65, "data": 64}
    async with store.write() as tx:
        await tx.execute(attempts.update().values(devices=65 * 64))
        spec = {**gang.job.spec, "train": {**gang.job.spec["train"], "layout": layout}}
        await tx.execute(jobs.update().values(world_size=65 * 64, spec=spec))
    one = await step_traces.create(store, gang.job.id, 1, None, "me")
    traced = traced_ranks(65 * 64)
    stages = {rank: ("trace", trace_part(one.id, rank, 5)) for rank in traced}
    for rank, (_, part) in stages.items():
        part["pipeline"]["place"] = rank // 64
    await gang.emit(*stages.values())
    found = await trace_reading.summary(store, gang.job.id, one.id)
    assert [(rank.pipeline, rank.place) for rank in found.ranks] == [(rank % 64, rank // 64) for rank in traced]
    assert max(rank.place or 0 for rank in found.ranks) < 64
    spans = await trace_reading.spans(store, gang.job.id, one.id)
    assert [rank.pipeline for rank in spans.ranks] == [rank % 64 for rank in traced]


async def test_spans_are_those_that_were_reported_on_one_clock(store: Store, gang: TracedGang) -> None:
    one = await step_traces.create(store, gang.job.id, 1, None, "me")
    await gang.emit(*trace_events(one.id, steps=[5]))
    found = await trace_reading.spans(store, gang.job.id, one.id)
    assert (found.step, found.dropped, [rank.began_us for rank in found.ranks]) == (5, 0, [0, 1])
    event = trace_part(one.id, 1, 5)
    shown = [
        [lane, found.categories[category], found.names[name], start - 1, length, microbatch, stage]
        for lane, category, name, start, length, microbatch, stage in found.ranks[1].spans
    ]
    assert shown == sorted(event["spans"], key=lambda span: span[3])
    kinds = {"F": "forward", "B": "backward"}
    ideal = [
        [found.categories[kind], *place, start - 1, length] for kind, *place, start, length in found.ranks[1].ideal
    ]
    assert ideal == [[kinds[kind], *rest] for kind, *rest in event["pipeline"]["ideal"]]
    only = await trace_reading.spans(store, gang.job.id, one.id, 5, [1], Window(1_000, 2_000))
    assert [rank.rank for rank in only.ranks] == [1]
    assert all(start <= 2_000 and start + length >= 1_000 for _, _, _, start, length, _, _ in only.ranks[0].spans)


async def test_of_too_many_spans_the_shortest_are_left_out_and_counted(store: Store, gang: TracedGang) -> None:
    one = await step_traces.create(store, gang.job.id, 1, None, "me")
    await gang.emit(*(("trace", crowded_trace_part(one.id, rank, 5) | {"dropped": 7}) for rank in range(4)))
    found = await trace_reading.spans(store, gang.job.id, one.id)
    kept = [span for rank in found.ranks for span in rank.spans]
    assert len(kept) > 3000 and len(kept) + found.dropped == 16_000
    shortest = min(span[4] for span in kept)
    reported = [round(span[4]) for rank in range(4) for span in crowded_trace_part(one.id, rank, 5)["spans"]]
    assert sum(length > shortest for length in reported) <= len(kept)
    few = await trace_reading.spans(store, gang.job.id, one.id, window=Window(0, 1_000))
    assert few.dropped == 0 and all(len(rank.spans) > 90 for rank in few.ranks)
    assert found.unrecorded == few.unrecorded == 28 and few.ranks[0].unrecorded == 7
