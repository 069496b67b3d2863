"""Archives of code: uploads in parts, any of which may come twice or in any order, and the check of a complete one.

An upload that broke off continues with the parts that are missing. The parts are in storage below `code/`, the rest in the database.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers import code_archive
from ...workers.code_archive import InvalidArchive, Manifest, part_name
from ...workers.messages import json_codec
from ...workers.storage.folder import Folder
from ...workers.storage.open_folder import shared_folder_at
from ...workers.storage.uri import below
from ..blocking_calls import BlockingCalls
from ..errors import CodeNotFound, CodeStorageFailed, InvalidCode, InvalidSpec, UnknownCode
from ..ids import new_id
from ..schemas.code import CodeArchive, CodeManifest
from ..settings import Settings
from ..spec import CommandSpec
from ..store import code_archives as rows
from ..store import sweeps
from ..store.engine import Store

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds that an archive is kept without a job that names it.
UNUSED_S: Final = 86_400.0
#: Maximum number of archives that are removed at a time.
_REMOVALS: Final = 100
#: Calls to storage at once, and seconds until one has failed: the check of a complete archive reads up to 2 GiB.
AT_ONCE: Final = 16
LIMIT_S: Final = 600.0
#: Seconds for the look at which files of an archive are there.
LOOK_S: Final = 10.0
_UPLOAD: Final = "Submit the job with the command line or the Python client: they upload the folder."


class CodeStorage(BlockingCalls):
    """The calls of one process to the storage for code: if it does not answer, they take no thread that others use."""

    def __init__(self, settings: Settings, limit_s: float = LIMIT_S) -> None:
        super().__init__("storage for code", AT_ONCE, limit_s)
        self.settings = settings
        self._checks: dict[str, asyncio.Task[None]] = {}  # by archive

    async def once(self, archive_id: str, check: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Raises as the `check` of this archive that runs now: a client that waits no longer, and asks again, begins no other one."""
        task = self._checks.get(archive_id)
        if task is None:
            task = self._checks[archive_id] = asyncio.create_task(check())
            task.add_done_callback(partial(self._end, archive_id))
        await asyncio.shield(task)

    def _end(self, archive_id: str, task: asyncio.Task[None]) -> None:
        del self._checks[archive_id]
        if not task.cancelled():
            task.exception()  # perhaps no request waits for it


def address(settings: Settings, archive_id: str) -> str:
    """Where an archive's parts are."""
    return below(below(settings.storage, "code"), archive_id)


async def begin(store: Store, storage: CodeStorage, wanted: CodeManifest, actor: str) -> CodeArchive:
    """Begin or continue the upload of an archive. If it is discarded meanwhile, as refused content is, it begins again, once.

    Raises CodeNotFound, InvalidCode, CodeStorageFailed.
    """
    manifest = Manifest(**wanted.model_dump() | {"parts": tuple(wanted.parts)})
    try:
        manifest.check()
    except InvalidArchive as error:
        raise InvalidCode(f"{error}.", remedy=_UPLOAD) from None
    values = {"digest": manifest.digest, "manifest": json.loads(json_codec.dumps(manifest)), "actor": actor}
    try:
        return await _begun(store, storage, values)
    except CodeNotFound:
        return await _begun(store, storage, values)


async def _begun(store: Store, storage: CodeStorage, values: Mapping[str, Any]) -> CodeArchive:
    async with store.write() as tx:
        row = await rows.begin(tx, {"id": new_id("code", time.time()), **values})
    return await _after_a_part(store, storage, await _without_lost(store, storage, row))


async def put_part(store: Store, storage: CodeStorage, digest: str, number: int, stored: bytes) -> CodeArchive:
    """Store a part, which is deflated; the last one that was missing makes the archive complete, if its content is accepted.

    Raises CodeNotFound, InvalidCode, CodeStorageFailed.
    """
    async with store.read() as tx:
        row = await _existing(tx, digest)
    manifest = _manifest(row)
    if number >= len(manifest.parts):
        remedy = f"The parts are numbered from 0 to {len(manifest.parts) - 1}."
        raise InvalidCode(f"The archive has no part {number}.", field="number", remedy=remedy)
    if row["state"] == "uploading":
        try:
            await asyncio.to_thread(code_archive.inflated, manifest, number, stored)
        except InvalidArchive as error:
            remedy = (
                "Send zlib's deflated data of the part's bytes. If files change while they are uploaded, submit again."
            )
            raise InvalidCode(f"{error}.", field="body", remedy=remedy) from None
        await _publish(storage, row["id"], part_name(number), stored)
        async with store.write() as tx:
            await rows.add_part(tx, row["id"], number)
    return await _after_a_part(store, storage, row)


async def get(store: Store, digest: str) -> CodeArchive:
    """An archive, with its diff. Raises CodeNotFound."""
    async with store.read() as tx:
        row = await _existing(tx, digest)
        there = await rows.parts_of(tx, row["id"])
    return _value(row, there, diff=_manifest(row).diff)


async def named_by(tx: AsyncConnection, spec: CommandSpec) -> str | None:
    """The id of the archive that a spec names. Raises InvalidSpec, UnknownCode."""
    if spec.code is None:
        return None
    if spec.code.archive is None:
        raise InvalidSpec("The folder has not been uploaded.", field="code.archive", remedy=_UPLOAD)
    row = await rows.kept(tx, spec.code.archive)
    if row is None or row["state"] != "complete":
        raise UnknownCode("No such archive of code has been uploaded.", field="code.archive", remedy=_UPLOAD)
    return str(row["id"])


async def use(tx: AsyncConnection, archive_id: str) -> None:
    """Keep an archive for a job that is stored in this transaction. Raises UnknownCode if it has been removed."""
    if not await rows.use(tx, archive_id):
        raise UnknownCode("The archive of code has been removed.", field="code.archive", remedy="Submit the job again.")


async def use_all(tx: AsyncConnection, digests: Collection[str], field: str) -> None:
    """Keep archives for a sweep that is stored in this transaction. Raises UnknownCode, with this field."""
    if missing := await rows.use_all(tx, digests):
        raise UnknownCode(f"No archive {min(missing)} of code has been uploaded.", field=field, remedy=_UPLOAD)


async def remove_unused(store: Store, storage: CodeStorage) -> None:
    """Remove archives a day after their last use, if no job names them. To be the code of an open sweep's trials is a use.

    Any number of processes may do so at once.
    """
    async with store.write() as tx:
        await rows.use_all(tx, await sweeps.code_of_open(tx))
        unused = await rows.discard_unused(tx, UNUSED_S, _REMOVALS)
    for archive_id in unused:
        await _remove(store, storage, archive_id)


async def _without_lost(store: Store, storage: CodeStorage, row: RowMapping) -> RowMapping:
    """The archive's row. If storage lacks files that the database has, such as after a change of the storage, they are missing again.

    Its id stays: once they are uploaded again, the jobs that name it find them. Raises CodeNotFound.
    """
    async with store.read() as tx:
        recorded = await rows.parts_of(tx, row["id"])  # before the look: parts that arrive meanwhile are not lost
    if not recorded:
        return row
    where = address(storage.settings, row["id"])
    try:
        async with asyncio.timeout(LOOK_S):
            there = await storage.do(lambda: shared_folder_at(where).files())
    except OSError as error:  # says nothing of what is there
        log.warning("the files of archive %s of code could not be listed: %s", row["id"], error)
        return row
    lost = {number for number in recorded if part_name(number) not in there}
    if not lost and (row["state"] == "uploading" or code_archive.MANIFEST in there):
        return row
    log.warning("storage lacks files of archive %s of code: it is uploaded again", row["id"])
    async with store.write() as tx:
        return await rows.reopen(tx, row["id"], row["state"], lost) or await _existing(tx, row["digest"])


async def _after_a_part(store: Store, storage: CodeStorage, row: RowMapping) -> CodeArchive:
    """The archive as it is now. If all parts are there, it is checked and becomes complete."""
    async with store.read() as tx:
        there = await rows.parts_of(tx, row["id"])
    found = _value(row, there)
    if found.missing or found.complete:
        return found
    await storage.once(row["id"], lambda: _complete(store, storage, row))
    return found.model_copy(update={"complete": True})


async def _complete(store: Store, storage: CodeStorage, row: RowMapping) -> None:
    """Check an archive all of whose parts are there, and keep or discard it. Raises CodeNotFound, InvalidCode, CodeStorageFailed."""
    manifest = _manifest(row)
    async with store.read() as tx:
        if (await _existing(tx, row["digest"]))["state"] == "complete":
            return  # since the caller's look

    def check() -> None:
        folder = shared_folder_at(address(storage.settings, row["id"]))
        code_archive.check_members(manifest, code_archive.stored_parts(folder))

    try:
        await _in_storage(storage, check)
    except InvalidArchive as error:
        async with store.write() as tx:
            await rows.discard(tx, row["id"])
        await _remove(store, storage, row["id"])
        raise InvalidCode(f"{error}.", remedy="Upload files, folders, and links that stay inside the folder.") from None
    await _publish(storage, row["id"], code_archive.MANIFEST, json_codec.dumps(manifest))
    async with store.write() as tx:
        await rows.complete(tx, row["id"])


async def _publish(storage: CodeStorage, archive_id: str, name: str, content: bytes) -> None:
    where = address(storage.settings, archive_id)
    await _in_storage(storage, lambda: shared_folder_at(where).publish(name, content, many_writers=True))


async def _remove(store: Store, storage: CodeStorage, archive_id: str) -> None:
    """Remove an archive's files, then its row. What fails is tried again by the next `remove_unused`."""
    where = address(storage.settings, archive_id)
    try:
        await _in_storage(storage, lambda: _removed(shared_folder_at(where)))
    except CodeStorageFailed as error:
        log.warning("archive %s of code could not be removed: %s", archive_id, error)
        return
    async with store.write() as tx:
        await rows.forget(tx, archive_id)


def _removed(folder: Folder) -> None:
    folder.remove_all()
    if left := folder.files():
        raise OSError(f"{len(left)} files are left")


async def _in_storage(storage: CodeStorage, work: Callable[[], T]) -> T:
    """The result of `work`. Raises CodeStorageFailed for an OSError."""
    try:
        return await storage.do(work)
    except OSError as error:
        log.warning("the storage for code failed: %s", error)
        raise CodeStorageFailed(
            f"The storage for code cannot be used: {error.strerror or type(error).__name__}.",
            remedy=f"Try again. Operators: the API must be able to write to {storage.settings.storage} (SHARDYARD_STORAGE).",
        ) from None


async def _existing(tx: AsyncConnection, digest: str) -> RowMapping:
    row = await rows.kept(tx, digest)
    if row is None:
        remedy = "Begin its upload with POST /v1/code."
        raise CodeNotFound(f"There is no archive {digest[:64]!r}.", field="archive", remedy=remedy)
    return row


def _manifest(row: RowMapping) -> Manifest:
    found: Manifest = json_codec.read(Manifest, row["manifest"])
    return found


def _value(row: RowMapping, there: set[int], diff: str | None = None) -> CodeArchive:
    manifest: dict[str, Any] = row["manifest"]
    complete = row["state"] == "complete"
    return CodeArchive(
        id=row["digest"],
        bytes=manifest["bytes"],
        files=manifest["files"],
        complete=complete,
        missing=[] if complete else [number for number in range(len(manifest["parts"])) if number not in there],
        commit=manifest.get("commit"),
        diff=diff,
        actor=row["actor"],
        created_at=row["created_at"],
    )
