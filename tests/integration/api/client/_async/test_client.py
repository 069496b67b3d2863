"""The asynchronous client against a served API: the sync one's surface and promises."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.patience import PATIENCE_S

from shardyard.api.client import ApiError, AsyncClient, Event, Unreachable, WaitTimeout

from ...conftest import SPEC, Gang, Plane


@pytest.fixture
async def aclient(plane: Plane) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(plane.url, patience_s=PATIENCE_S) as opened:
        yield opened


async def in_thread(work: Any, *arguments: Any) -> Any:
    """What the server's thread does, without holding up this loop."""
    return await asyncio.to_thread(work, *arguments)


async def until(true: Any, seconds: float = PATIENCE_S) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not become true in time"
        await asyncio.sleep(0.02)


async def test_submit_read_list_cancel(aclient: AsyncClient, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    first = await aclient.submit(tmp_path / "spec.yaml", idempotency_key="k")
    assert (await aclient.submit(SPEC, idempotency_key="k")).id == first.id
    assert [job.id for job in (await aclient.jobs(label={"team": "search"})).items] == [first.id]
    assert (await aclient.job("tiny")).id == first.id
    assert (await first.cancel()).state == "cancelled"
    assert (await first.refresh()).state == "cancelled"
    assert await aclient.alive()
    assert (await aclient.readiness()).status == "degraded"  # no dispatcher has seen a cluster
    assert (await aclient.job_schema())["title"] == "JobSpec"
    with pytest.raises(ApiError) as refusal:
        await aclient.submit({**SPEC, "polcy": 1})
    assert refusal.value.errors[0].field == "polcy"


async def test_nothing_listens() -> None:
    async with AsyncClient("http://127.0.0.1:1") as client:
        with pytest.raises(Unreachable):
            await client.jobs()
        assert not await client.alive()


async def test_a_restarted_control_plane_is_borne_without_gap_or_double(plane: Plane, aclient: AsyncClient) -> None:
    job = await aclient.submit(SPEC)
    gang = await in_thread(Gang, plane, job.id)
    events: list[Event] = []

    def steps() -> list[int]:
        return [event.data["step"] for event in events if event.kind == "step"]

    async def follow() -> None:
        async for event in job.events():
            events.append(event)

    following = asyncio.create_task(follow())
    await in_thread(gang.steps, 1, 5)
    await until(lambda: len(steps()) == 5)
    await in_thread(plane.stop)
    await in_thread(plane.start)
    await in_thread(gang.steps, 6, 9)
    await until(lambda: len(steps()) == 9)
    await in_thread(plane.stop)
    await in_thread(plane.start)
    await in_thread(gang.steps, 10, 20)
    await in_thread(gang.succeed)
    await asyncio.wait_for(following, PATIENCE_S)
    assert steps() == list(range(1, 21))
    assert len({event.cursor for event in events}) == len(events)
    ended = await job.wait(PATIENCE_S)
    assert ended.state == "succeeded"
    resumed = [event async for event in ended.events(events[7].cursor)]
    assert [event.cursor for event in resumed] == [event.cursor for event in events[8:]]


async def test_many_streams_in_one_loop(plane: Plane, aclient: AsyncClient) -> None:
    jobs = [await aclient.submit({**SPEC, "name": f"n{number}"}) for number in range(5)]
    streams = [asyncio.create_task(anext(job.events())) for job in jobs]
    first = await asyncio.wait_for(asyncio.gather(*streams), PATIENCE_S)
    assert [event.data["state"] for event in first] == ["queued"] * 5


async def test_a_reader_that_leaves_is_forgotten(plane: Plane, aclient: AsyncClient) -> None:
    job = await aclient.submit(SPEC)
    async with aclosing(job.events()) as stream:
        await anext(stream)
        await until(lambda: plane.app.state.context.hub.watched == 1)
    await until(lambda: plane.app.state.context.hub.watched == 0)


async def test_wait_logs_metrics_and_story(plane: Plane, aclient: AsyncClient) -> None:
    job = await aclient.submit(SPEC)
    with pytest.raises(WaitTimeout):
        await job.wait(0.1)
    gang = await in_thread(Gang, plane, job.id)
    await in_thread(gang.steps, 1, 20)
    await in_thread(gang.log, 0, 1, "a", "b")
    await in_thread(gang.succeed)
    ended = await job.wait(PATIENCE_S)
    assert [point.step for point in (await ended.metrics()).points] == list(range(1, 21))
    assert [line.text for line in (await ended.logs(tail=1)).lines] == ["b"]
    pages = [page async for page in aclient.log_pages(job.id, follow=True)]
    assert [line.text for page in pages for line in page.lines] == ["a", "b"]
    assert {event.kind for event in await aclient.past_events(ended)} == {"state", "summary"}
    assert (await ended.incidents()).items == []
    assert (await ended.checkpoints()).items == []
    assert [node.host for node in await aclient.nodes()] == ["here"]


@pytest.mark.parametrize("read", ["events", "log_pages", "search_pages"])
async def test_a_position_goes_with_the_jobs_id(plane: Plane, aclient: AsyncClient, read: str) -> None:
    """A name may mean another job by now, whose records have other positions."""
    job = await aclient.submit(SPEC)
    await in_thread(Gang(plane, job.id).log, 0, 1, "a", "b")
    after: Any = "1.0.0" if read == "events" else 1
    async with aclosing(getattr(aclient, read)(job.name, after=after)) as refused:
        with pytest.raises(ApiError, match="is not the id of a job"):
            await anext(refused)
    for given in ({"job": job.name}, {"job": job.id, "after": after}):
        async with aclosing(getattr(aclient, read)(**given)) as found:
            assert await anext(found)


async def test_patience_ends(plane: Plane) -> None:
    async with AsyncClient(plane.url, patience_s=0.5) as client:
        job = await client.submit(SPEC)
        async with aclosing(job.events()) as stream:
            await anext(stream)
            await in_thread(plane.stop)
            with pytest.raises(Unreachable):
                await anext(stream)
