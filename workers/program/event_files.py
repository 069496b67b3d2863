"""Event files of TensorBoard writers: which of a folder this rank's program writes, and the scalars in them.

The name of a file has the host, and with most writers the process. A file is this rank's if that process is one of its program's, or if
one of these has it open. So each file is read by one rank, on shared storage too, and those of earlier starts by none.

The package `tensorboard` knows the events. Records are read without its reader, which checks all bytes of images and histograms in Python
(1 s for 10 MB), imports TensorFlow where it is installed, and has no limit for what it holds in memory.
"""

import contextlib
import os
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from .. import process_stat
from ..messages.metric_block import MOST_NAMES
from .metric_batch import CountedSteps

#: `events.out.tfevents.SECONDS.HOST`, then of most writers `.PROCESS`, and more.
_NAME: Final = re.compile(r"events\.out\.tfevents\.(\d+)\.(.+)")
#: Looks at a new file until it is known to be another program's: a process may be seen later than its file.
LOOKS: Final = 3
#: Maximum number of files that are followed.
MOST_FILES: Final = 1000
#: Bytes that are read at once, and of the largest record that is not skipped.
_AT_ONCE: Final = 1 << 20
MOST_RECORD: Final = 64 << 20
#: Length and checksum before a record; after it is another checksum.
_HEADER: Final = struct.Struct("<QI")
_FOOTER: Final = 4
#: Plugins whose tensors are scalars; torch's writer names the first one for all that it writes as tensors.
_SCALARS: Final = "scalars"

Scalar = tuple[str, int, float]


class EventFileInvalid(Exception):
    """The file has something that is no record at this place."""


class Processes:
    """The processes of this rank's program: `root` and its descendants, as far as they were seen alive since `forget` was called."""

    def __init__(self, root: int) -> None:
        self._known: set[int] = set()  # all processes of this machine
        self._root, self._alive = root, {root}
        self._seen: set[int] = set()

    def forget(self) -> None:
        """Those that are not alive now are no longer counted."""
        self._seen = set(self._alive)

    def look(self) -> None:
        """Only processes that are new are asked for their parents."""
        now = {int(name) for name in os.listdir("/proc") if name.isdecimal()}  # noqa: PTH208  # names, many times
        self._alive = self._alive & now | {self._root}
        parents = {pid: _parent(pid) for pid in now - self._known}
        while found := {pid for pid, parent in parents.items() if parent in self._alive} - self._alive:
            self._alive |= found
        self._known = now
        self._seen |= self._alive

    def __contains__(self, pid: int) -> bool:
        return pid in self._seen

    def have_open(self, path: Path) -> bool:
        with contextlib.suppress(OSError):
            wanted = path.stat()
            return any(os.path.samestat(wanted, one) for pid in self._alive for one in _open_files(pid))
        return False


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return process_stat.read(pid).parent
    return 0


def _open_files(pid: int) -> Iterator[os.stat_result]:
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield link.stat()


class EventFolder:
    """The files that this rank's program has written below a folder since `since` (unix seconds)."""

    def __init__(self, folder: Path, processes: Processes, since: float) -> None:
        self.folder = folder
        self.processes = processes
        self._since = int(since)
        self._host = f"{socket.gethostname()}."
        self._looks: dict[Path, int] = {}  # of files that are not this rank's, as far as is known
        self.files: dict[Path, EventFile] = {}

    def look(self) -> None:
        """Find new files. Links are not followed."""
        self.processes.look()
        for root, _, names in os.walk(self.folder):
            for name in names:
                path = Path(root, name)
                if len(self.files) < MOST_FILES and path not in self.files and self._is_own(path):
                    run = path.parent.relative_to(self.folder)
                    self.files[path] = EventFile(path, "" if run == Path() else f"{run.as_posix()}/")
        self.processes.forget()

    def _is_own(self, path: Path) -> bool:
        named = _NAME.match(path.name)
        if named is None or int(named[1]) < self._since or not f"{named[2]}.".startswith(self._host):
            return False
        looks = self._looks.get(path, 0)
        if looks >= LOOKS or len(self._looks) >= 10 * MOST_FILES:
            return False
        process = f"{named[2]}."[len(self._host) :].partition(".")[0]
        own = int(process) in self.processes if process.isdecimal() else self.processes.have_open(path)
        if not own:
            self._looks[path] = looks + 1
        return own


class EventFile:
    """One file, from its beginning to where it was read."""

    def __init__(self, path: Path, prefix: str) -> None:
        self.path = path
        self.prefix = prefix  # of the names: the run's, as TensorBoard names it
        self.steps = CountedSteps()
        self.ended = False  # it cannot be read any more
        self._read = 0  # bytes
        self._scalar_tags: dict[str, bool] = {}  # by their first value: later ones need not say it

    def scalars(self) -> Iterator[Scalar]:
        """What has been written since: tag, step and value. Raises EventFileInvalid."""
        from google.protobuf.message import DecodeError
        from tensorboard.compat.proto.event_pb2 import Event

        for record in self._records():
            try:
                event = Event.FromString(record)
            except DecodeError:
                raise EventFileInvalid(f"no event before byte {self._read:,}") from None
            for value in event.summary.value:
                number = self._number(value)
                if number is not None:
                    yield value.tag, event.step, number

    def _records(self) -> Iterator[bytes]:
        """Whole records; the rest is read when it is there."""
        if self.path.stat().st_size <= self._read:
            return
        with self.path.open("rb") as file:
            wanted = _AT_ONCE
            while True:
                file.seek(self._read)
                part = file.read(wanted)
                used = 0
                while (size := self._size(part, used)) and used + size <= len(part):
                    used += size
                    self._read += size
                    yield part[used - size + _HEADER.size : used - _FOOTER]
                if size > MOST_RECORD:
                    self._read += size
                elif not used and len(part) < wanted:
                    return
                wanted = _AT_ONCE if used or size > MOST_RECORD else size

    def _size(self, part: bytes, at: int) -> int:
        """Bytes of the record at this place, with header and footer; 0 if its header is not whole. Raises EventFileInvalid."""
        from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

        if len(part) - at < _HEADER.size:
            return 0
        length, checksum = _HEADER.unpack_from(part, at)
        if masked_crc32c(part[at : at + 8]) != checksum:
            raise EventFileInvalid(f"no record at byte {self._read:,}")
        return int(_HEADER.size + length + _FOOTER)

    def _number(self, value: Any) -> float | None:
        """The number of a `Summary.Value`; None if it is no scalar."""
        if value.HasField("simple_value"):
            return float(value.simple_value)
        if not value.HasField("tensor") or not self._is_scalar(value):
            return None
        from tensorboard.util.tensor_util import make_ndarray

        try:
            found = make_ndarray(value.tensor)
            return float(found.item()) if found.size == 1 else None
        except (TypeError, ValueError):
            return None

    def _is_scalar(self, value: Any) -> bool:
        known = self._scalar_tags.get(value.tag)
        if known is None:
            known = value.metadata.plugin_data.plugin_name == _SCALARS
            if len(self._scalar_tags) < MOST_NAMES:
                self._scalar_tags[value.tag] = known
        return known
