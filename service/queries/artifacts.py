"""Reads the files that a job's programs logged: pages of them, and the content of one, in blocks, from storage.

No transaction is open while content is sent, and at most one block of it is in memory.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sqlalchemy.engine import RowMapping

from ...workers.storage.folder import Folder
from ...workers.storage.open_folder import folder_at
from ..errors import ArtifactNotFound, ArtifactStorageFailed, InvalidCursor
from ..schemas.artifact import LoggedArtifact, LoggedArtifacts
from ..settings import Settings
from ..store import artifacts as rows
from ..store.engine import Store
from .jobs import existing

log = logging.getLogger(__name__)

#: Bytes that are read at once.
BLOCK_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Content:
    """A file, and where its content is."""

    artifact: LoggedArtifact
    folder: str


async def page(
    store: Store, job: str, *, prefix: str = "", kind: str | None = None, after: str | None = None, limit: int = 100
) -> LoggedArtifacts:
    """One page of the files of a job (id or name). Raises JobNotFound, InvalidCursor."""
    place = None if after is None else _place(after)
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        if "\0" in prefix:
            return LoggedArtifacts(items=[])
        found = await rows.page(tx, job_id, prefix=prefix, kind=kind, after=place, limit=limit + 1)
    last = found[limit - 1] if len(found) > limit else None
    return LoggedArtifacts(
        items=[_artifact(row) for row in found[:limit]], next=None if last is None else f"{last['step']}/{last['name']}"
    )


async def find(store: Store, settings: Settings, job: str, name: str, step: int | None) -> Content:
    """A file at a step (None: the one without a step, else the newest). Raises JobNotFound, ArtifactNotFound."""
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        row = None if "\0" in name else await rows.get(tx, job_id, name, step)
    if row is None:
        at = "" if step is None else f" at step {step}"
        remedy = "GET /v1/jobs/JOB/artifacts lists those that exist."
        raise ArtifactNotFound(f"The job has no file {name[:80]!r}{at}.", field="name", remedy=remedy)
    return Content(_artifact(row), settings.artifacts(job_id))


async def blocks(content: Content, start: int, end: int) -> AsyncIterator[bytes]:
    """The bytes from `start` to before `end`. The first block is read at once: raises ArtifactStorageFailed."""
    root, _, job = content.folder.rpartition("/")
    folder = (await asyncio.to_thread(_opened, root)) / job
    first = await _block(folder, content, start, end)
    return _following(folder, content, first, start, end)


@lru_cache(maxsize=4)
def _opened(root: str) -> Folder:
    """The folder of all jobs' files. Of a bucket the first request costs half a second of CPU, for its client."""
    return folder_at(root)


async def _following(folder: Folder, content: Content, block: bytes, start: int, end: int) -> AsyncIterator[bytes]:
    while block:
        yield block
        start += len(block)
        block = await _block(folder, content, start, end)


async def _block(folder: Folder, content: Content, start: int, end: int) -> bytes:
    room = bytearray(max(0, min(BLOCK_BYTES, end - start)))
    if not room:
        return b""
    try:
        await asyncio.to_thread(folder.read_into, content.artifact.sha256, start, memoryview(room))
    except OSError as error:
        log.warning("a logged file in %s cannot be read: %s", content.folder, error)
        raise ArtifactStorageFailed(
            f"The file cannot be read from storage: {error.strerror or type(error).__name__}.",
            field="name",
            remedy="Try again. Operators: the API must be able to read the storage (SHARDYARD_STORAGE).",
        ) from None
    return bytes(room)


def _place(after: str) -> rows.Key:
    step, _, name = after.partition("/")
    number = step.removeprefix("-")
    if not name or "\0" in name or not (number.isascii() and number.isdigit() and len(number) < 17):
        raise InvalidCursor(
            f"{after[:80]!r} is not a cursor.", field="after", remedy="Use the `next` of the page before."
        )
    return name, int(step)


def _artifact(row: RowMapping) -> LoggedArtifact:
    known = {name: row[name] for name in ("name", "type", "rank", "bytes", "sha256", "media_type")}
    return LoggedArtifact(**known, step=None if row["step"] == rows.NO_STEP else row["step"], at=row["ts"])
