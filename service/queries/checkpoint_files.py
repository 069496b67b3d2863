"""Reads the files of a checkpoint as its manifest names them, and never another file (`workers/checkpoint/file_list.py`).

The storage is that of the job's spec, not a reported path. Each request asks whether the manifest is still the same; it is parsed once
for all its files, and no folder is listed.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Final

from ...strategies.layout import Refusal
from ...workers.checkpoint import retention
from ...workers.checkpoint.errors import CheckpointCorrupt as CorruptFiles
from ...workers.checkpoint.errors import CheckpointError
from ...workers.checkpoint.manifest import MANIFEST
from ...workers.storage.file_stat import FileStat, file_stat
from ...workers.storage.folder import Folder
from ...workers.storage.open_folder import shared_folder_at
from ...workers.storage.uri import below
from ..errors import CheckpointCorrupt, CheckpointNotFound
from ..model_errors import CheckpointFileNotFound, CheckpointStorageFailed
from ..schemas.checkpoint import CheckpointFile, CheckpointFiles
from ..settings import Settings
from ..store import checkpoints as rows
from ..store.engine import Store
from . import checkpoint_catalogue
from .checkpoint_lists import Listing
from .jobs import existing
from .storage_reads import StorageReads
from .stored_file import StoredFile, read_into

#: A larger manifest is of some thousand ranks, and would fill this process, which holds its content for a moment.
MOST_BYTES: Final = 64 << 20
_OPERATORS: Final = "Operators: the API must be able to read the storage of the job's checkpoints."


def root_of(settings: Settings, job_id: str, spec: Mapping[str, Any]) -> str:
    """The address of the folder of a job's checkpoints, by its stored spec."""
    saves = spec.get("train", spec).get("checkpoint") or {}
    return below(saves.get("uri") or settings.storage, job_id)


async def page(
    store: Store, reads: StorageReads, job: str, step: int, *, after: str | None = None, limit: int = 1000
) -> CheckpointFiles:
    """One page of the files of a job's (id or name) checkpoint of a step, after a path.

    Raises JobNotFound, CheckpointNotFound, CheckpointDeleted, CheckpointCorrupt, CheckpointStorageFailed.
    """
    found = await listing(store, reads, job, step)
    paths = sorted(found.files)
    first = 0 if after is None else bisect_right(paths, after)
    shown = paths[first : first + limit]
    items = [CheckpointFile(path=path, bytes=found.files[path][1], sha256=found.files[path][2]) for path in shown]
    more = first + limit < len(paths)
    return CheckpointFiles(step=step, digest=found.digest, items=items, next=shown[-1] if more else None)


async def find(store: Store, reads: StorageReads, job: str, step: int, path: str) -> StoredFile:
    """Where a file of a checkpoint is. Raises as `page`, and CheckpointFileNotFound."""
    found = await listing(store, reads, job, step)
    if path not in found.files:
        remedy = f"GET /v1/jobs/JOB/checkpoints/{step}/files lists those that exist."
        message = f"The checkpoint of step {step} has no file {path[:80]!r}."
        raise CheckpointFileNotFound(message, field="path", remedy=remedy)
    name, size, digest = found.files[path]
    return StoredFile(found.folder, name, size, digest, CheckpointStorageFailed)


async def listing(store: Store, reads: StorageReads, job: str, step: int) -> Listing:
    """All files of the checkpoint. Raises as `page`."""
    async with store.read() as tx:
        row = await existing(tx, job)
        if step not in await rows.states(tx, row["id"], [step]):
            remedy = f"List the checkpoints: GET /v1/jobs/{row['id']}/checkpoints"
            raise CheckpointNotFound(f"{row['id']} reported no checkpoint of step {step}.", field="step", remedy=remedy)
        await checkpoint_catalogue.refuse_unusable(tx, row["id"], step, "step")
    try:
        root = root_of(reads.settings, row["id"], row["spec"])
        # Storage that does not answer fails here, and so takes no turn of the lists.
        folder, found = await reads.do(lambda: _found(root, step))
        return await reads.lists.of(folder.where, found, lambda: _content(folder))
    except CorruptFiles as error:
        raise CheckpointCorrupt(str(error), field="step", remedy="Take another checkpoint.") from None
    except Refusal as error:
        raise CheckpointStorageFailed(error.message, field="step", remedy=error.remedy) from None
    except (CheckpointError, OSError) as error:  # it is gone, or this process does not see it
        message = f"The checkpoint cannot be read here: {getattr(error, 'strerror', None) or error}"
        raise CheckpointStorageFailed(message, field="step", remedy=f"Try again. {_OPERATORS}") from None


def _found(root: str, step: int) -> tuple[Folder, FileStat]:
    """The checkpoint's folder, with the facts of its manifest. Raises as `_stated`."""
    folder = retention.folder(shared_folder_at(root), step)
    return folder, _stated(folder)


def _stated(folder: Folder) -> FileStat:
    """The size and the tag of its manifest. Raises CheckpointError, OSError."""
    found = file_stat(folder, MANIFEST)
    if found.bytes > MOST_BYTES:
        raise CheckpointError(
            f"its manifest has {found.bytes:,} bytes, and the API reads {MOST_BYTES:,}; copy {folder} itself."
        )
    return found


def _content(folder: Folder) -> bytes:
    """The content of its manifest, which may have been replaced since. Raises CheckpointError, OSError."""
    room = bytearray(_stated(folder).bytes)
    read_into(folder, MANIFEST, 0, memoryview(room))
    return bytes(room)
