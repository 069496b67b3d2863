"""Asking for commands beside ranks, over both databases: what is refused leaves nothing behind, and one key is one command."""

import asyncio

import pytest

from shardyard.service.dispatch.retry import lose_attempt
from shardyard.service.errors import IdempotencyConflict, JobNotFound, JobNotRunning, ShardyardError
from shardyard.service.jobs.transitions import Cause
from shardyard.service.orders import rank_commands
from shardyard.service.orders.rank_commands import create, page
from shardyard.service.profile_errors import CommandTooLong, ExecDisabled, ExecOpen, ProfileRankUnknown
from shardyard.service.schemas.exec import ExecRequest
from shardyard.service.settings import Settings
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.engine import Store
from shardyard.workers.messages.event import ExecEvent

from ..conftest import Submit
from ..running_job import running

LIST = ExecRequest(rank=1, command=["ls", "-l"])


@pytest.fixture
def allowed(settings: Settings) -> Settings:
    return settings.model_copy(update={"exec": True})


async def test_what_may_not_run_is_refused(store: Store, settings: Settings, allowed: Settings, submit: Submit) -> None:
    queued, job = await submit(name="queued"), await running(store, submit)
    with pytest.raises(ExecDisabled) as disabled:
        await create(store, settings, job.id, LIST, None, "me")
    assert "SHARDYARD_EXEC" in str(disabled.value.remedy)
    long = ExecRequest(rank=1, command=["x" * 8000] * 5)
    cases: list[tuple[str, ExecRequest, type[ShardyardError], str | None]] = [
        ("absent", LIST, JobNotFound, None),
        (queued.id, LIST, JobNotRunning, "job"),
        (job.id, ExecRequest(rank=2, command=["ls"]), ProfileRankUnknown, "rank"),
        (job.id, long, CommandTooLong, "command"),
    ]
    for name, request, kind, field in cases:
        with pytest.raises(kind) as refused:
            await create(store, allowed, name, request, None, "me")
        assert refused.value.field == field
    assert (await page(store, job.id)).items == []


async def test_one_key_is_one_command_and_a_rank_has_one_at_a_time(
    store: Store, allowed: Settings, submit: Submit
) -> None:
    job = await running(store, submit)
    asked = await asyncio.gather(*(create(store, allowed, job.id, LIST, "key", "me") for _ in range(5)))
    assert len({one.id for one in asked}) == 1 and asked[0].command == ["ls", "-l"]
    with pytest.raises(IdempotencyConflict):
        await create(store, allowed, job.id, ExecRequest(rank=0, command=["ls"]), "key", "me")
    with pytest.raises(ExecOpen):
        await create(store, allowed, job.id, LIST, None, "me")
    await create(store, allowed, job.id, ExecRequest(rank=0, command=["ls"]), None, "me")


async def test_its_end_is_reported_once(store: Store, allowed: Settings, submit: Submit) -> None:
    job = await running(store, submit)
    ran = await create(store, allowed, job.id, LIST, None, "me")
    left = await create(store, allowed, job.id, ExecRequest(rank=0, command=["ls"]), None, "you")
    event = ExecEvent(id=ran.id, rank=1, status=2, message="exit status 2")
    async with store.write() as tx:
        first = await rank_commands.settle(tx, job.id, event, 5.0)
        assert first is not None and (first.command, first.asked_by, first.status) == (("ls", "-l"), "me", 2)
        assert await rank_commands.settle(tx, job.id, event, 6.0) is None
        row = await job_rows.by_id(tx, job.id)
        assert row is not None
        await lose_attempt(tx, row, Cause("test", 7.0, "rank_lost"), allowed.rules.backoff)
    newest, oldest = (await page(store, job.id)).items
    assert (oldest.id, oldest.status, oldest.message) == (ran.id, 2, "exit status 2")
    assert (newest.id, newest.status, newest.message) == (left.id, None, "the attempt ended before the command")
