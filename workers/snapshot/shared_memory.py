"""Segments: memory of a rank's state that outlives its trainer. Whenever its writer dies, a segment is complete or empty.

A segment is an anonymous file in memory (memfd). The rank actor allocates two and owns them, its trainers get them by descriptor, and a
neighbour on the same node holds them too, so that they outlive the actor. When the last of these has died, the kernel frees them. The
header is emptied before the content changes and sealed after it. Imports no torch: the actor reads headers.
"""

import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Magic number, step, bytes of the facts, bytes of the whole segment; and their checksum.
_HEADER: Final = struct.Struct("<8sQQQ")
_CHECK: Final = struct.Struct("<I")
_MARK: Final = b"shardyrd"
_NAME: Final = "shardyard-snapshot"
#: Where the content begins: a page of its own for the header.
START: Final = 4096
#: A rank writes into one while the other is complete.
COUNT: Final = 2


@dataclass(frozen=True)
class Header:
    """What a complete segment holds: `facts` bytes of JSON at `START`, then tensors, `size` bytes in all."""

    step: int
    facts: int
    size: int

    def pack(self) -> bytes:
        numbers = _HEADER.pack(_MARK, self.step, self.facts, self.size)
        return numbers + _CHECK.pack(zlib.crc32(numbers))


def allocate() -> list[int]:
    """New empty segments, as descriptors of this process."""
    return [os.memfd_create(_NAME, os.MFD_CLOEXEC) for _ in range(COUNT)]


def adopt(pid: int, fds: list[int]) -> list[int]:
    """The segments that process `pid` of this node and user holds as `fds`, as descriptors of this process. Raises OSError."""
    places = [Path("/proc", str(pid), "fd", str(fd)) for fd in fds]
    if any(not str(place.readlink()).startswith(f"/memfd:{_NAME}") for place in places):
        raise FileNotFoundError(f"process {pid} is not the process that held the segments")
    return [os.open(place, os.O_RDWR | os.O_CLOEXEC) for place in places]


def read_header(fd: int) -> Header | None:
    """The segment's header; None if it is empty, or if its writer died while writing it."""
    data = os.pread(fd, _HEADER.size + _CHECK.size, 0)
    if len(data) < _HEADER.size + _CHECK.size:
        return None
    mark, step, facts, size = _HEADER.unpack(data[: _HEADER.size])
    header = Header(step, facts, size)
    return header if mark == _MARK and header.pack() == data and size <= os.fstat(fd).st_size else None


def steps(fds: list[int]) -> list[int]:
    """Steps whose state is complete in these segments."""
    return sorted({header.step for header in map(read_header, fds) if header})


def oldest(fds: Sequence[int]) -> int:
    """The segment to write into next: an empty one, else that of the older step."""

    def age(fd: int) -> int:
        header = read_header(fd)
        return -1 if header is None else header.step

    return min(fds, key=age)


def empty(fd: int) -> None:
    """Mark the segment as empty."""
    if os.fstat(fd).st_size:
        os.pwrite(fd, bytes(_HEADER.size + _CHECK.size), 0)


def empty_after(fds: Iterable[int], step: int) -> None:
    """Mark the segments of later steps than `step` as empty."""
    for fd in fds:
        header = read_header(fd)
        if header is not None and header.step > step:
            empty(fd)


def seal(fd: int, header: Header) -> None:
    """Mark the segment's content as complete."""
    os.pwrite(fd, header.pack(), 0)


def reserve(fd: int, size: int) -> None:
    """Give the segment at least `size` bytes of real memory. Raises OSError if there is not enough."""
    held = os.fstat(fd).st_size
    if held < size:
        os.posix_fallocate(fd, held, size - held)


def allocated(fd: int) -> int:
    """Bytes of real memory that the segment has."""
    return os.fstat(fd).st_blocks * 512


def free(fd: int) -> None:
    """Empty the segment and free its memory. It must not be mapped."""
    os.ftruncate(fd, 0)


def mapped(fd: int, size: int) -> mmap.mmap:
    """The segment's first `size` bytes, shared with every process that holds it. Raises OSError."""
    return mmap.mmap(fd, size)
