"""Jobs are found, listed by page and filtered, over both databases."""

from collections.abc import Callable
from typing import Any

import pytest

from shardyard.service.errors import (
    InvalidCursor,
    JobNotFound,
)
from shardyard.service.jobs import submit as submitting
from shardyard.service.queries import jobs
from shardyard.service.spec import JobSpec
from shardyard.service.states import State
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import steps as step_rows
from shardyard.service.store.engine import Store

from ..conftest import Submit

Spec = Callable[..., JobSpec]


async def test_a_job_is_found_by_id_and_by_its_newest_name(store: Store, submit: Submit) -> None:
    old, new = await submit(name="twin"), await submit(name="twin")
    assert (await jobs.get_job(store, old.id)).id == old.id
    assert (await jobs.get_job(store, "twin")).id == new.id
    assert (new.spec["train"]["steps"], new.actor) == (100, "tester")
    assert (new.layout, new.batch) == ("data 1", "global batch 4 = 1 data × 1 micro-batches × 4 sequences")
    for unknown in ("", "absent", "nul\0"):
        with pytest.raises(JobNotFound):
            await jobs.get_job(store, unknown)


async def test_pages_neither_repeat_nor_skip_while_jobs_are_added(store: Store, submit: Submit) -> None:
    made = [(await submit(name=f"job-{i}")).id for i in range(7)]
    seen, cursor = [], None
    while True:
        page = await jobs.list_jobs(store, cursor=cursor, limit=3)
        seen += [job.id for job in page.items]
        await submit(name="later")
        if page.next is None:
            break
        cursor = page.next
    assert seen == sorted(made, reverse=True)
    for wrong in ("", "job-", "' OR 1=1", "job-" + "\0" * 26):
        with pytest.raises(InvalidCursor):
            await jobs.list_jobs(store, cursor=wrong)


async def test_filters_hold_together(store: Store, submit: Submit) -> None:
    a = await submit(name="vision", labels={"team": "a", "run": "1"})
    b = await submit(name="vision", labels={"team": "b"})
    c = await submit(name="text_50%".replace("_", "-").replace("%", ""), labels={"team": "a"})
    await submitting.cancel(store, c.id, "tester")

    async def found(**filters: Any) -> set[str]:
        return {job.id for job in (await jobs.list_jobs(store, job_rows.Filter(**filters))).items}

    assert await found(name="vision") == {a.id, b.id}
    assert await found(labels={"team": "a"}) == {a.id, c.id}
    assert await found(labels={"team": "a", "run": "1"}) == {a.id}
    assert await found(labels={"team": "a"}, state=State.QUEUED) == {a.id}
    assert await found(text="VISI") == {a.id, b.id}
    assert await found(text=a.id[-8:]) == {a.id}
    assert await found(text="%") == await found(text="_") == await found(text="\0") == set()


async def _fill_steps(store: Store, job_id: str, losses: dict[int, float | None]) -> None:
    numbers = ("lr", "grad_norm", "loss_scale", "tokens", "tokens_per_s", "step_s")
    more = ("step_s_min", "step_s_median", "step_s_max", "slowest_rank")
    empty = dict.fromkeys((*numbers, *more))
    rows = [{**empty, "step": s, "loss": x, "attempt": 1, "ts": float(s), "skipped": False} for s, x in losses.items()]
    async with store.write() as tx:
        for start in range(0, len(rows), 5000):
            await step_rows.append(tx, job_id, rows[start : start + 5000])
