"""What is prepared for the next gang while one trains, so that a job right behind another starts as fast as after a rest."""

import asyncio
import contextlib
import os
import time
from pathlib import Path

import psutil
import pytest
from harness.patience import PATIENCE_S

from shardyard.service.cluster import ray_cluster
from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.cluster.ray_head import count_workers, idle_workers
from shardyard.service.policies.warm_workers import Workers
from shardyard.service.settings import Settings

from .conftest import embedded
from .following import closed, follow, gang_spec, is_step, pids

pytestmark = [pytest.mark.full, pytest.mark.asyncio(loop_scope="module")]  # kills and starts a dozen workers

RANKS = max(2, len(os.sched_getaffinity(0)))


@pytest.fixture(scope="module")
def settings(head: Path) -> Settings:
    return embedded(head).model_copy(update={"warm_workers": 10})


def raylet(cluster: Cluster) -> int:
    assert cluster._record and cluster._record.raylet
    return cluster._record.raylet.pid


async def counted(cluster: Cluster, idle: int) -> Workers:
    """Ray's workers, once this number is idle."""
    deadline = time.monotonic() + PATIENCE_S
    while (workers := count_workers(raylet(cluster))).idle < idle:
        assert time.monotonic() < deadline, workers
        await asyncio.sleep(0.1)
    return workers


async def none_idle(cluster: Cluster) -> None:
    """Kill whatever waits for a gang, also what was still to start."""
    cluster._be_quiet(10 * PATIENCE_S)
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < 1.0:
        for worker in idle_workers(raylet(cluster)):
            quiet_since = time.monotonic()
            with contextlib.suppress(psutil.Error):
                worker.kill()
        await asyncio.sleep(0.1)


async def test_workers_are_prepared_while_ranks_train_on_all_cores(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "WARM_EVERY_S", 0.5)
    gang = gang_spec("ahead", ranks=RANKS, steps=100_000, pause=0.05, folder=str(tmp_path))
    await cluster.start_gang(gang)
    await follow(cluster, gang.name, until=is_step(3))
    await none_idle(cluster)
    assert count_workers(raylet(cluster)) == Workers(0, 0, RANKS)

    cluster._quiet_until = 0.0
    assert (await counted(cluster, idle=RANKS + 1)).ranks == RANKS
    await closed(cluster, gang.name, pids(tmp_path, RANKS))
