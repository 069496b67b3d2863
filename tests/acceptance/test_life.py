"""A training is cancelled, retried from its checkpoint, deleted, restored, and at last removed from the disk."""

import asyncio
from typing import Any

import pytest
from harness.control_plane import ControlPlane, endless, trained
from harness.patience import PATIENCE_S

from shardyard.service.dispatch.retention import sweep
from shardyard.service.settings import Settings
from shardyard.service.store.engine import Store

SAME: dict[str, Any] = {"layout": {"data": 1}, "checkpoint": {"every": 2, "keep": 2}}


@pytest.mark.full
def test_a_job_is_retried_from_its_checkpoint_and_removed_with_its_files(plane: ControlPlane) -> None:
    with plane.client() as client:
        job = client.submit(endless("life", **SAME))
        trained(client, job.id, 5)
        client.cancel(job.id)
        ended = client.wait(job.id, timeout_s=PATIENCE_S)
        folder = plane.data / "checkpoints" / job.id
        assert ended.checkpoint is not None and folder.is_dir()
        saved = int(ended.checkpoint.rpartition("-")[2])
        new = ended.retry()
        assert (new.retry_of, new.parent, ended.refresh().retried_by) == (job.id, job.id, new.id)
        trained(client, new.id, saved + 1)
        refused = plane.run("delete", job.id, "--yes")
        assert refused.returncode == 1 and new.id in refused.stderr, refused.stderr
        client.cancel(new.id)
        client.wait(new.id, timeout_s=PATIENCE_S)
        assert client.metrics(new.id).points[0].step == saved + 1
        assert plane.run("delete", job.id, "--yes").returncode == 0
        assert plane.run("undelete", job.id).returncode == 0
        assert client.job(job.id).checkpoint == ended.checkpoint and folder.is_dir()
        job.delete()
        asyncio.run(swept(Settings(data_dir=plane.data, undelete_s=0)))
        assert not folder.exists() and (folder.parent / new.id).is_dir()
        assert plane.run("undelete", job.id).returncode == 1
        assert client.job(new.id).retry_of == job.id


async def swept(settings: Settings) -> None:
    """As another dispatcher of the same database does it."""
    store = Store(settings.database)
    try:
        await sweep(store, settings)
    finally:
        await store.close()
