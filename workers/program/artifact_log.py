"""`shardyard.log_artifact`, `log_image`, `log_table`: files of a program, stored with its job.

A call copies the file into an unnamed temporary file and passes that to the rank's trainer process, which stores it meanwhile. What is not
taken is a line of the job's log. Outside a job nothing is stored. Needs only the standard library.
"""

import array
import json
import operator
import os
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

from .. import unix_socket
from ..messages.artifact import Kind, check_name, check_step
from . import image_file, table_file
from .report_socket import socket_name

#: Seconds for the trainer process to take a call's files: it may wait for room.
_SEND_S: Final = 30.0
#: Bytes that are copied at once.
_BLOCK: Final = 1 << 20
#: Warnings of one call.
_MOST_WARNINGS: Final = 5


def log_artifact(path: "str | os.PathLike[str]", name: str | None = None, *, step: int | None = None) -> bool:
    """Store a file or a folder with the job: `shardyard.log_artifact("model.pt")`.

    `name`: a relative path; by default the name of the file or folder. Files of a folder have their paths below it; links and special
    files in it are not taken. What was logged before by the same name and step is replaced. Returns whether all files were taken; why not
    is in the job's log. Raises ValueError for what cannot be a name or step.
    """
    given = Path(path)
    wanted = name or given.absolute().name
    check_name(wanted)
    found = list(_found(given, wanted)) or [(wanted, ValueError("the folder has no files"))]
    return _of_this_process().send("file", _step(step), found)


def log_image(name: str, image: Any, *, step: int | None = None) -> bool:
    """Store an image of a step: `shardyard.log_image("samples", tensor, step=3)`.

    `image`: bytes or a path of a PNG, JPEG or WebP file, an image of Pillow, an array of NumPy of shape H x W, H x W x 3 or H x W x 4,
    or a tensor of torch of shape H x W, 3 x H x W or 4 x H x W; numbers are uint8, or floats from 0 to 1. Returns whether it was taken.
    Raises ValueError, TypeError for what is no image.
    """
    check_name(name)
    try:
        content = image_file.content(image)
    except OSError as error:
        _warn(f"{name} was not logged: {error}")
        return False
    return _of_this_process().send("image", _step(step), [(name, content)])


def log_table(name: str, columns: Any, rows: Any = None, *, step: int | None = None) -> bool:
    """Store a table of a step as CSV: `shardyard.log_table("errors", ["text", "loss"], [["a", 0.5]], step=3)`.

    `columns`: names, and `rows`: a sequence of values for each; or a DataFrame of pandas or polars as `columns` alone. At most 100,000
    rows are stored. Returns whether it was taken. Raises ValueError, TypeError for what is no table.
    """
    check_name(name)
    return _of_this_process().send("table", _step(step), [(name, table_file.content(columns, rows))])


#: A name, and the content, the file that has it, or why it is not taken.
_Source = tuple[str, "bytes | Path | ValueError"]


def _step(step: Any) -> int | None:
    found = None if step is None else operator.index(step)
    check_step(found)
    return found


def _found(path: Path, name: str) -> Iterator[_Source]:
    """The files at or below a path, in order. A link is followed only if it is the path itself."""
    if not path.is_dir():
        yield name, path
        return
    unread: list[OSError] = []
    for folder, folders, files in os.walk(path, onerror=unread.append):
        folders.sort()
        for file in sorted([*files, *(one for one in folders if Path(folder, one).is_symlink())]):
            found = Path(folder, file)
            below = f"{name}/{found.relative_to(path).as_posix()}"
            yield below, ValueError("it is a link in a folder") if found.is_symlink() else found
    yield from ((name, ValueError(str(error))) for error in unread)


class ArtifactLog:
    """The connection to the trainer process. Any thread may send, and a signal handler within a call that it interrupts."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a new process: the connection is its parent's."""
        self._lock = threading.RLock()
        self._receiver: _Receiver | None = None

    def send(self, kind: Kind, step: int | None, sources: Sequence[_Source]) -> bool:
        """Whether all were taken."""
        name = socket_name(os.environ)
        if name is None:
            return False
        with self._lock:
            # A signal handler that interrupts this call finds no connection, and makes its own: this one waits for an answer.
            receiver, self._receiver = self._receiver, None
            try:
                receiver = receiver or _Receiver(name)
                taken = receiver.send(kind, step, sources)
            except (OSError, ValueError) as error:
                _warn(f"{sources[0][0] if sources else 'a folder'} was not logged: {error}")
                if receiver is not None:
                    receiver.connection.close()
                return False
            if self._receiver is not None:
                self._receiver.connection.close()
            self._receiver = receiver
            return taken


class _Receiver:
    """The trainer process, connected."""

    def __init__(self, name: str) -> None:
        """Connect to the socket of this name. Raises OSError, ValueError."""
        self.connection = socket.socket(socket.AF_UNIX)
        try:
            self.connection.settimeout(_SEND_S)
            unix_socket.connect(self.connection, f"\0{name}", _SEND_S)
            self.connection.sendall(json.dumps({"pid": os.getpid(), "artifacts": True}).encode() + b"\n")
            self._limits: dict[str, Any] = json.loads(_line(self.connection))
        except BaseException:
            self.connection.close()
            raise

    def send(self, kind: Kind, step: int | None, sources: Sequence[_Source]) -> bool:
        """Whether all were taken. Raises OSError, ValueError."""
        if len(sources) > self._limits["files"]:
            raise ValueError(f"{len(sources):,} files are more than {self._limits['files']:,}")
        Path(self._limits["folder"]).mkdir(parents=True, exist_ok=True)
        problems: list[str] = []
        with tempfile.TemporaryFile(dir=self._limits["folder"]) as spool:
            listed = [one for one in (self._listed(spool, source, problems) for source in sources) if one is not None]
            spool.flush()
            if listed:
                lines = [one | {"step": step, "type": kind} for one in listed]
                refused = _send(self.connection, json.dumps(lines).encode() + b"\n", spool.fileno())
                if refused is not None:
                    problems.append(f"{listed[0]['name']}: {refused}")
        for problem in problems[:_MOST_WARNINGS]:
            _warn(f"not logged: {problem}")
        if len(problems) > _MOST_WARNINGS:
            _warn(f"not logged: {len(problems) - _MOST_WARNINGS:,} more files")
        return bool(sources) and not problems

    def _listed(self, spool: IO[bytes], source: _Source, problems: list[str]) -> dict[str, Any] | None:
        """Copy a file to the end of the spool; None with a problem if it is not taken."""
        name, content = source
        offset = spool.seek(0, os.SEEK_END)
        try:
            check_name(name)
            size = self._copy(spool, content)
            if offset + size > self._limits["bytes"]:
                raise ValueError(f"the files have more than {self._limits['bytes']:,} bytes")
        except (OSError, ValueError) as error:
            spool.seek(offset)
            spool.truncate()
            problems.append(f"{ascii(name)[1:-1][:200]}: {getattr(error, 'strerror', None) or error}")
            return None
        return {"name": name, "offset": offset, "bytes": size}

    def _copy(self, spool: IO[bytes], content: "bytes | Path | ValueError") -> int:
        """Bytes that were copied. Raises OSError, ValueError."""
        most = int(self._limits["file_bytes"])
        if isinstance(content, ValueError):
            raise content
        if isinstance(content, bytes):
            if len(content) > most:
                raise ValueError(f"it has more than {most:,} bytes")
            return spool.write(content)
        copied = 0
        with _opened(content) as file:
            if os.fstat(file.fileno()).st_size > most:
                raise ValueError(f"it has more than {most:,} bytes")
            while block := file.read(_BLOCK):
                copied += len(block)
                if copied > most:  # it grows meanwhile
                    raise ValueError(f"it has more than {most:,} bytes")
                spool.write(block)
        return copied


def _opened(path: Path) -> IO[bytes]:
    """A regular file. Opening never waits. Raises OSError, ValueError for a device or a FIFO."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise ValueError("it is no regular file")
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError("it is no regular file")
    return os.fdopen(handle, "rb")


def _send(connection: socket.socket, line: bytes, descriptor: int) -> str | None:
    """Send a message; returns why it was refused. Raises OSError, ValueError."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]).tobytes())]
    sent = connection.sendmsg([line], rights)
    connection.sendall(line[sent:])
    refused = json.loads(_line(connection))["refused"]
    return None if refused is None else str(refused)


def _line(connection: socket.socket) -> bytes:
    found = bytearray()
    while not found.endswith(b"\n"):
        part = connection.recv(1 << 16)
        if not part:
            raise ConnectionError("the rank's trainer process takes no files")
        found += part
    return bytes(found)


def _warn(text: str) -> None:
    sys.stderr.write(f"shardyard: {text}\n")


@cache
def _of_this_process() -> ArtifactLog:
    return ArtifactLog()
