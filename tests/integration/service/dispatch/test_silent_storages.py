"""What a sweep does while a storage of deleted jobs, or a folder in it, does not answer."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S
from harness.stored_checkpoints import save_checkpoint

from shardyard.service.dispatch import retention
from shardyard.service.jobs.delete import delete
from shardyard.service.jobs.submit import cancel
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.store.engine import Store
from shardyard.workers.storage.errors import StorageUnreachable, StorageUnreadable
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.local_folder import LocalFolder
from shardyard.workers.storage.open_folder import folder_at

from ..conftest import Submit
from ..job_records import counted
from .dispatching import eventually
from .test_retention import at_once, deleted

#: What is decided does not depend on the database.
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


class Silent:
    """A storage that does not answer until `answers` is set, of the jobs below `below`; others answer."""

    def __init__(self, below: str) -> None:
        self._below, self.asked, self.answers = below, list[str](), threading.Event()

    def __call__(self, where: str) -> Folder:
        self.asked.append(where)
        if where.startswith(self._below):
            assert self.answers.wait(PATIENCE_S)
        return folder_at(where)


class Impatient(retention.Removals):
    """Goes on soon without a removal below `below`, which is silent. Others may be slow: on a busy machine a thread may begin late."""

    def __init__(self, below: str) -> None:
        super().__init__()
        self._below = below

    async def do(self, root: str, work: Callable[[], None]) -> None:
        self.limit_s = 0.1 if root.startswith(self._below) else PATIENCE_S
        await super().do(root, work)


async def saving_in(store: Store, submit: Submit, where: str) -> Job:
    """A deleted job whose checkpoints are in a storage of its own."""
    job = await cancel(store, (await submit(checkpoint={"uri": where})).id, "tester")
    save_checkpoint(Path(where) / job.id, 10)
    await delete(store, job.id, "ada")
    return job


async def test_a_storage_that_does_not_answer_is_asked_once_in_all_sweeps_and_keeps_its_jobs(
    store: Store, settings: Settings, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = f"{settings.storage}/dead"
    silent = Silent(dead)
    monkeypatch.setattr(retention, "folder_at", silent)
    kept, gone = [await saving_in(store, submit, dead) for _ in range(2)], []
    running = Impatient(dead)
    try:
        for _ in range(3):
            gone += await deleted(store, settings, submit, 1)
            await retention.sweep(store, at_once(settings), running)
            assert [await counted(store, job.id) for job in gone] == [{}] * len(gone)
        assert silent.asked.count(dead) == 1, "the removal in it still runs"
        assert all([await counted(store, job.id) for job in kept])
    finally:
        silent.answers.set()
    await eventually(lambda: not running.running)
    await retention.sweep(store, at_once(settings), running)
    assert [await counted(store, job.id) for job in kept] == [{}, {}]


async def test_any_number_of_silent_storages_of_jobs_stop_no_removal_in_the_services_own(
    store: Store, settings: Settings, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_STANDING", 2)
    dead = f"{settings.storage}/dead"
    silent = Silent(dead)
    monkeypatch.setattr(retention, "folder_at", silent)
    kept = [await saving_in(store, submit, f"{dead}/{one}") for one in range(3)]
    [gone] = await deleted(store, settings, submit, 1)
    running = Impatient(dead)
    try:
        await retention.sweep(store, at_once(settings), running)
        assert await counted(store, gone.id) == {} and len(running.running) == 2
        assert all([await counted(store, job.id) for job in kept])
    finally:
        silent.answers.set()
    await eventually(lambda: not running.running)
    await retention.sweep(store, at_once(settings), running)
    assert [await counted(store, job.id) for job in kept] == [{}, {}, {}]


@pytest.mark.parametrize("error", [TimeoutError, StorageUnreachable])
async def test_a_storage_that_times_out_is_left_to_the_next_sweep(
    store: Store, settings: Settings, submit: Submit, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    made, asked = await deleted(store, settings, submit, 3), []

    def fails(where: str) -> Folder:
        asked.append(where)
        raise error("as a file system that gives up, and a bucket that drops packets")

    with monkeypatch.context() as broken:
        broken.setattr(retention, "folder_at", fails)
        await retention.sweep(store, at_once(settings))
    assert asked == [settings.storage], "the others wait for the next sweep"
    await retention.sweep(store, at_once(settings))
    assert [await counted(store, job.id) for job in made] == [{}, {}, {}]


def fail(
    monkeypatch: pytest.MonkeyPatch, fails: Callable[[str], bool], error: type[OSError] = StorageUnreachable
) -> list[str]:
    """Have listings of folders fail, by the folder's name. Returns the names of those whose listing failed."""
    asked, listed = list[str](), LocalFolder.files

    def files(folder: LocalFolder) -> dict[str, int]:
        if not fails(folder.name):
            return listed(folder)
        asked.append(folder.name)
        raise error(errno.EUCLEAN, "Structure needs cleaning", folder.where)

    monkeypatch.setattr(LocalFolder, "files", files)
    return asked


@pytest.mark.parametrize("error", [StorageUnreachable, StorageUnreadable])
async def test_a_folder_that_stays_unreadable_keeps_its_own_job_only(
    store: Store, settings: Settings, submit: Submit, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    kept, *gone = sorted(await deleted(store, settings, submit, 3), key=lambda job: job.id)
    asked = fail(monkeypatch, lambda name: name == kept.id, error)
    await retention.sweep(store, at_once(settings))
    assert [await counted(store, job.id) for job in gone] == [{}, {}]
    assert await counted(store, kept.id) and asked == [kept.id]


@pytest.mark.parametrize("error", [StorageUnreachable, StorageUnreadable])
async def test_a_storage_whose_every_listing_fails_is_asked_for_one_job(
    store: Store, settings: Settings, submit: Submit, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    """A bucket that drops packets answers after minutes, each time."""
    made = sorted(await deleted(store, settings, submit, 3), key=lambda job: job.id)
    asked = fail(monkeypatch, lambda _: True, error)
    await retention.sweep(store, at_once(settings))
    assert len(asked) == 2 and asked[0] == made[0].id and asked[1] not in {job.id for job in made}
    assert all([await counted(store, job.id) for job in made])
