"""Checkpoints seen to on a real cluster, over both databases: what is found and what is written."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from harness.shelves import FILE, damage, place, saved, saved_model

from shardyard.service import jobs, operations
from shardyard.service.cluster import Cluster
from shardyard.service.dispatcher import Dispatcher
from shardyard.service.operations import Wanted, ask
from shardyard.service.records import OperationRecord
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.states import State
from shardyard.service.store import events
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.engine import Store
from shardyard.service.store.schema import upgrade
from shardyard.workers.checkpoint.storage import folder_at
from shardyard.workers.export import export

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATIENCE_S = 300.0


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    await upgrade(url)
    store = Store(url)
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def dispatching(store: Store, settings: Settings, cluster: Cluster) -> AsyncIterator[None]:
    task = asyncio.create_task(Dispatcher(store, settings, cluster).run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def ended_job(store: Store, settings: Settings, *told: dict[str, Any]) -> tuple[str, list[int]]:
    """A job that has ended and told of these checkpoints, and their places in its story."""
    spec = {"name": "saved", "train": {"steps": 20, "global_batch": 4, "layout": {"data": 1}}}
    job, _ = await jobs.submit(store, settings, JobSpec.model_validate(spec), None, "", "tester")
    same = {"attempt": 1, "kind": "checkpoint", "ts": 1.0, "actor": "test"}
    async with store.write() as tx:
        await events.append(tx, job.id, [{**same, "data": data} for data in told])
        await job_rows.set_columns(tx, job.id, {"state": State.SUCCEEDED, "device": "cpu", "finished_at": time.time()})
    return job.id, list(range(2, 2 + len(told)))


async def until(holds: Callable[[], Any], what: str) -> None:
    """`holds` may be a coroutine function."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = holds()
        if await found if asyncio.iscoroutine(found) else found:
            return
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.05)


async def settled(store: Store, job: str, asked: OperationRecord) -> OperationRecord:
    async def over() -> bool:
        return (await operations.operation(store, job, asked.id)).settled_at is not None

    await until(over, f"the end of {asked}")
    return await operations.operation(store, job, asked.id)


async def test_the_cluster_verifies_and_exports_what_an_ended_job_has_saved(
    database_url: str, cluster: Cluster, settings: Settings, tmp_path: Path
) -> None:
    quick = settings.model_copy(update={"poll_s": 0.1, "operations_at_once": 2})
    async with opened(database_url) as store:
        told = [saved_model(tmp_path, 10), saved_model(tmp_path, 20), saved(tmp_path, 30)]
        job, [whole, damaged, removed] = await ended_job(store, quick, *told)
        damage(tmp_path, 20)
        folder_at(str(place(tmp_path, 30))).remove_all()
        wanted = [Wanted("verify", n) for n in (whole, damaged, removed)]
        wanted += [Wanted("export", n, dtype) for n, dtype in ((whole, "fp32"), (whole, "bf16"), (damaged, "fp32"))]  # type: ignore[arg-type]
        asked = [await ask(store, job, one, None, "me") for one in wanted]
        async with dispatching(store, quick, cluster):
            found = [await settled(store, job, one) for one in asked]
            again = await settled(store, job, await ask(store, job, Wanted("export", whole, "fp32"), None, "me"))
    assert [one.state for one in found] == ["done"] * 5 + ["failed"]
    verified = [one.verified for one in found[:3]]
    assert [(one["verdict"], one["damaged"]) for one in verified if one] == [
        ("whole", []),
        ("damaged", [FILE]),
        ("removed", []),
    ]
    assert found[5].error and found[5].error["code"] == "checkpoint_damaged" and FILE in found[5].error["message"]
    for one, name in ((found[3], "export-00000010"), (found[4], "export-00000010-bf16")):
        made = one.exported
        assert made is not None and made["path"] == str(tmp_path / name)
        by_hand = tmp_path / f"by-hand-{made['dtype']}"
        written = export(folder_at(str(place(tmp_path, 10))), folder_at(str(by_hand)), made["dtype"])
        assert made == {**vars(written), "path": made["path"], "dtype": made["dtype"]}
        assert contents(tmp_path / name) == contents(by_hand)
    assert again.exported == found[3].exported and again.id != found[3].id


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}
