"""The files of a job on one node: resolved once for the job, fetched once for the node, and found by the program through links.

Rank 0 notes in the job's storage what each source had when it first read it. All ranks, repairs and later attempts fetch that, and nothing
newer. Fetched files are below `cache/files/`, under the digest of their listing (`shared_folder.py`), for all jobs of the node. Those that
the node's Hugging Face cache has, and paths that all nodes see, stay where they are.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from ....strategies.layout import Refusal
from ...messages import json_codec
from ...messages.mounted_files import MountedFiles
from ...storage.errors import StorageError
from ...storage.open_folder import folder_at
from ..program import FilesCache, Mount
from ..shared_folder import remove_unused, reserve, reserved, shared_folder
from .errors import NO_ROOM, FilesNotFetched
from .fetch import Fetch, say
from .interruption import begun, result_of, tried
from .listing import Listing, checked
from .remote import Remote, Unanswered
from .source import Source, parse, refuse_missing_library

T = TypeVar("T")

#: Seconds after their last use for which fetched files are kept.
KEPT_S: Final = 7 * 86_400.0
#: Seconds to wait for another process of the node that fetches: a day. It reports progress, and a rank that is to end does not wait.
WAIT_S: Final = 86_400.0
#: Free bytes that the file system is to have beyond the files.
_SPARE_BYTES: Final = 1 << 30
_RECORD: Final = "files.json"


@dataclass(frozen=True)
class Record:
    """What the sources of a job had, by target. A path that all nodes see has no listing."""

    listings: dict[str, Listing]


class JobFiles:
    """The files that `mounts` name. `is_to_stop` is called while it waits, and is a heartbeat."""

    def __init__(
        self, mounts: Sequence[Mount], settings: FilesCache, cache: Path, is_to_stop: Callable[[], bool]
    ) -> None:
        self._mounts, self._settings, self._cache = mounts, settings, cache
        self._is_to_stop = is_to_stop
        self._sources = {mount.target: _source(mount) for mount in mounts}

    def resolve(self) -> Record:
        """Rank 0: the job's record, which is written if there is none yet. Raises FilesNotFetched, EndRequested."""
        if (found := self._in_thread(self._read)) is not None:
            return found
        fetched = {target: source for target, source in self._sources.items() if source.kind != "path"}
        listings = {target: self._in_thread(partial(_listing, source)) for target, source in fetched.items()}
        content, folder = json_codec.dumps(Record(listings)), folder_at(self._settings.record)
        self._in_thread(lambda: _stored(lambda: folder.publish(_RECORD, content, replace=False)))
        return self.recorded()  # that of another rank 0, whose end this job has not waited for, may have come first

    def recorded(self) -> Record:
        """The record that rank 0 has written. Raises FilesNotFetched, EndRequested."""
        found = self._in_thread(self._read)
        if found is None:
            raise Unanswered(f"{self._settings.record}/{_RECORD}, which says what the job's sources had, is gone")
        return found

    def mounted(self, record: Record) -> list[MountedFiles]:
        """What is known of each source, for people."""
        return [_mounted(mount, record.listings.get(mount.target)) for mount in self._mounts]

    @contextmanager
    def held(self, record: Record) -> Iterator[dict[str, Path]]:
        """Target → the files on this node, which stay until the block ends.

        Raises FilesNotFetched, FolderUnavailable, EndRequested.
        """
        with ExitStack() as stack:
            sizes: dict[str, int] = {}
            found = {mount.target: self._hold(stack, mount.target, record, sizes) for mount in self._mounts}
            del record  # names of 100,000 files, which are not read while the program runs
            yield found

    def _hold(self, stack: ExitStack, target: str, record: Record, sizes: dict[str, int]) -> Path:
        """The files of a target. `sizes`: bytes of what the job holds of the cache, by digest."""
        source = self._sources[target]
        if source.kind == "path":
            return _shared_path(source)
        listing = record.listings.get(target)
        if listing is None:
            raise FilesNotFetched(f"{source.where}: the job's record lacks it; submit the job again.")
        remote, place = _remote(source), self._cache / "files" / listing.digest
        if not place.is_dir() and (there := remote.cached(listing)) is not None:
            return there
        waits = False

        def is_to_stop() -> bool:
            nonlocal waits
            if not waits:
                waits = True
                say(f"{source.where}: waiting for another process of this node that fetches it")
            return self._is_to_stop()

        make = partial(self._fetch, remote, listing, place, sum(sizes.values()))
        stack.enter_context(shared_folder(place, make, place.is_dir, is_to_stop, WAIT_S))
        sizes[listing.digest] = listing.bytes
        return place / listing.files[0].path if listing.single else place

    def _fetch(self, remote: Remote, listing: Listing, place: Path, own: int, lock: int) -> None:
        """`own`: bytes that the job holds already, and would still hold in any later attempt."""
        most = self._settings.most_bytes
        if (total := own + listing.bytes) > most:
            what = f"its {total:,} bytes" if not own else f"{total:,} bytes, with the job's other sources,"
            raise FilesNotFetched(
                f"{listing.source}: {what} exceed the {most:,} that a node keeps of all jobs' files; name a smaller part, or raise "
                "SHARDYARD_FILES_CACHE_GIB."
            )
        needed = listing.bytes - _partial_bytes(place)
        _reserve(lock, listing, place.parent, needed + _SPARE_BYTES)
        try:
            remove_unused(place.parent, KEPT_S, needed + _SPARE_BYTES, most)
            if (held := reserved(place.parent)) > most:
                raise FilesNotFetched(
                    f"{listing.source}: running jobs hold {held - listing.bytes:,} of the {most:,} bytes that this node keeps of all "
                    "jobs' files; wait for their end, or raise SHARDYARD_FILES_CACHE_GIB.",
                    NO_ROOM,
                )
            if (free := shutil.disk_usage(place.parent).free) < needed + _SPARE_BYTES:
                why = f"it needs {needed:,} bytes more, and {_SPARE_BYTES:,} to spare, and the disk of this node has {free:,}"
                raise FilesNotFetched(f"{listing.source}: {why}; make room on it.", NO_ROOM)
            Fetch(remote, listing, place, self._is_to_stop, say).run()
        except BaseException:
            if not place.is_dir():
                with contextlib.suppress(OSError):
                    reserve(lock, _partial_bytes(place))
            raise

    def _read(self) -> Record | None:
        """The job's record; None if there is none yet."""
        folder = folder_at(self._settings.record)
        try:
            content = _stored(lambda: folder.read(_RECORD))
        except FileNotFoundError:
            return None
        try:
            record: Record = json_codec.loads(Record, content)
        except ValueError as error:
            raise FilesNotFetched(f"{folder}/{_RECORD} cannot be read: {error}; submit the job again.") from None
        for listing in record.listings.values():
            checked(listing)
        return record

    def _in_thread(self, do: Callable[[], T]) -> T:
        return tried(lambda: result_of(begun(do, "files"), self._is_to_stop), self._is_to_stop)


def _reserve(lock: int, listing: Listing, root: Path, wanted_bytes: int) -> None:
    """Note the bytes of a listing. A full disk has no room for the note, either: then what no rank uses goes before.

    Raises FilesNotFetched.
    """
    try:
        try:
            reserve(lock, listing.bytes)
        except OSError:
            remove_unused(root, KEPT_S, wanted_bytes)
            reserve(lock, listing.bytes)
    except OSError as error:
        raise FilesNotFetched(f"{listing.source}: {error}; make room on this node.", NO_ROOM) from None


def _source(mount: Mount) -> Source:
    try:
        source = parse(mount.source)
        refuse_missing_library(source)
    except Refusal as error:
        raise FilesNotFetched(f"{mount.target}: {error.message} {error.remedy}") from None
    return source


def _remote(source: Source) -> Remote:
    """The source, opened. Imports the library that reads it, which few need."""
    if source.kind == "hub":
        from .hub_remote import HubRemote

        return HubRemote(source)
    from .bucket_remote import BucketRemote

    return BucketRemote(source)


def _listing(source: Source) -> Listing:
    return _remote(source).listing()


def _shared_path(source: Source) -> Path:
    path = Path(source.where)
    try:
        there = path.exists() and os.access(path, os.R_OK)
    except OSError:
        there = False
    if not there:
        raise FilesNotFetched(
            f"{source.where} is not on this node, or cannot be read; name a path that every node sees."
        )
    return path


def _stored(do: Callable[[], T]) -> T:
    """What the storage answers. Raises Unanswered, FilesNotFetched, FileNotFoundError."""
    try:
        return do()
    except FileNotFoundError:
        raise
    except StorageError as error:
        if error.passing:
            raise Unanswered(f"the job's storage: {error}") from None
        raise FilesNotFetched(f"the job's storage: {error}") from None
    except OSError as error:
        raise Unanswered(f"the job's storage: {error}; make room, or repair it") from None


def _mounted(mount: Mount, listing: Listing | None) -> MountedFiles:
    if listing is None:
        return MountedFiles(target=mount.target, source=mount.source)
    return MountedFiles(
        target=mount.target,
        source=mount.source,
        revision=listing.revision or None,
        digest=listing.digest,
        files=len(listing.files),
        bytes=listing.bytes,
    )


def _partial_bytes(place: Path) -> int:
    """What an unfinished fetch has left, for the next one."""
    total = 0
    for folder, _, names in os.walk(place.with_name(f".{place.name}.partial")):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(folder, name).lstat().st_size
    return total
