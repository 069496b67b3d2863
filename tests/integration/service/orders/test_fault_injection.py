"""Asking for faults, over both databases: what is refused leaves nothing behind, and one key is one fault."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from shardyard.service.dispatch.retry import lose_attempt
from shardyard.service.errors import (
    FaultsDisabled,
    IdempotencyConflict,
    InvalidFault,
    JobNotFound,
    JobNotRunning,
    ShardyardError,
)
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.transitions import Cause
from shardyard.service.orders import fault_injection
from shardyard.service.orders.fault_injection import create
from shardyard.service.queries import live_tail
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.fault import FaultRequest
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.spec import CommandSpec
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import orders
from shardyard.service.store.engine import Store
from shardyard.service.store.tables import faults
from shardyard.workers.messages.event import FaultEvent
from shardyard.workers.messages.fault_request import Kind

from ..conftest import Submit
from ..running_job import running, started


def requested(
    kind: Kind, rank: int | None = None, delay_ms: float | None = None, duration_s: float | None = None
) -> FaultRequest:
    return FaultRequest.model_construct(kind=kind, rank=rank, delay_ms=delay_ms, duration_s=duration_s)


KILL = requested("kill-rank", 1)


@pytest.fixture
def harmed(settings: Settings) -> Settings:
    return settings.model_copy(update={"fault_injection": True})


async def reported(store: Store, job: Job) -> list[dict[str, Any]]:
    return [item.data for item in (await live_tail.tail(store, job.id, Cursor())).items if item.kind == "fault"]


async def test_what_cannot_be_injected_is_refused(
    store: Store, settings: Settings, harmed: Settings, submit: Submit
) -> None:
    queued, job = await submit(name="queued"), await running(store, submit)
    with pytest.raises(FaultsDisabled) as disabled:
        await create(store, settings, job.id, KILL, None, "me")
    assert "SHARDYARD_FAULT_INJECTION" in str(disabled.value.remedy)
    cases: list[tuple[str, FaultRequest, type[ShardyardError], str | None]] = [
        ("absent", KILL, JobNotFound, None),
        ("nul\0", KILL, JobNotFound, None),
        (queued.id, KILL, JobNotRunning, "job"),
        (job.id, requested("kill-rank"), InvalidFault, "rank"),
        (job.id, requested("kill-actor", 2), InvalidFault, "rank"),
        (job.id, requested("hang-rank", -1), InvalidFault, "rank"),
        (job.id, requested("kill-supervisor", 0), InvalidFault, "rank"),
        (job.id, requested("kill-rank", 0, delay_ms=5.0), InvalidFault, "delay_ms"),
        (job.id, requested("corrupt-checkpoint", duration_s=5.0), InvalidFault, "duration_s"),
        (job.id, requested("corrupt-checkpoint"), InvalidFault, "kind"),
    ]
    for name, request, kind, field in cases:
        with pytest.raises(kind) as refused:
            await create(store, harmed, name, request, None, "me")
        assert (refused.value.field, bool(refused.value.remedy)) == (field, True), request
    with pytest.raises(JobNotRunning, match=f"{queued.id} is queued") as waits:
        await create(store, harmed, queued.id, KILL, None, "me")
    assert waits.value.remedy == "Try again once it is running."
    async with store.write() as tx:
        assert await orders.open_of(tx, faults, job.id) == []


async def test_a_program_is_refused_what_it_cannot_do_in_its_own_words(
    store: Store, settings: Settings, harmed: Settings
) -> None:
    """It has no steps that could be slower, and saves as it likes."""
    spec = CommandSpec.model_validate({"name": "mine", "command": ["true"], "ranks": 2})
    program, _ = await submitting.submit(store, settings, spec, None, "", "tester")
    await started(store, program)
    for request, said in (
        (requested("corrupt-checkpoint"), "shardyard.checkpoint"),
        (requested("slow-rank", 0), "kill-rank"),
    ):
        with pytest.raises(InvalidFault) as refused:
            await create(store, harmed, program.id, request, None, "me")
        assert refused.value.field == "kind" and said in str(refused.value.remedy)


async def test_one_key_is_one_fault(store: Store, harmed: Settings, submit: Submit) -> None:
    job = await running(store, submit)
    asked = await asyncio.gather(*(create(store, harmed, job.id, KILL, "key", "me") for _ in range(10)))
    assert len({fault.id for fault in asked}) == 1
    assert (asked[0].job, asked[0].attempt, asked[0].actor, asked[0].settled_at) == (job.id, 0, "me", None)
    assert (await create(store, harmed, job.id, KILL, None, "me")).id != asked[0].id
    with pytest.raises(IdempotencyConflict):
        await create(store, harmed, job.id, requested("kill-rank", 0), "key", "me")
    slow = await create(store, harmed, job.name, requested("slow-rank", 0), "slow", "me")
    assert (slow.delay_ms, slow.duration_s) == (fault_injection.DELAY_MS, fault_injection.DURATION_S)
    assert (await create(store, harmed, job.id, requested("slow-rank", 0), "slow", "me")).id == slow.id


async def test_a_fault_is_reported_once_done_or_missed(store: Store, harmed: Settings, submit: Submit) -> None:
    job = await running(store, submit, steps=7)
    injected, missed = [await create(store, harmed, job.id, KILL, None, who) for who in ("me", "you")]
    event = FaultEvent(id=injected.id, fault="kill-rank", done=True, message="it was done", step=3)
    async with store.write() as tx:
        first = await fault_injection.settle(tx, job.id, event, 5.0)
        assert first is not None and (first.fault, first.rank, first.asked_by) == ("kill-rank", 1, "me")
        assert (first.done, first.message, first.step) == (True, "it was done", 3)
        assert await fault_injection.settle(tx, job.id, event, 6.0) is None
    async with store.write() as tx:
        row = await job_rows.by_id(tx, job.id)
        assert row is not None
        await lose_attempt(tx, row, Cause("test", 7.0, "rank_lost"), harmed.rules.backoff)
    [lost] = await reported(store, job)
    assert (lost["id"], lost["done"], lost["asked_by"]) == (missed.id, False, "you")
    async with store.write() as tx:
        assert await fault_injection.settle(tx, job.id, replace(event, id=missed.id), 8.0) is None
    with pytest.raises(JobNotRunning):
        await create(store, harmed, job.id, KILL, None, "me")
