"""The file for probes: there once a dispatcher has looked at its cluster, and touched with each pass over the queue that does not hang."""

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.service.database_errors import DatabaseUnreachable
from shardyard.service.dispatch.dispatcher import Dispatcher
from shardyard.service.dispatch.heartbeat import Heartbeat
from shardyard.service.settings import Settings
from shardyard.service.store import clusters, jobs
from shardyard.service.store.engine import Store

from ...inprocess_cluster import InProcessCluster
from .dispatching import dispatching, eventually, submit, until

LONG_AGO = 1_000_000_000.0


class File:
    """The file, as a probe sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        self.path.touch()

    def exists(self) -> bool:
        return self.path.exists()

    def make_old(self) -> None:
        os.utime(self.path, (LONG_AGO, LONG_AGO))

    def is_fresh(self) -> bool:
        return self.path.stat().st_mtime > LONG_AGO

    async def touched(self) -> None:
        """It is touched after this moment."""
        self.make_old()
        await eventually(self.is_fresh)


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "heartbeat")


@pytest.fixture
def settings(settings: Settings, file: File) -> Settings:
    return settings.model_copy(update={"heartbeat_path": file.path})


async def test_it_is_there_and_touched_while_the_dispatcher_runs(
    store: Store, settings: Settings, cluster: InProcessCluster, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before the first look at the nodes is stored, even if a killed dispatcher left the file."""
    enter, may_look = clusters.enter, asyncio.Event()

    async def later(*given: Any) -> None:
        await may_look.wait()
        await enter(*given)

    monkeypatch.setattr(clusters, "enter", later)
    file.make()
    async with dispatching(store, settings, cluster):
        await eventually(lambda: cluster.looks > 0 and not file.exists())
        may_look.set()
        await eventually(file.exists)
        await file.touched()
        cluster.reachable = False
        await file.touched()
    assert not file.exists()


async def test_it_is_not_there_before_the_cluster_was_reached(
    store: Store, settings: Settings, cluster: InProcessCluster, file: File
) -> None:
    """So that an upgrade with a wrong token of Ray ends no dispatcher that works."""
    cluster.reachable = False
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        await until(store, job, lambda now: now.reason == "cluster_unreachable")
        file.make()
        await eventually(lambda: not file.exists())
        cluster.reachable = True
        await eventually(file.exists)


async def test_a_pass_that_hangs_touches_it_no_more_and_one_that_fails_does(
    store: Store, settings: Settings, cluster: InProcessCluster, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def fails(tx: AsyncConnection) -> bool:
        raise DatabaseUnreachable("connection reset")

    async def hangs(tx: AsyncConnection) -> bool:
        begun.set()
        await may_end.wait()
        return False

    async with dispatching(store, settings, cluster):
        await eventually(file.exists)
        monkeypatch.setattr(jobs, "any_queued", fails)
        await file.touched()
        await file.touched()
        monkeypatch.setattr(jobs, "any_queued", hangs)
        await begun.wait()
        file.make_old()
        await asyncio.sleep(10 * settings.poll_s)
        assert not file.is_fresh()
        may_end.set()
        await eventually(file.is_fresh)


async def test_it_is_there_while_another_cluster_has_the_name(
    store: Store, settings: Settings, cluster: InProcessCluster, file: File
) -> None:
    """So that a rollout to another cluster ends the dispatcher of the one before."""
    first = Dispatcher(store, settings, cluster)
    await first._watch_nodes()
    other = InProcessCluster()
    other.machines = [other.machines[0].model_copy(update={"id": "node-2"})]
    async with dispatching(store, settings, other):
        await eventually(file.exists)
        await file.touched()


def test_a_file_that_cannot_be_written_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    heartbeat = Heartbeat(tmp_path / "away" / "heartbeat")
    for _ in range(3):
        heartbeat.note(looked=True)
    (tmp_path / "away").mkdir()
    heartbeat.note(looked=True)
    said, again = caplog.messages
    assert said.startswith("SHARDYARD_HEARTBEAT_PATH, ") and "No such file" in said
    assert again.startswith("SHARDYARD_HEARTBEAT_PATH can be written again.")
    Heartbeat(None).note(looked=True)
