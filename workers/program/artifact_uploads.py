"""Files that a rank's program logs, on their way to the job's storage: a bounded queue, and a thread that empties it.

A file arrives as a descriptor of an unnamed temporary file, so a process that dies leaves none. What cannot be stored becomes a line of
the rank's log: the program never fails by it, and waits only a bounded time. `put` is for callers that wait until a file is stored.
"""

import array
import contextlib
import errno
import hashlib
import json
import mmap
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from ..messages.artifact import HEAD_BYTES, Artifact, Kind, check_name, check_step, media_type
from ..storage.folder import Folder
from ..storage.open_folder import folder_at
from .program import ArtifactStorage

#: Maximum number of messages, each with the files of one call, and of their bytes, that wait to be stored.
MOST_WAITING: Final = 64
MOST_WAITING_BYTES: Final = 2 << 30
#: Seconds that a call waits for room. Later calls do not wait until there is some.
ROOM_S: Final = 10.0
#: Seconds to store what waits when the program has ended, and when its job is cancelled.
FLUSH_S: Final = 120.0
STOP_S: Final = 2.0
#: The same for a rank whose failure must be known before that of another one is acted on (`ROOT_CAUSE_S` of the supervisor's repair.py).
HURRIED_S: Final = 0.3
#: Maximum bytes of a message's list of files.
MOST_LINE: Final = 16 << 20
#: Files that are stored between two events.
_BLOCK: Final = 100
#: Bytes of a stored file that are read at once.
_READ_BYTES: Final = 1 << 20
_LOOK_S: Final = 0.1

#: Called, on a thread, with files that are in storage.
OnStored = Callable[[Sequence[Artifact]], None]
#: Counts files and bytes of all ranks of the job; False if they exceed its limits. It raises what a lost store raises.
Reserve = Callable[[int, int], bool]


@dataclass(frozen=True)
class LoggedFile:
    """A part of a temporary file: one file that was logged."""

    name: str
    step: int | None
    type: Kind
    offset: int
    bytes: int


class Refused(Exception):
    """The files of a call are not taken. The message is a line for the log."""


class ArtifactUploads:
    """The queue of one rank. Any thread may add to it."""

    def __init__(self, storage: ArtifactStorage, reserve: Reserve, on_stored: OnStored) -> None:
        self.storage = storage
        self._folder: Folder | None = None
        self._reserve, self._on_stored = reserve, on_stored
        self._queue: deque[tuple[int, list[LoggedFile]]] = deque()
        self._bytes = self._busy = self._putting = 0
        self._patient = True  # whether a call waits for room
        self._abandoned = False
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, descriptor: int, files: list[LoggedFile]) -> None:
        """Take over an open file with these files in it. Raises Refused; then the descriptor is closed, too."""
        try:
            self._admit(descriptor, files)
        except Refused:
            os.close(descriptor)
            raise

    def put(self, descriptor: int, file: LoggedFile, known: Artifact | None = None) -> Artifact:
        """Store a file on the caller's thread. The descriptor stays the caller's.

        `known`: what this name and step had before. The same content is reported again, not stored and counted. Raises Refused.
        """
        self._check(descriptor, [file])
        with _mapped(descriptor) as content:
            found = _artifact(file, _part(content, file))
            with self._change:
                if self._abandoned:
                    raise Refused("the job is about to end")
                if found != known:
                    self._count(1, file.bytes)
                self._putting += 1
            try:
                if found != known:
                    self._keep(found, file, content)
                self._on_stored([found])
            finally:
                with self._change:
                    self._putting -= 1
                    self._change.notify_all()
        return found

    def _keep(self, found: Artifact, file: LoggedFile, content: memoryview) -> None:
        """Raises Refused; then the file does not count."""
        try:
            lost = _kept(self._opened(), found.sha256, file, content)
        except (OSError, ValueError) as error:  # the storage cannot be opened
            lost = _brief(error)
        if lost is not None:
            self._count(-1, -file.bytes)
            raise Refused(f"the storage has not taken the file: {lost}")

    def content(self, stored: Artifact) -> Iterator[bytes]:
        """The content of a stored file, in blocks. Raises OSError, also for one whose SHA-256 is another, before its last block."""
        folder, digest = self._opened(), hashlib.sha256()
        for start in range(0, stored.bytes, _READ_BYTES):
            block = bytearray(min(_READ_BYTES, stored.bytes - start))
            folder.read_into(stored.sha256, start, memoryview(block))
            digest.update(block)
            if start + len(block) == stored.bytes and digest.hexdigest() != stored.sha256:
                raise OSError(errno.EIO, "its checksum is wrong")
            yield bytes(block)

    def _check(self, descriptor: int, files: list[LoggedFile]) -> None:
        """Raises Refused."""
        held = os.fstat(descriptor).st_size
        if any(file.offset < 0 or file.bytes < 0 or file.offset + file.bytes > held for file in files):
            raise Refused("the files are not where the message says")
        if any(file.bytes > self.storage.file_bytes for file in files):
            raise Refused(f"a file has more than {self.storage.file_bytes:,} bytes")

    def _count(self, files: int, size: int) -> None:
        """Raises Refused."""
        try:
            fits = self._reserve(files, size)
        except Exception as error:  # noqa: BLE001  # torch's store raises many; the generation is about to end
            raise Refused(f"the job's other ranks do not answer: {type(error).__name__}") from None
        if not fits:
            most = f"{self.storage.files:,} files and {self.storage.bytes:,} bytes"
            raise Refused(f"a job may log {most}, which these exceed")

    def _admit(self, descriptor: int, files: list[LoggedFile]) -> None:
        self._check(descriptor, files)
        size = sum(file.bytes for file in files)
        with self._change:
            if not self._change.wait_for(lambda: self._has_room(size), ROOM_S if self._patient else 0.0):
                self._patient = False
                raise Refused("the storage is slower than files are logged")
            self._patient = True
            self._count(len(files), size)
            self._queue.append((descriptor, files))
            self._bytes += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._store_all, name="artifacts", daemon=True)
                self._thread.start()
            self._change.notify_all()

    def _has_room(self, size: int) -> bool:
        if self._abandoned:
            return False
        return not self._queue or (len(self._queue) < MOST_WAITING and self._bytes + size <= MOST_WAITING_BYTES)

    def flush(self, is_to_stop: Callable[[], bool], is_hurried: Callable[[], bool] = lambda: False) -> None:
        """Wait until all is stored; a bounded time, which is short once `is_to_stop`, and shorter once `is_hurried`.

        What is left is dropped, with a warning.
        """
        began = time.monotonic()
        with self._change:
            while self._queue or self._busy or self._putting:
                if time.monotonic() - began > (HURRIED_S if is_hurried() else STOP_S if is_to_stop() else FLUSH_S):
                    self._abandoned = True
                    left = self._busy + self._putting + sum(len(files) for _, files in self._queue)
                    _warn(f"{left:,} logged files were not stored before the program's end")
                    return
                self._change.wait(_LOOK_S)

    def _store_all(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: bool(self._queue))
                descriptor, files = self._queue[0]
                self._queue.popleft()
                self._busy = len(files)
            try:
                self._store(descriptor, files)
            except Exception as error:  # noqa: BLE001  # the outermost call of the thread: the next files may be stored
                _warn(f"{files[0].name}: {_brief(error)}: the logged file is not stored")
            finally:
                os.close(descriptor)
                with self._change:
                    self._bytes -= sum(file.bytes for file in files)
                    self._busy = 0
                    self._change.notify_all()

    def _store(self, descriptor: int, files: list[LoggedFile]) -> None:
        left = files
        try:
            folder = self._opened()
            with _mapped(descriptor) as content:
                while left and not self._abandoned:
                    some, left = left[:_BLOCK], left[_BLOCK:]
                    self._store_block(folder, some, content)
        finally:
            self._uncount(left)

    def _store_block(self, folder: Folder, files: list[LoggedFile], content: memoryview) -> None:
        found = [_artifact(file, _part(content, file)) for file in files]
        distinct = {one.sha256: file for one, file in zip(found, files, strict=True)}
        lost = dict(folder.each(lambda item: (item[0], _kept(folder, *item, content)), distinct.items()))
        self._uncount([file for one, file in zip(found, files, strict=True) if lost[one.sha256] is not None])
        for one in found:
            if (error := lost[one.sha256]) is not None:
                _warn(f"{one.name}: {error}: the logged file is not stored")
        if stored := [one for one in found if lost[one.sha256] is None]:
            self._on_stored(stored)

    def _uncount(self, files: list[LoggedFile]) -> None:
        """What is not stored leaves its room to later files."""
        if files:
            with contextlib.suppress(Refused):
                self._count(-len(files), -sum(file.bytes for file in files))

    def _opened(self) -> Folder:
        if self._folder is None:
            self._folder = folder_at(self.storage.address)
        return self._folder

    def serve(self, connection: socket.socket) -> None:
        """Take the messages of a process of the program until it ends, and answer each: `artifact_log.py` is the other side."""
        limits = {"folder": self.storage.spool, "file_bytes": self.storage.file_bytes, "files": self.storage.files}
        with contextlib.suppress(OSError, ValueError):
            connection.sendall(json.dumps(limits | {"bytes": self.storage.bytes}).encode() + b"\n")
            while (found := _message(connection)) is not None:
                connection.sendall(json.dumps({"refused": self._taken(*found)}).encode() + b"\n")

    def _taken(self, line: bytes, descriptor: int) -> str | None:
        """Why the files of a message are refused; None if they are taken."""
        try:
            files = _checked(json.loads(line))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            os.close(descriptor)
            return f"the message is not understood: {error}"
        try:
            self.add(descriptor, files)
        except Refused as refused:
            return str(refused)
        return None


def _artifact(file: LoggedFile, content: memoryview) -> Artifact:
    digest = hashlib.sha256(content).hexdigest()
    kind = media_type(file.type, bytes(content[:HEAD_BYTES]))
    return Artifact(name=file.name, step=file.step, type=file.type, bytes=file.bytes, sha256=digest, media_type=kind)


def _kept(folder: Folder, digest: str, file: LoggedFile, content: memoryview) -> str | None:
    """Store a file by its digest, unless it is there. Returns why that failed."""
    try:
        if not folder.has(digest):
            folder.publish(digest, _part(content, file), many_writers=True)
    except OSError as error:
        return _brief(error)
    return None


def _part(content: memoryview, file: LoggedFile) -> memoryview:
    return content[file.offset : file.offset + file.bytes]


@contextmanager
def _mapped(descriptor: int) -> Iterator[memoryview]:
    """The content of an open file, which is not read into memory whole."""
    if os.fstat(descriptor).st_size == 0:
        yield memoryview(b"")
        return
    yield memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))  # freed with its last view


def _checked(sent: list[dict[str, Any]]) -> list[LoggedFile]:
    """The files of a message, at least one. Raises ValueError, TypeError or KeyError for what is no file."""
    for one in sent:
        check_name(one["name"])
        check_step(one["step"])
        if one["type"] not in ("file", "image", "table"):
            raise ValueError("unknown type")
        if not isinstance(one["offset"], int) or not isinstance(one["bytes"], int):
            raise ValueError("offset and bytes are whole numbers")
    if not sent:
        raise ValueError("it names no file")
    return [LoggedFile(one["name"], one["step"], one["type"], one["offset"], one["bytes"]) for one in sent]


def _message(connection: socket.socket) -> tuple[bytes, int] | None:
    """A line and the descriptor that came with it; None at the end. Raises OSError, ValueError."""
    line, descriptors = bytearray(), array.array("i")
    try:
        while not line.endswith(b"\n"):
            room = socket.CMSG_SPACE(descriptors.itemsize)
            part, control, _, _ = connection.recvmsg(1 << 20, room, socket.MSG_CMSG_CLOEXEC)
            for level, kind, data in control:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
            if not part:
                return None
            line += part
            if len(line) > MOST_LINE or len(descriptors) > 1:
                raise ValueError
        if len(descriptors) != 1:
            raise ValueError
        return bytes(line), descriptors.pop()
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _brief(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]


def _warn(text: str) -> None:
    sys.stderr.write(f"shardyard: {text}\n")
    sys.stderr.flush()
