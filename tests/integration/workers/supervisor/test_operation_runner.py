"""Checkpoints seen to on a real cluster, over both databases: what is found and written, and whose death costs nothing."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S
from harness.stored_checkpoints import (
    FILE,
    checkpoint_path,
    flip_checkpoint_bit,
    processes_reading,
    save_checkpoint,
    save_endless_checkpoint,
    save_model_checkpoint,
)

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.dispatch.dispatcher import Dispatcher
from shardyard.service.jobs import submit as submitting
from shardyard.service.orders import checkpoint_operations
from shardyard.service.orders.checkpoint_operations import OperationRequest, create
from shardyard.service.schemas.operation import Exported, Operation
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.states import State
from shardyard.service.store import events, orders
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.engine import Store
from shardyard.service.store.tables import operations
from shardyard.workers.huggingface.export import export
from shardyard.workers.storage.open_folder import folder_at

from .conftest import HERE

# ruff: noqa: ASYNC220
pytestmark = pytest.mark.asyncio(loop_scope="module")


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
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


async def ended_job(store: Store, settings: Settings, *reported: dict[str, Any]) -> tuple[str, list[int]]:
    """A job that has ended and reported these checkpoints, and their positions in its history."""
    spec = {"name": "saved", "train": {"steps": 20, "global_batch": 4, "layout": {"data": 1}}}
    job, _ = await submitting.submit(store, settings, JobSpec.model_validate(spec), None, "", "tester")
    same = {"attempt": 1, "kind": "checkpoint", "ts": 1.0, "actor": "test"}
    async with store.write() as tx:
        await events.append(tx, job.id, [{**same, "data": data} for data in reported])
        await job_rows.set_columns(tx, job.id, {"state": State.SUCCEEDED, "device": "cpu", "finished_at": time.time()})
    return job.id, list(range(2, 2 + len(reported)))


async def until(holds: Callable[[], Any], what: str) -> None:
    """`holds` may be a coroutine function."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = holds()
        if await found if asyncio.iscoroutine(found) else found:
            return
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.05)


async def settled(store: Store, job: str, asked: Operation) -> Operation:
    async def over() -> bool:
        return (await checkpoint_operations.one(store, job, asked.id)).settled_at is not None

    await until(over, f"the end of {asked}")
    return await checkpoint_operations.one(store, job, asked.id)


@pytest.mark.full  # seven tasks, each of which imports torch
async def test_the_cluster_verifies_and_exports_what_an_ended_job_has_saved(
    database_url: str, cluster: Cluster, settings: Settings, tmp_path: Path
) -> None:
    quick = settings.model_copy(update={"poll_s": 0.1, "operations_at_once": 2})
    async with opened(database_url) as store:
        reported = [
            save_model_checkpoint(tmp_path, 10),
            save_model_checkpoint(tmp_path, 20),
            save_checkpoint(tmp_path, 30),
        ]
        job, [valid, corrupt, deleted] = await ended_job(store, quick, *reported)
        flip_checkpoint_bit(tmp_path, 20)
        folder_at(str(checkpoint_path(tmp_path, 30))).remove_all()
        request = [OperationRequest("verify", n) for n in (valid, corrupt, deleted)]
        request += [
            OperationRequest("export", n, dtype) for n, dtype in ((valid, "fp32"), (valid, "bf16"), (corrupt, "fp32"))
        ]  # type: ignore[arg-type]
        asked = [await create(store, job, one, None, "me") for one in request]
        async with dispatching(store, quick, cluster):
            found = [await settled(store, job, one) for one in asked]
            again = await settled(
                store, job, await create(store, job, OperationRequest("export", valid, "fp32"), None, "me")
            )
    assert [one.state for one in found] == ["done"] * 5 + ["failed"]
    verified = [one.verified for one in found[:3]]
    assert [(one.verdict, one.corrupt) for one in verified if one] == [
        ("valid", []),
        ("corrupt", [FILE]),
        ("deleted", []),
    ]
    assert found[5].error and found[5].error.code == "checkpoint_corrupt" and FILE in found[5].error.message
    for one, name in ((found[3], "export-00000010"), (found[4], "export-00000010-bf16")):
        made = one.exported
        assert made is not None and made.path == str(tmp_path / name)
        by_hand = tmp_path / f"by-hand-{made.dtype}"
        written = export(folder_at(str(checkpoint_path(tmp_path, 10))), folder_at(str(by_hand)), made.dtype)
        assert made == Exported(**vars(written) | {"path": made.path, "dtype": made.dtype})
        assert contents(tmp_path / name) == contents(by_hand)
    assert again.exported == found[3].exported and again.id != found[3].id


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.full  # two dispatchers and tasks that import torch
async def test_a_dispatcher_that_ends_or_dies_leaves_its_work_to_another(
    database_url: str, cluster: Cluster, settings: Settings, tmp_path: Path
) -> None:
    """The task compares the checkpoint for longer than the test takes."""
    quick = settings.model_copy(update={"poll_s": 0.1, "lease_s": 5.0})
    async with opened(database_url) as store:
        job, [n] = await ended_job(store, quick, save_endless_checkpoint(tmp_path, 10))
        asked = await create(store, job, OperationRequest("verify", n), None, "me")
        async with dispatching(store, quick, cluster):
            await until(lambda: processes_reading(tmp_path, 10), "a task that compares the checkpoint")
            assert (await checkpoint_operations.one(store, job, asked.id)).state == "running"
        await until(
            lambda: not processes_reading(tmp_path, 10), "the task's end with its dispatcher, which ended in order"
        )
        back = await row_of(store, job, asked)
        assert (back["state"], back["tries"], back["lease_token"]) == ("pending", 0, None)

        given = json.dumps(
            {**quick.model_dump(mode="json", exclude={"database_url"}), "database_url": database_url}, default=str
        )
        killed = subprocess.Popen([sys.executable, str(HERE / "dispatching.py"), given])
        try:
            await until(lambda: processes_reading(tmp_path, 10), "a task that compares the checkpoint")
        finally:
            killed.send_signal(signal.SIGKILL)
            killed.wait()
        await until(lambda: not processes_reading(tmp_path, 10), "the task's end with its dispatcher, which was killed")
        dead = await row_of(store, job, asked)
        assert (dead["state"], dead["tries"]) == ("running", 1) and dead["lease_token"]

        save_checkpoint(tmp_path, 10)
        async with dispatching(store, quick, cluster):
            found = await settled(store, job, asked)
        assert (found.state, found.verified and found.verified.verdict) == ("done", "valid")
        assert (await row_of(store, job, asked))["tries"] == 2


async def row_of(store: Store, job: str, asked: Operation) -> Any:
    async with store.read() as tx:
        return await orders.by_id(tx, operations, job, asked.id)
