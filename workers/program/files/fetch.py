"""Fetches the files of a listing into a folder, in blocks, a few ahead. The folder appears whole, or not at all.

A file is written under another name, checked, synced to the disk and renamed. So each file that a process which was killed has left is
whole, and is kept by the next one. A file that was cut short is fetched again.
"""

import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from ...atomic_files import sync_folder
from .. import cache_disk
from ..shared_folder import EndRequested, remove_tree
from .errors import NO_ROOM, NOT_FETCHED, FilesNotFetched
from .interruption import result_of, tried
from .listing import Listing, RemoteFile
from .remote import Damaged, Digest, Remote

#: Bytes of a request, and requests at once: their product is held in memory.
BLOCK_BYTES: Final = 8 << 20
AT_ONCE: Final = 8
#: Seconds between two lines about progress.
SAY_S: Final = 10.0
#: Times that a file may arrive damaged.
_TRIES: Final = 3


class _Block(NamedTuple):
    file: RemoteFile
    start: int
    end: int


class Fetch:
    """One listing on its way into `place`. `say` gets lines about progress for the rank's log."""

    def __init__(
        self, remote: Remote, listing: Listing, place: Path, is_to_stop: Callable[[], bool], say: Callable[[str], None]
    ) -> None:
        self._remote, self._listing, self._place = remote, listing, place
        self._is_to_stop, self._say = is_to_stop, say
        self._partial = place.with_name(f".{place.name}.partial")
        self._content, self._incoming = self._partial / "content", self._partial / "incoming"
        self._damaged: dict[str, int] = {}
        self._done, self._said = 0, time.monotonic()

    def run(self) -> None:
        """Raises FilesNotFetched, EndRequested. What is whole stays for the next try."""
        try:
            self._content.mkdir(parents=True, exist_ok=True)
            left = self._left()
            self._done = self._listing.bytes - sum(file.bytes for file in left)
            self._report("begins")
            while left:
                with _Readers(AT_ONCE, self._is_to_stop) as readers:
                    self._take_all(readers, left)
                left = self._left()
            self._publish()
        except OSError as error:
            cause = cache_disk.cause_of(error)
            if cause == cache_disk.FULL:
                raise FilesNotFetched(f"{self._listing.source}: {error}; make room on this node.", NO_ROOM) from None
            why = f"{self._listing.source}: {error}; repair the cache of this node."
            raise FilesNotFetched(why, cause or NOT_FETCHED) from None
        self._report("ends")

    def _left(self) -> list[RemoteFile]:
        return [file for file in self._listing.files if not (self._content / file.path).is_file()]

    def _take_all(self, readers: "_Readers", files: Sequence[RemoteFile]) -> None:
        writer: _Writer | None = None
        try:
            for block, content in readers.ahead(_blocks(files), self._read):
                if block.start == 0:
                    writer = _Writer(self._incoming, self._remote.digest(block.file))
                assert writer is not None
                writer.write(content)
                self._done += len(content)
                self._report()
                if block.end == block.file.bytes:
                    self._keep(block.file, writer.finish())
        finally:
            if writer is not None:
                writer.close()

    def _read(self, block: _Block) -> bytes:
        if block.end == 0:
            return b""
        return tried(lambda: self._remote.read(self._listing, block.file, block.start, block.end), self._is_to_stop)

    def _keep(self, file: RemoteFile, digest: str) -> None:
        """Check the file that has come, and give it its name. A damaged one is fetched once more."""
        try:
            tried(lambda: self._remote.verify(file, digest), self._is_to_stop)
        except Damaged:
            self._damaged[file.path] = tries = self._damaged.get(file.path, 0) + 1
            self._done -= file.bytes
            if tries == _TRIES:
                raise FilesNotFetched(
                    f"{self._listing.source}: {file.name} does not have the checksum that its source says ({file.check}); store it again."
                ) from None
            return
        path = self._content / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._incoming.chmod(0o444)
        self._incoming.replace(path)

    def _publish(self) -> None:
        folders = [Path(folder) for folder, _, _ in os.walk(self._content, topdown=False)]
        for folder in folders:
            sync_folder(folder)
            if folder != self._content:  # a folder that moves must be writable
                folder.chmod(0o555)
        self._content.replace(self._place)
        self._place.chmod(0o555)
        sync_folder(self._place.parent)
        remove_tree(self._partial)

    def _report(self, when: str = "") -> None:
        if not when and time.monotonic() < self._said + SAY_S:
            return
        self._said = time.monotonic()
        total = self._listing.bytes
        share = f"{_size(self._done)} of {_size(total)}" + (f" ({self._done / total:.0%})" if total else "")
        self._say(
            f"{self._listing.source}: {share}, {len(self._listing.files):,} files" + (f", {when}" if when else "")
        )


class _Writer:
    """A file that is written from its beginning to its end, with its checksum."""

    def __init__(self, path: Path, digest: Digest) -> None:
        path.unlink(missing_ok=True)  # of a process that died: it may be read-only already
        self._file: BinaryIO = path.open("wb")
        self._digest = digest

    def write(self, content: bytes) -> None:
        self._file.write(content)
        self._digest.update(content)

    def finish(self) -> str:
        """Sync the file to the disk. Returns the checksum."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._digest.hexdigest()

    def close(self) -> None:
        self._file.close()


def _blocks(files: Sequence[RemoteFile]) -> Iterator[_Block]:
    for file in files:
        for start in range(0, max(file.bytes, 1), BLOCK_BYTES):
            yield _Block(file, start, min(file.bytes, start + BLOCK_BYTES))


class _Readers:
    """Threads that read blocks. They end after their present request, and none keeps the process."""

    def __init__(self, count: int, is_to_stop: Callable[[], bool]) -> None:
        self._count, self._is_to_stop = count, is_to_stop
        self._orders: queue.SimpleQueue[tuple[Future[bytes], Callable[[], bytes]] | None] = queue.SimpleQueue()
        self._ended = threading.Event()

    def __enter__(self) -> "_Readers":
        for number in range(self._count):
            threading.Thread(target=self._run, name=f"fetch-{number}", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for _number in range(self._count):
            self._orders.put(None)

    def ahead(self, blocks: Iterator[_Block], read: Callable[[_Block], bytes]) -> Iterator[tuple[_Block, bytes]]:
        """Each block with its bytes, in order. Raises what `read` raises, and EndRequested."""
        waiting: deque[tuple[_Block, Future[bytes]]] = deque()
        for block in blocks:
            future: Future[bytes] = Future()
            self._orders.put((future, partial(read, block)))
            waiting.append((block, future))
            if len(waiting) == self._count:
                yield self._first(waiting)
        while waiting:
            yield self._first(waiting)

    def _first(self, waiting: "deque[tuple[_Block, Future[bytes]]]") -> tuple[_Block, bytes]:
        block, future = waiting.popleft()
        if self._is_to_stop():
            raise EndRequested
        return block, result_of(future, self._is_to_stop)

    def _run(self) -> None:
        while (order := self._orders.get()) is not None and not self._ended.is_set():
            future, read = order
            try:
                content: Any = read()
            except BaseException as error:  # noqa: BLE001  (top of a thread: who waits gets it)
                future.set_exception(error)
            else:
                future.set_result(content)


def say(text: str) -> None:
    """Write a line to the rank's log."""
    sys.stderr.write(f"shardyard: {text}\n")
    sys.stderr.flush()


def _size(count: int) -> str:
    """A number of bytes for people."""
    number, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if number < 1000:
            break
        number, unit = number / 1000, larger
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
