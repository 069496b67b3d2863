"""Removes deleted jobs after the time for undoing it, and records of ended jobs and sweeps that are older than jobs or settings say.

What is too large goes after that (`size_retention.py`).

A job that is removed loses its files first, then its records, then its row. Every step can be repeated, by any dispatcher: one that
dies leaves the job's row, and the next sweep continues. Each transaction removes a bounded number of rows, so others wait only shortly.
"""

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from ...strategies.layout import Refusal
from ...workers.storage.errors import StorageUnreachable
from ...workers.storage.folder import Folder
from ...workers.storage.open_folder import folder_at
from ...workers.storage.uri import below, is_bucket
from ..blocking_calls import in_own_thread
from ..ids import new_job_id, parse
from ..settings import Settings
from ..store import removals, removed_attempts
from ..store.engine import Store
from . import size_retention
from .batches import JOBS, job_ids, repeat

log = logging.getLogger(__name__)

#: Storages that a sweep keeps open, as each job may have its own: a new client of a bucket costs half a second of CPU, and 13 MB while it
#: is kept.
_OPENED: Final = 8
#: Storages of jobs' own whose removals may stand still at the same time, before no removal begins in another of them. Each holds a thread.
_STANDING: Final = 32
#: The actor of jobs that are deleted by age.
ACTOR: Final = "retention"


class Removals:
    """The removals of files that run, for all sweeps of a dispatcher: one at a time in a storage, which may not answer."""

    #: Seconds after which a sweep goes on without a removal, which continues beside it.
    limit_s: float = 600.0

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[None]] = {}  # by the root of the storage

    @property
    def running(self) -> Sequence[str]:
        """Storages in which a removal runs."""
        return [*self._running]

    def may_begin(self, root: str, own: bool) -> bool:
        """Whether the storage is free. `own`: it is a job's own, of which there may be any number."""
        return root not in self._running and not (own and len(self._running) >= _STANDING)

    async def do(self, root: str, work: Callable[[], None]) -> None:
        """Returns and raises as `work`. Raises TimeoutError after the time limit; `work` then ends when it can."""
        task = self._running[root] = asyncio.create_task(in_own_thread("retention", work))
        task.add_done_callback(partial(self._end, root))
        await asyncio.wait({task}, timeout=self.limit_s)
        if not task.done():
            raise TimeoutError(errno.ETIMEDOUT, f"No answer within {self.limit_s:g} s")
        task.result()

    def _end(self, root: str, task: asyncio.Task[None]) -> None:
        del self._running[root]
        if not task.cancelled():
            task.exception()  # after the time limit no caller asks for it: the next sweep fails as well, or not


async def sweep(store: Store, settings: Settings, running: Removals | None = None) -> None:
    """Remove all that is due. What fails is logged, and tried again by the next sweep. `running`: of all sweeps; None: its own."""
    if settings.keep_jobs_days > 0:
        await _delete_old(store, settings.keep_jobs_days)
    kept = {
        "logs": settings.keep_logs_days,
        "metrics": settings.keep_metrics_days,
        "events": settings.keep_events_days,
        "traces": settings.keep_traces_days,
    }
    for kind, days in kept.items():
        await _remove_old(store, kind, days)
    await size_retention.fit(store, settings)  # before what may wait for a storage
    await _Files(settings, running or Removals()).remove_deleted(store)
    if settings.keep_jobs_days > 0:
        await repeat(store, partial(removals.remove_old_sweep, days=settings.keep_jobs_days))
    await repeat(store, removed_attempts.remove_old)


async def _delete_old(store: Store, days: float) -> None:
    while True:
        async with store.write() as tx:
            if await removals.mark_old(tx, days, ACTOR, JOBS) < JOBS:
                return


async def _remove_old(store: Store, kind: str, days: float) -> None:
    """Of jobs whose specs say nothing of the kind after `days`, if that is not 0."""
    async for job_id in job_ids(store, partial(removals.outdated, kind=kind, days=days)):
        for table in removals.KINDS[kind]:
            await repeat(store, partial(removals.remove_old, table=table, job_id=job_id))


class _Files:
    """The files of deleted jobs, during one sweep. A storage that did not answer once, or in which a removal still runs, is left to
    a later sweep."""

    def __init__(self, settings: Settings, running: Removals) -> None:
        self._settings, self._removals = settings, running
        self._opened = lru_cache(_OPENED)(folder_at)
        self._silent: set[str] = set()

    async def remove_deleted(self, store: Store) -> None:
        after, settings = "", self._settings
        for root in self._removals.running:
            log.warning("a removal of files in %s still runs; no other begins there before it ends", root)
        while True:
            async with store.write() as tx:
                await removals.begin(tx, settings.undelete_s, settings.cluster, JOBS)
                found = await removals.begun(tx, settings.cluster, after, JOBS)
            for row in found:
                after = row["id"]
                if await self._remove(row["id"], row["spec"]):
                    await _remove_rows(store, row["id"])
            if len(found) < JOBS:
                return

    async def _remove(self, job_id: str, spec: dict[str, Any]) -> bool:
        """Remove a job's checkpoints, what was exported beside them, Ray Train's results, logged files, and the record of its sources.

        Returns whether none is left.
        """
        assert parse("job", job_id) is not None  # it names the folders that are removed
        saves = spec.get("train", spec).get("checkpoint") or {}
        own = below(saves["uri"], job_id) if saves.get("uri") else None
        ours = below(self._settings.storage, job_id)  # Ray Train's results are here also if `own` has the checkpoints
        for where in dict.fromkeys((own or ours, ours, self._settings.artifacts(job_id), self._settings.files(job_id))):
            root = where.removesuffix(f"/{job_id}") or "/"
            if root in self._silent or not self._removals.may_begin(root, own=where == own):
                return False
            try:
                await self._removals.do(root, partial(_removed, self._opened, root, job_id))
            except (OSError, Refusal) as error:
                log.warning("the files of %s in %s could not be removed: %s", job_id, where, error)
                if isinstance(error, TimeoutError | StorageUnreachable):
                    self._silent.add(root)
                return False
        return True


def _removed(opened: Callable[[str], Folder], root: str, job_id: str) -> None:
    """Remove a job's folder. Raises StorageUnreachable if the whole storage does not answer, OSError if only the folder is left."""
    storage = opened(root)
    try:
        _remove_folder(storage / job_id)
    except StorageUnreachable as error:
        if not _answers(storage):
            raise
        # Such as a damaged directory, which stays unreadable: the jobs after it are removed.
        raise OSError(str(error)) from error


def _answers(storage: Folder) -> bool:
    """Whether the same requests succeed for the folder of a job that never existed."""
    try:
        _remove_folder(storage / new_job_id(time.time()))
    except StorageUnreachable:
        return False
    return True


def _remove_folder(folder: Folder) -> None:
    folder.sweep()
    _emptied(folder)


def _emptied(folder: Folder) -> None:
    """Remove all files below the folder, and in a file system the folder. Raises OSError if some are left."""
    folder.remove_all()
    left = [*folder.files()]
    if is_bucket(folder.where):  # it removed the files of this folder only
        # Some servers list a folder for a while after its last object is gone: only objects count.
        for name in folder.folders():
            _emptied(folder / name)
    else:
        left += folder.folders()
    if left:
        raise OSError(f"{len(left)} files or folders of {folder} are left")


async def _remove_rows(store: Store, job_id: str) -> None:
    for table in removals.OF_JOBS:
        await repeat(store, partial(removals.remove_rows, table=table, job_id=job_id))
    async with store.write() as tx:
        await removals.finish(tx, job_id)
