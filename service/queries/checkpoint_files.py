"""Reads the files of a checkpoint as its manifest names them, and never another file.

A manifest is written where a job's program may write too, so its names are checked: a stored file lies in the checkpoint's folder itself,
and a program's path stays below the folder into which it is downloaded. The storage is that of the job's spec, not a reported path.

A manifest is parsed once for all its files. Each request only asks whether it is still the same, and lists no folder.
"""

import hashlib
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, Final

from ...strategies.layout import Refusal
from ...workers.checkpoint import retention
from ...workers.checkpoint.errors import CheckpointCorrupt as CorruptFiles
from ...workers.checkpoint.errors import CheckpointError
from ...workers.checkpoint.manifest import MANIFEST, File, Manifest, parsed
from ...workers.storage.file_stat import FileStat, file_stat
from ...workers.storage.folder import Folder
from ...workers.storage.uri import below
from ..errors import CheckpointCorrupt, CheckpointNotFound
from ..model_errors import CheckpointFileNotFound, CheckpointStorageFailed
from ..schemas.checkpoint import CheckpointFile, CheckpointFiles
from ..settings import Settings
from ..store import checkpoints as rows
from ..store.engine import Store
from . import checkpoint_catalogue
from .jobs import existing
from .storage_reads import StorageReads
from .stored_file import StoredFile, opened

#: A larger manifest is of some thousand ranks, and would fill this process.
MOST_BYTES: Final = 64 << 20
#: Manifests whose files are kept in memory: up to 25 MB each.
_KEPT: Final = 4
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_OPERATORS: Final = "Operators: the API must be able to read the storage of the job's checkpoints."


@dataclass(frozen=True)
class Listing:
    """The files of one checkpoint: path → stored name, size in bytes, SHA-256."""

    folder: str
    digest: str
    files: Mapping[str, tuple[str, int, str]]


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
        return await reads.do(lambda: _read(retention.folder(opened(root), step)))
    except CorruptFiles as error:
        raise CheckpointCorrupt(str(error), field="step", remedy="Take another checkpoint.") from None
    except Refusal as error:
        raise CheckpointStorageFailed(error.message, field="step", remedy=error.remedy) from None
    except (CheckpointError, OSError) as error:  # it is gone, or this process does not see it
        message = f"The checkpoint cannot be read here: {getattr(error, 'strerror', None) or error}"
        raise CheckpointStorageFailed(message, field="step", remedy=f"Try again. {_OPERATORS}") from None


def _read(folder: Folder) -> Listing:
    """Raises CorruptFiles, CheckpointError, OSError."""
    found = file_stat(folder, MANIFEST)
    if found.bytes > MOST_BYTES:
        raise CheckpointError(
            f"its manifest has {found.bytes:,} bytes, and the API reads {MOST_BYTES:,}; copy {folder} itself."
        )
    return _listed(folder.where, found)


@lru_cache(maxsize=_KEPT)
def _listed(where: str, _: FileStat) -> Listing:
    """Raises as `_read`."""
    folder = opened(where)
    content = folder.read(MANIFEST)
    try:
        manifest = parsed(content, folder)
        stored = {name: _file(name, file) for name, file in manifest.files.items()}
        files = _of_program(manifest, stored) if "program" in manifest.training else _with_manifest(content, stored)
        return Listing(where, manifest.sha256, files)
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptFiles(f"{folder} is corrupt: {MANIFEST} names no such files ({error}).") from None


def _file(name: str, file: File) -> tuple[str, int, str]:
    """Raises TypeError, ValueError."""
    if not isinstance(file.bytes, int) or file.bytes < 0 or not _SHA256.fullmatch(file.sha256):
        raise ValueError(f"{name[:80]!r} has no size or checksum")
    return name, file.bytes, file.sha256


def _with_manifest(content: bytes, stored: dict[str, tuple[str, int, str]]) -> dict[str, tuple[str, int, str]]:
    """The stored files with the manifest: together they are a checkpoint wherever they lie."""
    own = (MANIFEST, len(content), hashlib.sha256(content).hexdigest())
    return {_plain(name): file for name, file in stored.items()} | {MANIFEST: own}


def _of_program(manifest: Manifest, stored: dict[str, tuple[str, int, str]]) -> dict[str, tuple[str, int, str]]:
    """The files under the program's own paths. Of several ranks each has a folder."""
    parts = manifest.training["program"]["parts"]
    found = {}
    for part in parts:
        below_rank = f"rank-{int(part['rank']):05d}/" if len(parts) > 1 else ""
        for path, name in part["paths"].items():
            found[_relative(below_rank + _utf8(path))] = stored[_plain(name)]
    return found


def _utf8(path: str) -> str:
    """The path, in which bytes that are no UTF-8 are written as `\\xNN`: no answer in JSON can have them. Raises ValueError."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _plain(name: str) -> str:
    """The name of a file in the folder itself. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is no name of a stored file")
    return name


def _relative(path: str) -> str:
    """A path without parts that lead elsewhere. Raises ValueError."""
    if path != str(PurePosixPath(path)) or path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise ValueError(f"{path[:80]!r} is no relative path")
    return path
